"""Chooses a setting of the graph leg on some sets, to be judged on another (ADR 26).

A setting is admissible if no set that chooses loses by it. Of the admissible ones, the one with the greatest gain on
multi-hop questions is chosen, but the least weight of those that gain almost as much.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from memory_bench.graph.sets import GraphScores
from memory_bench.studies.gains import ROUNDING, Fold, bounded, folds
from memory_bench.studies.questions import NDCG, RECALL

MULTIHOP = "multihop"
ALMOST = 0.002  # less of a gain is given up for a smaller weight


def multihop(one: GraphScores) -> NDArray[np.bool_]:
    """Return which of a set's questions are multi-hop questions."""
    return np.array([stratum == MULTIHOP for stratum in one.strata])


def has_multihop(sets: Sequence[GraphScores]) -> bool:
    """Return whether any of the sets has a multi-hop question."""
    return any(multihop(one).any() for one in sets)


def pooled_gains(sets: Sequence[GraphScores]) -> NDArray[np.float32]:
    """Return the gains on the multi-hop questions of all sets, shape (settings, questions, measures)."""
    return np.concatenate([one.gains[:, multihop(one)] for one in sets], axis=1)


def admissible(sets: Sequence[GraphScores], prompts: Sequence[GraphScores] = ()) -> NDArray[np.bool_]:
    """Return which settings make no set worse than allowed, and keep nDCG@10 on multi-hop questions.

    `prompts` holds the scores of questions inside prompts, which may not become worse either.
    """
    keeps: NDArray[np.bool_] = pooled_gains(sets)[:, :, NDCG].mean(axis=1) >= -ROUNDING
    return keeps & bounded(sets, prompts)


def choose(sets: Sequence[GraphScores], prompts: Sequence[GraphScores] = ()) -> tuple[int | None, int]:
    """Return the place of the chosen setting, or None, and the number of admissible settings."""
    allowed = admissible(sets, prompts) if has_multihop(sets) else np.zeros(0, dtype=bool)
    if not allowed.any():
        return None, 0
    gains = pooled_gains(sets)[:, :, RECALL].mean(axis=1)
    greatest = gains[allowed].max()
    if greatest <= 0:
        return None, int(allowed.sum())
    near = [int(place) for place in np.flatnonzero(allowed & (gains >= greatest - ALMOST - ROUNDING))]
    weightings = [weighting for _, weighting in sets[0].settings]
    best = min(near, key=lambda place: (weightings[place].weight, -weightings[place].kept, -gains[place], place))
    return best, int(allowed.sum())


def nested(sets: Sequence[GraphScores], prompts: Sequence[GraphScores] = ()) -> list[Fold]:
    """Return one fold for each set, which all others choose for; `prompts` are of the same sets."""
    return folds(sets, prompts, choose)
