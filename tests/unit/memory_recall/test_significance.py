"""Significance: no difference where there is none, a clear one where there is, and the same answer every time."""

import numpy as np
import pytest

from memory_recall.evaluation.significance import compare


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
