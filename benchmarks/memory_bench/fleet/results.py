"""What the rates and the changed objects of a fleet say: where it bends, what binds, and what one recall takes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memory_bench.fleet.usage import Usage, binding
from memory_bench.report import chart, markdown_table

_ANSWERED = 0.99  # the share of the recalls that both legs have to answer at a rate that is sustained
_SLOWER = 4.0  # how many times the p95 of the lowest rate a sustained rate may have


@dataclass(frozen=True, slots=True)
class RateResult:
    """What came of the recalls at one rate; times are in milliseconds, and the rate is in recalls a second.

    The times are those of recalls that both legs answered, None without any. `refused` and `degraded` are the numbers
    of recalls by the reason that was given. `waiting` is the most recalls that had no connection to a database at a
    time.
    """

    rate: float
    asked: int
    answered: int
    refused: Mapping[str, int]
    degraded: Mapping[str, int]
    p50_ms: float | None
    p95_ms: float | None
    usage: Usage
    waiting: int

    @property
    def binds(self) -> str | None:
        """The resource that binds, or None if none does."""
        late = sum(self.degraded.values()) > self.asked * (1 - _ANSWERED)
        return binding(self.usage, late=late, waiting=self.waiting)

    @property
    def milliseconds_per_recall(self) -> dict[str, float]:
        """Processor time of each part for one recall, in milliseconds."""
        return {name: round(seconds * 1000 / self.asked, 2) for name, seconds in self.usage.parts.items()}


@dataclass(frozen=True, slots=True)
class ChangeResult:
    """What came of objects that changed at once, and what was used meanwhile.

    `seconds` are those from the moment at which the API server had accepted each change until it was observed.
    """

    objects: int
    seconds: tuple[float, ...]
    usage: Usage

    @property
    def edits_per_s(self) -> float:
        """How many changes were made and observed a second, from the first request to the last observation."""
        return len(self.seconds) / self.usage.seconds

    @property
    def p95_s(self) -> float:
        """The seconds within which 95 of 100 changes were observed."""
        return sorted(self.seconds)[max(0, round(len(self.seconds) * 0.95) - 1)]


def sustained(rates: Sequence[RateResult]) -> RateResult | None:
    """Return the highest rate that is sustained with all lower ones, or None if the lowest is not.

    A rate is sustained if both legs answered 99 of 100 recalls, and 95 of 100 of those took no longer than four times
    what they took at the lowest rate.
    """
    found = None
    for one in rates:
        lowest = rates[0].p95_ms
        if one.answered < one.asked * _ANSWERED or one.p95_ms is None or lowest is None:
            return found
        if one.p95_ms > _SLOWER * lowest:
            return found
        found = one
    return found


def figures(changed: ChangeResult | None, rates: Sequence[RateResult]) -> dict[str, Any]:
    """Return the main figures of what was measured."""
    found: dict[str, Any] = {}
    if changed is not None:
        found |= {
            "indexes": changed.objects,
            "changed_at_once": len(changed.seconds),
            "edits_per_s": round(changed.edits_per_s, 1),
            "edit_p95_s": round(changed.p95_s, 2),
            "edits_bound_by": binding(changed.usage),
        }
    if rates:
        best = sustained(rates)
        chosen = best or rates[0]
        beyond = rates[rates.index(best) + 1 :] if best else list(rates)
        found |= {
            "recalls_per_s": best.rate if best else 0,
            "recall_p95_ms": chosen.p95_ms,
            "recalls_bound_by": next((one.binds for one in beyond if one.binds), None),
            "processor_ms_per_recall": chosen.milliseconds_per_recall,
        }
    return found


def table(rates: Sequence[RateResult]) -> str:
    """Return a Markdown table with one line for each rate."""
    heading = ("recalls/s", "by both legs", "p50 ms", "p95 ms", "processors", "disk", "waiting", "binds")
    lines = [
        (
            f"{one.rate:g}",
            f"{one.answered / one.asked:.1%}",
            *("" if time is None else f"{time:.1f}" for time in (one.p50_ms, one.p95_ms)),
            f"{one.usage.processors:.0%}",
            f"{one.usage.disk:.0%}",
            str(one.waiting),
            one.binds or "nothing",
        )
        for one in rates
    ]
    return markdown_table([heading, *lines])


def draw(rates: Sequence[RateResult], path: Path) -> None:
    """Draw the times of recalls, and how busy processors and disk are, over the rate."""
    x = [one.rate for one in rates]
    with chart(path, rows=2, size=(6, 6)) as (times, shares):
        times.plot(x, [one.p50_ms for one in rates], marker="o", label="p50")
        times.plot(x, [one.p95_ms for one in rates], marker="o", label="p95")
        times.set(ylabel="milliseconds", yscale="log")
        shares.plot(x, [100 * one.usage.processors for one in rates], marker="o", label="processors")
        shares.plot(x, [100 * one.usage.disk for one in rates], marker="o", label="disk")
        shares.plot(x, [100 * one.answered / one.asked for one in rates], marker="o", label="answered by both legs")
        shares.set(xlabel="recalls begun a second", ylabel="per cent", ylim=(0, 105))
        for axes in (times, shares):
            axes.legend()
