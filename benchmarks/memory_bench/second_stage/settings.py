"""The settings of MaxSim and of MMR that are compared."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np

from memory_bench.studies.questions import Numbers

Tokens = Literal["all", "inner"]
States = Literal["exact", "signs"]
Mixing = Literal["share", "times"]

DEPTHS = (20, 30)
TOKENS: tuple[Tokens, ...] = ("all", "inner")
STATES: tuple[States, ...] = ("exact", "signs")
VARIANTS = tuple(product(TOKENS, STATES))
"""The ways of computing a MaxSim score, in the order in which `maxsim.scores` returns them."""
SHARES = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
MULTIPLES = (0.25, 0.5, 1.0, 2.0, 4.0)
_HALF = 0.5

TRADES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
FLOORS = (0.0, 0.6, 0.7, 0.8, 0.9)
POOLS = (20, 50)


@dataclass(frozen=True, slots=True)
class MaxSimSetting:
    """Which memories are ordered anew, how their MaxSim scores are computed, and how these are mixed in.

    With `mixing` "share", fused and MaxSim scores are both scaled to 0 to 1 over the memories that are ordered, and
    `weight` is the share of MaxSim; with "times", `weight` times the MaxSim score is added to the fused one.
    `brief_only` leaves questions whose `brief` is .5 or less as they are.
    """

    depth: int
    tokens: Tokens
    states: States
    brief_only: bool
    mixing: Mixing
    weight: float

    def __str__(self) -> str:
        """Return the setting's name in tables."""
        queries = "brief queries" if self.brief_only else "all queries"
        return f"{self.depth}, {self.tokens} tokens, {self.states}, {queries}, {self.mixing} {self.weight:g}"

    @property
    def variant(self) -> int:
        """The place in `VARIANTS` of the way in which the MaxSim scores are computed."""
        return VARIANTS.index((self.tokens, self.states))

    def totals(self, fused: Numbers, similar: Numbers, *, brief: float) -> Numbers:
        """Return the scores by which the memories are ordered anew.

        `fused` and `similar`, the MaxSim scores, both have importance in them.
        """
        if self.brief_only and brief <= _HALF:
            return fused
        if self.mixing == "times":
            return fused + self.weight * similar
        return (1 - self.weight) * _scaled(fused) + self.weight * _scaled(similar)


def _scaled(scores: Numbers) -> Numbers:
    """Scale scores to 0 to 1; equal ones are 0."""
    spread = scores.max() - scores.min()
    scaled: Numbers = (scores - scores.min()) / spread if spread > 0 else np.zeros_like(scores)
    return scaled


@dataclass(frozen=True, slots=True)
class MmrSetting:
    """How much relevance counts, from which cosine on memories are alike, and from how many memories ten are chosen.

    `trade` is the lambda of MMR, from 0 to 1: with 1 nothing is changed.
    """

    trade: float
    floor: float
    depth: int

    def __str__(self) -> str:
        """Return the setting's name in tables."""
        return f"lambda {self.trade:g}, floor {self.floor:g}, from {self.depth}"


def maxsim_settings() -> Sequence[MaxSimSetting]:
    """Return all settings of MaxSim."""
    mixtures: list[tuple[Mixing, float]] = [("share", one) for one in SHARES] + [("times", one) for one in MULTIPLES]
    return [
        MaxSimSetting(*chosen, *mixture)
        for chosen, mixture in product(product(DEPTHS, TOKENS, STATES, (False, True)), mixtures)
    ]


def mmr_settings() -> Sequence[MmrSetting]:
    """Return all settings of MMR."""
    return [MmrSetting(*one) for one in product(TRADES, FLOORS, POOLS)]
