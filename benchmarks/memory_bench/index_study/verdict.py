"""The rule of ADR 30: which settings are admissible, which is the best of a kind, and whether the kind is adopted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from memory_bench.index_study.designs import LEAST_RECALL, SMALLER, TODAY, Kind, Setting
from memory_bench.index_study.measure import Cold, Warm
from memory_bench.index_study.quality import RANKINGS, SetQuality

Verdict = Literal["adopted", "rejected", "not judged"]

_RECALL_LOST = 0.002  # of today's recall@50
_QUALITY_LOST = 0.003  # of recall@10 on any set
_SIZE, _COLD = 0.5, 0.5  # shares of today's
_SLOWER = 1.1
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Measured:
    """What one setting takes; `cold` is None where cold caches were not measured."""

    setting: Setting
    size_bytes: int
    build_seconds: float
    warm: Warm
    cold: Cold | None = None


@dataclass(frozen=True, slots=True)
class TableResult:
    """All settings on one table of vectors; one of them is today's, unless nothing had to be measured."""

    name: str
    dimensions: int
    rows: int
    measured: tuple[Measured, ...]

    @property
    def today(self) -> Measured:
        """The measurement of the index that recalls use at present, with which the others are compared."""
        return next(one for one in self.measured if one.setting.design == TODAY)

    @property
    def smaller(self) -> tuple[Kind, ...]:
        """The kinds that were measured beside today's."""
        measured = {one.setting.design.kind for one in self.measured}
        return tuple(kind for kind in SMALLER if kind in measured)

    def of(self, kind: Kind) -> tuple[Measured, ...]:
        """Return the settings of a kind; modelled vectors, whose mean is at zero, have their signs as centred signs."""
        same = "signs" if kind == "centred signs" and self.name == "modelled" else kind
        return tuple(one for one in self.measured if one.setting.design.kind == same)

    def with_cold(self, cold: Mapping[Setting, Cold]) -> "TableResult":
        """Return the same with the measurements with cold caches."""
        return replace(self, measured=tuple(replace(one, cold=cold.get(one.setting)) for one in self.measured))


def admissible(one: Measured, today: Measured, sets: Sequence[SetQuality]) -> bool:
    """Return whether a setting finds as many of the true neighbours as the rule demands, and loses no quality."""
    if one.warm.recall < max(LEAST_RECALL, today.warm.recall - _RECALL_LOST) - _ROUNDING:
        return False
    kind, count = one.setting.design.kind, one.setting.candidates
    if count is None:
        return True
    return all(each.change(kind, count, by) >= -_QUALITY_LOST - _ROUNDING for each in sets for by in RANKINGS)


def best(table: TableResult, kind: Kind, sets: Sequence[SetQuality]) -> Measured | None:
    """Return the admissible setting of a kind with the least p95 warm, or else the one that finds most.

    None stands for a kind that was not measured.
    """
    every = table.of(kind)
    if not every:
        return None
    allowed = [one for one in every if admissible(one, table.today, sets)]
    if allowed:
        return min(allowed, key=lambda one: one.warm.percentile(95))
    return max(every, key=lambda one: one.warm.recall)


def chosen(table: TableResult, sets: Sequence[SetQuality]) -> list[Measured]:
    """Return today's index and the best setting of each kind that was measured; none if nothing was."""
    found = (best(table, kind, sets) for kind in table.smaller)
    return [table.today, *(one for one in found if one is not None)] if table.measured else []


def passes(table: TableResult, kind: Kind, sets: Sequence[SetQuality]) -> bool:
    """Return whether the best setting of a kind is admissible, and pays warm or cold, on one table of vectors."""
    one = best(table, kind, sets)
    if one is None or not admissible(one, today := table.today, sets):
        return False
    slower = one.warm.percentile(95) / today.warm.percentile(95)
    if slower <= 1 and one.size_bytes <= _SIZE * today.size_bytes:
        return True
    if one.cold is None or today.cold is None:
        return False
    colder = max(one.cold.p95 / today.cold.p95, one.cold.bytes_read / (today.cold.bytes_read or 1))
    return slower <= _SLOWER and colder <= _COLD


def judge(tables: Sequence[TableResult], sets: Sequence[SetQuality]) -> dict[tuple[int, int], dict[Kind, Verdict]]:
    """Return the verdict on each kind by dimensions and rows."""
    sizes = sorted({(one.dimensions, one.rows) for one in tables})
    return {size: {kind: _verdict(tables, size, kind, sets) for kind in SMALLER} for size in sizes}


def _verdict(tables: Sequence[TableResult], size: tuple[int, int], kind: Kind, sets: Sequence[SetQuality]) -> Verdict:
    dimensions, rows = size
    own = {one.name: passes(one, kind, sets) for one in tables if (one.dimensions, one.rows) == size}
    if "real" in own:
        return "adopted" if all(own.values()) else "rejected"
    both = {
        other: {one.name: passes(one, kind, sets) for one in tables if (one.dimensions, one.rows) == (other, rows)}
        for other in {one.dimensions for one in tables if one.name == "real" and one.rows == rows} - {dimensions}
    }
    if not any(len(found) > 1 and len(set(found.values())) == 1 for found in both.values()):
        return "not judged"
    return "adopted" if all(own.values()) else "rejected"
