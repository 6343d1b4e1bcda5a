"""Chooses settings of MaxSim and of MMR on some sets, to be judged on another, by the rules of ADR 27."""

from collections.abc import Sequence

import numpy as np

from memory_bench.second_stage.diversity import DiversityScores
from memory_bench.second_stage.reranking import MaxSimScores
from memory_bench.studies.gains import bounded, cheapest_of_best, mean_over_sets


def choose_maxsim(sets: Sequence[MaxSimScores], prompts: Sequence[MaxSimScores]) -> tuple[int | None, int]:
    """Return the place of the admissible setting that gains most in both measures together, and how many there are.

    The place is None if no admissible setting gains.
    """
    settings = sets[0].settings

    def cost(place: int) -> tuple[object, ...]:
        one = settings[place]
        return one.depth, one.states == "exact", one.mixing == "times", one.weight, place

    allowed = bounded(sets, prompts)
    wanted = mean_over_sets(sets).sum(axis=1)
    return cheapest_of_best(allowed, wanted, cost)


def choose_mmr(sets: Sequence[DiversityScores], prompts: Sequence[DiversityScores]) -> tuple[int | None, int]:
    """Return the place of the admissible setting that makes the ten least alike, and how many are admissible.

    The place is None if no admissible setting makes them less alike.
    """
    settings = sets[0].settings

    def cost(place: int) -> tuple[object, ...]:
        one = settings[place]
        return -one.trade, -one.floor, one.depth, place

    wanted = np.mean([drop_in_likeness(one) for one in sets], axis=0)
    return cheapest_of_best(bounded(sets, prompts), wanted, cost)


def drop_in_likeness(one: DiversityScores) -> "np.typing.NDArray[np.float64]":
    """Return how much the likeness of the ten falls in each setting, as the mean over the set's questions."""
    drop: np.typing.NDArray[np.float64] = (one.plain_likeness - one.likeness).mean(axis=1)
    return drop
