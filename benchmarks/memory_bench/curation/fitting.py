"""Fits the weights and the threshold of `memory curate` on some pairs, so that they can be judged on others.

The weights are those of a logistic regression. The threshold is chosen by scores that were computed without the chain
that they judge, since the scores of the pairs that the weights were fitted to are too good.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from memory_bench.curation.truth import PairOfIds, Truth
from memory_bench.harness.regression import Array, logistic, regress
from memory_recall.contrib.curation.decisions import Action, Judgement, choose
from memory_recall.contrib.curation.features import Features, Frequencies, Pair

Chosen = npt.NDArray[np.bool_]
"""One boolean for each pair."""

NAMES = tuple(one.name for one in fields(Features))
_FOLDS = 5
_LEAST_THRESHOLD = 0.02


@dataclass(frozen=True, slots=True)
class Fit:
    """A bias, one weight for each of `NAMES`, and the threshold of the score (0 to 1)."""

    bias: float
    weights: Array
    threshold: float

    def scores(self, features: Array) -> Array:
        """Return the scores (0 to 1) of pairs, given an array of shape (pairs, features)."""
        return logistic(self.bias + features @ self.weights)


@dataclass(frozen=True, slots=True)
class Material:
    """All pairs that were read, their features in an array of shape (pairs, features), and what is true of them."""

    pairs: Sequence[Pair]
    features: Array
    frequencies: Frequencies
    truth: Truth

    @property
    def ids(self) -> list[PairOfIds]:
        """The ids of the pairs, which are integers in the data sets."""
        return [(int(older), int(newer)) for older, newer in (pair.ids for pair in self.pairs)]

    @property
    def labels(self) -> Array:
        """One for each pair of the closure, and zero for all others."""
        return np.array([pair in self.truth.closure for pair in self.ids], dtype=np.float64)


def as_array(features: Sequence[Features]) -> Array:
    """Return features as an array of shape (pairs, features), in the order of `NAMES`."""
    return np.array([[getattr(one, name) for name in NAMES] for one in features], dtype=np.float64)


def fit(material: Material, chosen: Chosen) -> Fit:
    """Fit the weights and the threshold on the chosen pairs.

    The threshold is the one with which the number of found pairs exceeds that of wrong pairs by most.
    """
    folds = np.array([material.truth.chains.get(newer, newer) // 2 % _FOLDS for _, newer in material.ids])
    scores = np.zeros(len(material.pairs))
    for fold in range(_FOLDS):
        judged, learnt = chosen & (folds == fold), chosen & (folds != fold)
        bias, weights = regress(material.features[learnt], material.labels[learnt])
        scores[judged] = logistic(bias + material.features[judged] @ weights)
    threshold = _best_threshold(material, scores, chosen)
    bias, weights = regress(material.features[chosen], material.labels[chosen])
    return Fit(bias, weights, threshold)


def _best_threshold(material: Material, scores: Array, chosen: Chosen) -> float:
    candidates = sorted({float(one) for one in scores[chosen] if one >= _LEAST_THRESHOLD})
    tallied = [(tally(material, proposals(material, scores, chosen, one)), one) for one in candidates]
    return max((found - wrong, one) for (found, wrong), one in tallied)[1]


def proposals(material: Material, scores: Array, chosen: Chosen, threshold: float) -> list[Judgement]:
    """Return what is proposed for the chosen pairs with these scores, without the pairs that stay as they are."""
    numbers = [int(one) for one in np.flatnonzero(chosen)]
    judged = choose(
        [material.pairs[one] for one in numbers],
        [float(scores[one]) for one in numbers],
        material.frequencies,
        threshold=threshold,
    )
    return [one for one in judged if one.action is not Action.ADD]


def tally(material: Material, proposed: Sequence[Judgement]) -> tuple[int, int]:
    """Return how many proposed pairs are restatements of the data set, and how many are none at all.

    A pair that is none of the set's, but was judged to be a restatement, counts as neither.
    """
    ids = [one.pair.ids for one in proposed]
    truth = material.truth
    found = sum(pair in truth.closure for pair in ids)
    return found, sum(pair not in truth.closure | truth.judged for pair in ids)


def fitted_halves(material: Material, *, seed: int | None = None) -> Iterator[tuple[Chosen, Fit, Array]]:
    """Yield for each half its pairs, the fit to the other half, and the scores of all pairs by that fit."""
    half = np.array(material.truth.halves(material.ids, seed=seed))
    for judged in (0, 1):
        fitted = fit(material, half != judged)
        yield half == judged, fitted, fitted.scores(material.features)
