"""Tells whether one retriever is better than another on the same questions, and by how much.

Two paired tests are used, because a question that is hard for one retriever is usually hard for the other. The
bootstrap gives an interval for the difference of the means. The randomisation test gives the probability of a
difference this large if it did not matter which retriever gave which answer. The same seed gives the same result.

`bound_drop` serves tests of non-inferiority: it bounds from above and from below how much worse the second retriever
is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

RESAMPLES = 10_000
_INTERVAL = (0.025, 0.975)  # the quantiles that enclose 95 %
_CHUNK = 500  # resamples at a time, so that memory stays small whatever the number of questions
_CONFIDENCE = NormalDist().inv_cdf(0.95)  # of each one-sided bound
_POWER = NormalDist().inv_cdf(0.80)  # of a repetition with the number of questions that `questions_needed` returns
_SYMMETRIC = 1e-9  # below this skewness the transformation is the identity but for rounding


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


def interval_of_mean(scores: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the mean over questions, by the percentile bootstrap (Efron, 1979)."""
    values = np.asarray(scores, dtype=np.float64)
    chance = np.random.default_rng(0)
    means = [
        values[chance.integers(0, len(values), (min(_CHUNK, RESAMPLES - start), len(values)))].mean(axis=1)
        for start in range(0, RESAMPLES, _CHUNK)
    ]
    low, high = np.quantile(np.concatenate(means), _INTERVAL)
    return float(low), float(high)


@dataclass(frozen=True, slots=True)
class DropBounds:
    """The mean drop of a score, its one-sided 95 % bounds, and the standard deviation of a question's drop.

    A drop is the first retriever's score minus the second's, -1 to 1. Each field has one number for each sample.
    """

    mean: npt.NDArray[np.float64]
    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]
    deviation: npt.NDArray[np.float64]


def bound_drop(drops: npt.ArrayLike) -> DropBounds:
    """Return the one-sided 95 % bounds of the mean drop, for samples of shape (..., questions) with drops of -1 to 1.

    Most questions have a drop of 0 and a few have one near -1 or 1, so the usual bounds (mean and normal quantile of
    the standard error) hold too rarely: where the true drop is 0.05, they call it smaller 6.5 % of the time. Two
    published corrections are combined. To each sample one question with a drop of 1 and one with a drop of -1 are
    added, because a few equal answers do not prove that all answers are equal (D. G. Bonett and R. M. Price, Adjusted
    Wald confidence interval for a difference of binomial proportions based on paired data, Journal of Educational and
    Behavioral Statistics 37, 2012). The skewness of the drops is removed from the statistic by the monotone cubic
    transformation of P. Hall (On the removal of skewness by transformation, Journal of the Royal Statistical Society B
    54, 1992), whose inverse is used here. `mean` and `deviation` are of the sample itself.

    Raises:
        ValueError: a sample has no question.
    """
    sample = np.asarray(drops, dtype=np.float64)
    if sample.ndim == 0 or sample.shape[-1] == 0:
        raise ValueError("a drop can be bounded only with at least one question")
    added = np.broadcast_to([1.0, -1.0], (*sample.shape[:-1], 2))
    adjusted = np.concatenate([sample, added], axis=-1)
    count = adjusted.shape[-1]
    centre = adjusted.mean(axis=-1)
    deviations = adjusted - centre[..., None]
    squares = deviations * deviations
    deviation = np.sqrt(squares.sum(axis=-1) / (count - 1))
    skewness = (squares * deviations).mean(axis=-1) / deviation**3 / np.sqrt(count)
    error = deviation / np.sqrt(count)
    return DropBounds(
        mean=sample.mean(axis=-1),
        low=centre - error * _inverse_hall(_CONFIDENCE, skewness),
        high=centre - error * _inverse_hall(-_CONFIDENCE, skewness),
        deviation=sample.std(axis=-1),
    )


def _inverse_hall(quantile: float, skewness: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Invert Hall's transformation; `skewness` is the sample's skewness divided by the root of its size."""
    skewed = np.abs(skewness) > _SYMMETRIC
    divisor = np.where(skewed, skewness, 1.0)
    transformed = 3 * (np.cbrt(1 + divisor * (quantile - divisor / 6)) - 1) / divisor
    return np.where(skewed, transformed, quantile)


def questions_needed(deviation: float, distance: float) -> float:
    """Return how many questions suffice to show, with a power of 80 %, on which side of a tolerance a mean drop is.

    `deviation` is the standard deviation of a question's drop, `distance` how far the mean drop is from the tolerance.
    The formula is that of non-inferiority trials with a normal outcome: S. A. Julious, Sample sizes for clinical trials
    with normal data, Statistics in Medicine 23, 2004. If the distance is 0, the result is infinite.
    """
    return float(np.ceil(((_CONFIDENCE + _POWER) * deviation / distance) ** 2)) if distance else float("inf")
