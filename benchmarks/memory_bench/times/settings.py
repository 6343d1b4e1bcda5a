"""The settings that are compared: the finder of periods, how well two periods match, and how that joins closeness."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal, get_args

import numpy as np

from memory_bench.studies.questions import Numbers
from memory_bench.times.expressions import FINDERS, Finder
from memory_recall.search.period import FADE, Period

Match = Literal["share", "overlap", "fade"]
Combination = Literal["greater", "mixture", "sum"]

MATCHES: tuple[Match, ...] = get_args(Match)
COMBINATIONS: tuple[Combination, ...] = get_args(Combination)
WEIGHTS = (0.5, 1.0)


def matching(match: Match, asked: Period, named: Period) -> float:
    """Return how well the period that a memory names matches the one that the query names, from 0 to 1."""
    shared = (min(asked.end, named.end) - max(asked.start, named.start)).total_seconds()
    if match == "share":
        return max(0.0, shared) / named.seconds
    if shared > 0:
        return 1.0
    return 0.0 if match == "overlap" else max(0.0, 1.0 + shared / (FADE * asked.seconds))


@dataclass(frozen=True, slots=True)
class TimeSetting:
    """One way of letting the periods that a memory names count."""

    finder: Finder
    match: Match
    combination: Combination
    weight: float

    def __str__(self) -> str:
        """Return the setting's name in tables."""
        return f"{self.finder}, {self.match}, {self.combination} {self.weight:g}"

    @property
    def order(self) -> tuple[object, ...]:
        """The rank of the setting among those that gain almost as much; the least is preferred."""
        combination, match = COMBINATIONS.index(self.combination), MATCHES.index(self.match)
        return FINDERS.index(self.finder), self.weight, combination, match

    def combined(self, closeness: Numbers, match: Numbers, *, names: Numbers) -> Numbers:
        """Return what takes the place of closeness.

        The arrays are over memories: the closeness of the time of creation, the match of the periods that the text
        names, and 1 where it names one, else 0.
        """
        if self.combination == "sum":
            return closeness + self.weight * match
        if self.combination == "mixture":
            share = self.weight * names
            return (1 - share) * closeness + share * match
        greater: Numbers = np.maximum(closeness, self.weight * match)
        return greater


def all_settings() -> Sequence[TimeSetting]:
    """Return all settings."""
    return [TimeSetting(*one) for one in product(FINDERS, MATCHES, COMBINATIONS, WEIGHTS)]
