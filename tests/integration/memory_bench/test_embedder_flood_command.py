"""The figures of the command `embedder-flood`, which tests/delivery runs with 40 requests and 70 stalled clients."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memory_bench.embedder_flood.flood import Outcome
from memory_bench.embedder_flood.holding import KINDS, Held
from memory_bench.embedder_flood.many_callers import ManyCallers
from memory_bench.embedder_flood.poisoning import Poisoned
from memory_bench.embedder_flood.probing import Waits
from memory_bench.embedder_flood.sending import Sent

ROOT = Path(__file__).parents[3]
FIGURES = [
    "requests",
    "crashes",
    "unanswered",
    "longest_healthz_ms",
    "longest_query_ms_of_others",
    "rss_mb",
    "innocent_failures",
    "callers",
    "resets",
    "half_open_survived",
]


def outcome(**changes: Any) -> Outcome:
    """An outcome that passes, but for the changes."""
    held = Held({kind.name: 1 for kind in KINDS}, {kind.name: 1.0 for kind in KINDS})
    good = Outcome(
        sent=Sent({200: 70, 422: 25, 503: 5}, malformed=30, malformed_accepted=0),
        health=Waits(10, 250.0),
        queries=Waits(10, 1000.0),
        held=held,
        poisoned=Poisoned(1000, 0, 0),
        many_callers=ManyCallers(2000, {200: 512, 429: 1488}, 0),
        peak_bytes=1_500_000_000,
        alive=True,
        seconds=1.0,
    )
    return replace(good, **changes)


def test_the_figures_of_an_outcome_are_what_was_counted() -> None:
    lost = outcome(
        sent=Sent({0: 1, 200: 9}, 0, 0),
        health=Waits(1, 7.0, 2),
        queries=Waits(1, 8.0, 3),
        poisoned=Poisoned(9, 4, 0),
        many_callers=ManyCallers(9, {200: 4}, 5),
    )
    assert lost.line() == dict(zip(FIGURES, (10, 0, 6, 7.0, 8.0, 1500, 4, 9, 5, False), strict=True))


LATE = Held({kind.name: 1 for kind in KINDS}, {kind.name: 60.0 for kind in KINDS})


@pytest.mark.parametrize(
    "changes",
    [
        {"alive": False},
        {"sent": Sent({0: 1, 200: 99}, 30, 0)},
        {"sent": Sent({200: 99, 500: 1}, 30, 0)},
        {"health": Waits(10, 250.1)},
        {"health": Waits(10, 1.0, failures=1)},
        {"queries": Waits(10, 1000.1)},
        {"queries": Waits(10, 1.0, failures=1)},
        {"peak_bytes": 1_500_000_001},
        {"held": LATE},
        {"poisoned": Poisoned(1000, 1, 0)},
        {"poisoned": Poisoned(1000, 0, 1)},
        {"many_callers": ManyCallers(2000, {200: 1999}, 1)},
        {"many_callers": ManyCallers(2000, {200: 1999, 503: 1}, 0)},
    ],
)
def test_each_thing_that_others_notice_fails_a_flood(changes: dict[str, Any]) -> None:
    assert outcome().passed
    assert not outcome(**changes).passed
