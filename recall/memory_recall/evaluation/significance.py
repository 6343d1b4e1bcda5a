"""Tells whether one retriever is better than another on the same questions, and by how much.

Two paired tests are used, because a question that is hard for one retriever is usually hard for the other. The
bootstrap gives an interval for the difference of the means. The randomisation test gives the probability of a
difference this large if it did not matter which retriever gave which answer. The same seed gives the same result.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 10_000
_INTERVAL = (0.025, 0.975)  # the quantiles that enclose 95 %
_CHUNK = 500  # resamples at a time, so that memory stays small whatever the number of questions


@dataclass(frozen=True, slots=True)
class Comparison:
    """The difference of two means (second minus first) with its 95 % interval and two-sided p-value."""

    difference: float
    low: float
    high: float
    p_value: float


def compare(
    first: Sequence[float], second: Sequence[float], *, seed: int = 0, resamples: int = RESAMPLES
) -> Comparison:
    """Compare the scores of two retrievers, which must be for the same questions in the same order."""
    if len(first) != len(second) or not first:
        raise ValueError("both retrievers must have answered the same questions, at least one")
    difference = np.asarray(second, dtype=np.float64) - np.asarray(first, dtype=np.float64)
    observed = float(difference.mean())
    chance = np.random.default_rng(seed)
    means, as_extreme = [], 0
    for start in range(0, resamples, _CHUNK):
        size = min(_CHUNK, resamples - start)
        means.append(difference[chance.integers(0, len(difference), (size, len(difference)))].mean(axis=1))
        flipped = (chance.choice((-1.0, 1.0), (size, len(difference))) * difference).mean(axis=1)
        as_extreme += int((np.abs(flipped) >= abs(observed) - 1e-12).sum())
    low, high = np.quantile(np.concatenate(means), _INTERVAL)
    return Comparison(observed, float(low), float(high), (as_extreme + 1) / (resamples + 1))


def interval_of_mean(scores: Sequence[float], *, seed: int = 0, resamples: int = RESAMPLES) -> tuple[float, float]:
    """Return the 95 % interval of the mean over questions, by the percentile bootstrap (Efron, 1979)."""
    values = np.asarray(scores, dtype=np.float64)
    chance = np.random.default_rng(seed)
    means = [
        values[chance.integers(0, len(values), (min(_CHUNK, resamples - start), len(values)))].mean(axis=1)
        for start in range(0, resamples, _CHUNK)
    ]
    low, high = np.quantile(np.concatenate(means), _INTERVAL)
    return float(low), float(high)
