"""Significance: no difference where there is none, a clear one where there is, and the same answer every time.

The bounds of a drop hold as often as they claim to.
"""

import numpy as np
import pytest

from memory_recall.evaluation.significance import bound_drop, compare, questions_needed


def test_equal_scores_are_no_difference() -> None:
    """The interval is a point and nothing is unlikely."""
    found = compare([0.5, 1.0, 0.0], [0.5, 1.0, 0.0])
    assert (found.difference, found.low, found.high, found.p_value) == (0.0, 0.0, 0.0, 1.0)


def test_a_clear_improvement_is_significant() -> None:
    """Every question got better."""
    found = compare([0.0] * 50, [0.5] * 50)
    assert found.difference == 0.5
    assert found.p_value < 0.001
    assert found.low > 0


def test_noise_is_not_significant_more_often_than_it_should_be() -> None:
    """Of a hundred comparisons of noise with noise, about five fall below five per cent."""
    chance = np.random.default_rng(1)
    values = [
        compare(chance.random(60).tolist(), chance.random(60).tolist(), seed=seed, resamples=500).p_value
        for seed in range(100)
    ]
    assert 1 <= sum(value < 0.05 for value in values) <= 12


def test_the_same_seed_gives_the_same_answer() -> None:
    """A report can be made again."""
    first, second = [0.1, 0.9, 0.4, 0.0], [0.2, 0.8, 0.9, 0.1]
    assert compare(first, second, seed=3) == compare(first, second, seed=3)


def test_different_questions_cannot_be_compared() -> None:
    """The tests are paired."""
    with pytest.raises(ValueError, match="same questions"):
        compare([1.0], [1.0, 0.0])


def _shares(mean: float) -> tuple[float, float]:
    """Return the shares of 10,000 simulated swaps that pass, and that are refused, at a tolerance of 0.05.

    Each has 400 questions, whose answers are lost or won with a standard deviation of 0.25 and the given mean drop.
    """
    changed = 0.25**2 + mean**2
    lost, won = (changed + mean) / 2, (changed - mean) / 2
    chance, passed, refused = np.random.default_rng(23), 0, 0
    for _ in range(10):  # blocks that fit into the processor's cache
        drawn = chance.random((1000, 400), dtype=np.float32)
        bounds = bound_drop((drawn < lost).astype(np.int8) - (drawn > 1 - won))
        passed += int((bounds.high <= 0.05).sum())
        refused += int((bounds.low > 0.05).sum())
    return passed / 10_000, refused / 10_000


def test_models_of_equal_recall_pass() -> None:
    """At least 95 of 100 do, and hardly any is refused by mistake."""
    passed, refused = _shares(0.0)
    assert passed >= 0.95
    assert refused <= 0.001


def test_models_that_are_worse_by_the_tolerance_pass_or_are_refused_no_more_often_than_the_confidence_permits() -> None:
    """Each of both happens to six of 100 at most; the others are undecided."""
    passed, refused = _shares(0.05)
    assert passed <= 0.06
    assert refused <= 0.06


def test_the_bounds_of_a_drop_and_of_the_opposite_drop_mirror_each_other() -> None:
    """Neither retriever is preferred."""
    drops = np.array([1.0, 0.5, 0.0, 0.0, -0.25, 0.0])
    forth, back = bound_drop(drops), bound_drop(-drops)
    assert (forth.low, forth.high) == (pytest.approx(-back.high), pytest.approx(-back.low))
    assert forth.low < forth.mean < forth.high


def test_equal_answers_bound_a_drop_the_more_narrowly_the_more_there_are() -> None:
    """Ten equal answers do not show that the others are as good, a hundred do."""
    high = [float(bound_drop(np.zeros(count)).high) for count in (1, 10, 100, 1000)]
    assert high == sorted(high, reverse=True)
    assert high[2] < 0.05 < high[1]


def test_a_drop_without_questions_cannot_be_bounded() -> None:
    """There is nothing to bound."""
    with pytest.raises(ValueError, match="at least one question"):
        bound_drop([])


def test_the_closer_a_drop_is_to_the_tolerance_the_more_questions_are_needed() -> None:
    """As in the tables for non-inferiority trials: (1.645 + 0.842)^2 times the squared ratio, rounded up."""
    assert questions_needed(0.25, 0.05) == 155
    assert questions_needed(0.25, 0.025) == 619
    assert questions_needed(0.25, 0.0) == float("inf")
