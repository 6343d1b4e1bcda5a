"""Chooses a setting on some sets and judges it on another, and corrects p values for the number of settings (ADR 26).

A setting is admissible if no set that chooses loses by it. Of the admissible ones, the one with the greatest gain on
multi-hop questions is chosen, but the least weight of those that gain almost as much. The p value of a gain is the
share of random flips of signs with which the greatest gain of all settings is at least as great: P. H. Westfall and
S. S. Young, Resampling-based multiple testing, Wiley, 1993.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memory_bench.graph.sets import MEASURES, GraphScores
from memory_recall.evaluation.significance import RESAMPLES

MULTIHOP = "multihop"
LARGEST_LOSS: Mapping[str, float] = {"recall@10": 0.002, "ndcg@10": 0.003}
"""By how much the mean of a set may fall."""
ALMOST = 0.002  # less of a gain is given up for a smaller weight
_ROUNDING = 1e-9
_ROUNDING_OF_SUMS = 1e-7  # of sums in single precision
_CHUNK = 500

RECALL, NDCG = (MEASURES.index(one) for one in ("recall@10", "ndcg@10"))


@dataclass(frozen=True, slots=True)
class Fold:
    """What all other sets choose for the set `judged`.

    `setting` is the place of the chosen setting, or None if none was admissible: then the graph leg has no weight.
    """

    judged: str
    setting: int | None
    admissible: int


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
    allowed: NDArray[np.bool_] = pooled_gains(sets)[:, :, NDCG].mean(axis=1) >= -_ROUNDING
    for one in (*sets, *prompts):
        means = one.gains.mean(axis=1)
        for place, measure in enumerate(MEASURES):
            allowed &= means[:, place] >= -LARGEST_LOSS[measure] - _ROUNDING
    return allowed


def choose(sets: Sequence[GraphScores], prompts: Sequence[GraphScores] = ()) -> tuple[int | None, int]:
    """Return the place of the chosen setting, or None, and the number of admissible settings."""
    allowed = admissible(sets, prompts) if has_multihop(sets) else np.zeros(0, dtype=bool)
    if not allowed.any():
        return None, 0
    gains = pooled_gains(sets)[:, :, RECALL].mean(axis=1)
    greatest = gains[allowed].max()
    if greatest <= 0:
        return None, int(allowed.sum())
    near = [int(place) for place in np.flatnonzero(allowed & (gains >= greatest - ALMOST - _ROUNDING))]
    weightings = [weighting for _, weighting in sets[0].settings]
    best = min(near, key=lambda place: (weightings[place].weight, -weightings[place].kept, -gains[place], place))
    return best, int(allowed.sum())


def nested(sets: Sequence[GraphScores], prompts: Sequence[GraphScores] = ()) -> list[Fold]:
    """Return one fold for each set, which all others choose for; `prompts` are of the same sets."""
    return [Fold(one.name, *choose(without(sets, one.name), without(prompts, one.name))) for one in sets]


def without(sets: Sequence[GraphScores], name: str) -> list[GraphScores]:
    """Return all sets but the one of this name."""
    return [one for one in sets if one.name != name]


def gains_of(one: GraphScores, setting: int | None) -> NDArray[np.float64]:
    """Return the gains of one setting on a set, shape (questions, measures); zeros for None."""
    if setting is None:
        return np.zeros_like(one.plain)
    chosen: NDArray[np.float64] = one.gains[setting].astype(np.float64)
    return chosen


def greatest_by_chance(gains: NDArray[np.float32], *, seed: int) -> NDArray[np.float32]:
    """Return the greatest absolute mean gain of all settings for each random flip of signs, shape (10,000,).

    `gains` has the shape (settings, questions) and holds one measure's gains on the same questions.
    """
    chance = np.random.default_rng(seed)
    distinct = np.unique(gains, axis=0).T
    found = []
    for start in range(0, RESAMPLES, _CHUNK):
        signs = chance.choice(np.array((-1, 1), dtype=np.float32), (min(_CHUNK, RESAMPLES - start), len(distinct)))
        found.append(np.abs(signs @ distinct).max(axis=1) / len(distinct))
    return np.concatenate(found)


def corrected_p(by_chance: NDArray[np.float32], observed: float) -> float:
    """Return the p value (two-sided) of a mean gain, given the greatest gains by chance."""
    return float(((by_chance >= abs(observed) - _ROUNDING_OF_SUMS).sum() + 1) / (len(by_chance) + 1))
