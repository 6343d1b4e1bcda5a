"""Counts how many relevant memories name a period that meets the question's, and what is left to be gained."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np

from memory_bench.studies.questions import LabelledSet
from memory_bench.times.boosting import TimedQuestion, questions_of
from memory_bench.times.expressions import FINDERS, Finder
from memory_bench.times.memory_times import MemoryTimes
from memory_bench.times.settings import matching
from memory_recall.search.period import Period


@dataclass(frozen=True, slots=True)
class Met:
    """How many of some memories have a time that meets the question's period.

    `created` counts those that were created in it, `close` those for which the boost by creation is above zero. `named`
    counts those whose text names a period that meets it, and `named_alone` those of them for which that boost is zero.
    """

    count: int
    created: int
    close: int
    named: Mapping[Finder, int]
    named_alone: Mapping[Finder, int]


@dataclass(frozen=True, slots=True)
class Coverage:
    """The memories of the questions that name a time.

    `relevant` ones, `irrelevant` ones among the candidates, and relevant ones `left`: candidates that are not among the
    first ten with the boost by creation. `beyond` counts the relevant ones that no leg found.
    """

    questions: int
    relevant: Met
    irrelevant: Met
    left: Met
    beyond: int


def cover(labelled: LabelledSet, times: MemoryTimes) -> Coverage:
    """Count over all questions of a set that name a time."""
    relevant, irrelevant, left = _Counter(times), _Counter(times), _Counter(times)
    questions = beyond = 0
    for _, asked, timed in questions_of(labelled, times):
        if timed is None:
            continue
        questions += 1
        wanted, found = asked.query.relevant, set(timed.memories)
        relevant.add(wanted, timed.period)
        irrelevant.add(found - wanted, timed.period)
        left.add((wanted & found) - _first(timed), timed.period)
        beyond += len(wanted - found)
    return Coverage(questions, relevant.met(), irrelevant.met(), left.met(), beyond)


def _first(timed: TimedQuestion) -> set[int]:
    """Return the ids of the first ten memories with the boost by creation."""
    by_place = dict(zip(timed.candidates.tolist(), timed.memories, strict=True))
    return {by_place[place] for place in timed.ranked(timed.closeness[None, :])[0].tolist()}


class _Counter:
    """Counts memories that are added with the period of a question."""

    def __init__(self, times: MemoryTimes) -> None:
        self._times = times
        self._rows: list[tuple[bool, ...]] = []

    def add(self, memories: AbstractSet[int], period: Period) -> None:
        for one in memories:
            close = period.closeness(self._times.created[one])
            meets = [
                any(matching("overlap", period, each) for each in self._times.periods[finder][one])
                for finder in FINDERS
            ]
            self._rows.append((close == 1, close > 0, *meets, *(met and close == 0 for met in meets)))

    def met(self) -> Met:
        totals = np.array(self._rows, dtype=np.int64).reshape(len(self._rows), 2 + 2 * len(FINDERS)).sum(axis=0)
        created, close, *named = (int(one) for one in totals)
        finders = len(FINDERS)
        return Met(
            len(self._rows),
            created,
            close,
            dict(zip(FINDERS, named[:finders], strict=True)),
            dict(zip(FINDERS, named[finders:], strict=True)),
        )
