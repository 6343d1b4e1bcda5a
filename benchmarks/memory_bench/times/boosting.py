"""Ranks the questions of a labelled set without a boost, with the boost by creation, and with every setting."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Self

import numpy as np
from numpy.typing import NDArray

from memory_bench.recall.named_times import named_periods
from memory_bench.studies.gains import SettingScores
from memory_bench.studies.questions import MEASURES, Asked, LabelledSet, Numbers, Places, scopes
from memory_bench.times.expressions import FINDERS, Finder
from memory_bench.times.memory_times import MemoryTimes
from memory_bench.times.settings import MATCHES, Match, TimeSetting, matching
from memory_recall.evaluation.measures import DEPTH
from memory_recall.search.fusion import CLOSENESS_SHARE
from memory_recall.search.period import Period


@dataclass(frozen=True, slots=True)
class TimeScores(SettingScores[TimeSetting]):
    """The scores of one set: `plain` with the boost by times of creation, `scores` in each setting.

    `unboosted` has the scores without any boost, shape (questions, measures). `named` says which questions name a
    time, and `scopes` has the scope of each.
    """

    unboosted: Numbers
    named: NDArray[np.bool_]
    scopes: tuple[str | None, ...]

    def only(self, chosen: NDArray[np.bool_]) -> Self:
        """Return the scores of the questions that are chosen."""
        kept = np.flatnonzero(chosen)
        return replace(
            self,
            strata=tuple(self.strata[place] for place in kept),
            plain=self.plain[kept],
            scores=self.scores[:, kept],
            unboosted=self.unboosted[kept],
            named=self.named[kept],
            scopes=tuple(self.scopes[place] for place in kept),
        )


@dataclass(frozen=True, slots=True)
class TimedQuestion:
    """A question that names a period, with arrays over its candidates, which are given by place and by memory id."""

    number: int
    asked: Asked
    period: Period
    candidates: Places
    memories: Sequence[int]
    closeness: Numbers

    def ranked(self, boosts: Numbers) -> Places:
        """Return the places of the first ten candidates for each row of boosts, shape (rows, 10)."""
        totals = self.asked.fused[self.candidates] * (1 + CLOSENESS_SHARE * boosts)
        return self.candidates[np.argsort(-totals, axis=1, kind="stable")[:, :DEPTH]]


def questions_of(labelled: LabelledSet, times: MemoryTimes) -> Iterator[tuple[int, Asked, TimedQuestion | None]]:
    """Yield the number of each question, the question, and what belongs to the period that it names, if it does."""
    periods = named_periods(labelled.dataset.queries, labelled.dataset.memories, times.created)
    for scope in scopes(labelled.dataset):
        ids = [one.id for one in scope.memories(labelled.dataset)]
        for number, asked in zip(scope.numbers, scope.questions(labelled), strict=True):
            period = periods[number]
            if period is None:
                yield number, asked, None
                continue
            places = np.flatnonzero(asked.candidates)
            memories = [ids[place] for place in places]
            closeness = np.array([period.closeness(times.created[one]) for one in memories])
            yield number, asked, TimedQuestion(number, asked, period, places, memories, closeness)


def score_times(labelled: LabelledSet, times: MemoryTimes, settings: Sequence[TimeSetting]) -> TimeScores:
    """Rank and score all questions of a set in each of the settings."""
    queries = labelled.dataset.queries
    unboosted = np.zeros((len(queries), len(MEASURES)))
    plain, named = np.zeros_like(unboosted), np.zeros(len(queries), dtype=bool)
    scores = np.zeros((len(settings), len(queries), len(MEASURES)), dtype=np.float32)
    for number, asked, timed in questions_of(labelled, times):
        unboosted[number] = plain[number] = scores[:, number] = asked.scored(asked.first(DEPTH)[None, :])[0]
        if timed is not None:
            named[number] = True
            boosts = [timed.closeness, *_boosts(timed, times, settings)]
            found = asked.scored(timed.ranked(np.stack(boosts)))
            plain[number], scores[:, number] = found[0], found[1:]
    strata, searched = tuple(one.stratum for one in queries), tuple(one.scope for one in queries)
    name = labelled.dataset.name
    return TimeScores(name, strata, tuple(settings), plain, scores, unboosted, named, searched)


def _boosts(timed: TimedQuestion, times: MemoryTimes, settings: Sequence[TimeSetting]) -> Iterator[Numbers]:
    """Yield, for each setting, what takes the place of closeness for each candidate."""
    found: Mapping[tuple[Finder, Match], Numbers] = {
        (finder, match): np.array(
            [
                max((matching(match, timed.period, one) for one in times.periods[finder][memory]), default=0.0)
                for memory in timed.memories
            ]
        )
        for finder, match in product(FINDERS, MATCHES)
    }
    names = {
        finder: np.array([float(bool(times.periods[finder][memory])) for memory in timed.memories])
        for finder in FINDERS
    }
    for one in settings:
        match = found[one.finder, one.match]
        yield one.combined(timed.closeness, match, names=names[one.finder])
