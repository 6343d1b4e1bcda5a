"""The times of a set's memories: when each was created, and which periods its text names seen from then."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from memory_bench.harness.dataset import Memory
from memory_bench.recall.named_times import STAMP, written_times
from memory_bench.studies.questions import Numbers
from memory_bench.times.expressions import FINDERS, Finder, periods_of
from memory_recall.search.period import Period

IMPORTED = datetime(2026, 1, 1, 12, tzinfo=UTC)
"""The time of creation of memories of which none is known, as if all had been imported at once."""


@dataclass(frozen=True, slots=True)
class MemoryTimes:
    """The times of creation by memory id, and by finder the periods that each text names.

    `milliseconds` has the processor time of finding the periods of each memory, by finder.
    """

    created: Mapping[int, datetime]
    periods: Mapping[Finder, Mapping[int, tuple[Period, ...]]]
    milliseconds: Mapping[Finder, Numbers]


def read_times(memories: Sequence[Memory]) -> MemoryTimes:
    """Find the periods of all memories with every finder.

    The time with which a text begins ("[1:56 pm on 8 May, 2023] ...") is the memory's time of creation, and is not
    searched.
    """
    written = written_times(memories)
    created = {one.id: one.created_at or written.get(one.id, IMPORTED) for one in memories}
    periods: dict[Finder, dict[int, tuple[Period, ...]]] = {finder: {} for finder in FINDERS}
    milliseconds: dict[Finder, list[float]] = {finder: [] for finder in FINDERS}
    for one in memories:
        stamp = STAMP.match(one.content)
        text = one.content[stamp.end() :] if stamp else one.content
        for finder in FINDERS:
            began = time.thread_time_ns()
            periods[finder][one.id] = periods_of(text, created[one.id], finder)
            milliseconds[finder].append((time.thread_time_ns() - began) / 1e6)
    return MemoryTimes(created, periods, {finder: np.array(found) for finder, found in milliseconds.items()})


@dataclass(frozen=True, slots=True)
class Capture:
    """What finding periods takes a memory, and how many it finds: times in milliseconds of the processor."""

    memories: int
    naming: int
    periods: float
    mean: float
    of_99: float


def summarise(times: MemoryTimes, finder: Finder) -> Capture:
    """Return how many memories name a time, how many periods there are a memory, and what finding them takes."""
    counts = [len(found) for found in times.periods[finder].values()]
    taken = times.milliseconds[finder]
    naming = sum(count > 0 for count in counts)
    return Capture(len(counts), naming, float(np.mean(counts)), float(taken.mean()), float(np.percentile(taken, 99)))
