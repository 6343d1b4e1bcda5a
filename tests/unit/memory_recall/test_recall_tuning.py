"""Choosing a fusion: only what is reliably better is recommended, and gains are those of held-out questions."""

import numpy as np
import pytest

from memory_recall.errors import InvalidInput
from memory_recall.evaluation.measures import Scores
from memory_recall.evaluation.tuning import LEAST_QUESTIONS, choose, settings
from memory_recall.search.fusion import Fusion

DEFAULT = Fusion()
OTHER = Fusion(method="rrf", k=1)


def scored(values: list[float]) -> list[Scores]:
    return [Scores(value, value, value, value) for value in values]


def noise(count: int, mean: float, seed: int) -> list[float]:
    drawn = np.random.default_rng(seed).normal(mean, 0.2, count)
    return [float(one) for one in drawn.clip(0, 1)]


def test_a_setting_that_is_better_everywhere_is_recommended_with_its_gain() -> None:
    """Every fold chooses it, so the held-out gain is its whole advantage."""
    found = choose({DEFAULT: scored([0.4] * 60), OTHER: scored([0.6] * 60)}, DEFAULT)
    assert (found.chosen, found.recommended) == (OTHER, True)
    assert found.ndcg_10.difference == pytest.approx(0.2)
    assert found.recall_10.low == pytest.approx(0.2)


def test_the_luckiest_of_many_equal_settings_is_not_recommended() -> None:
    """Forty settings that differ by chance alone: the best looks better, its held-out gain does not."""
    tried = {Fusion(alpha=number / 100): scored(noise(40, 0.5, number)) for number in range(40)}
    tried[DEFAULT] = scored(noise(40, 0.5, 99))
    found = choose(tried, DEFAULT)
    best = max(tried, key=lambda one: sum(score.ndcg_10 for score in tried[one]))
    apparent = (sum(one.ndcg_10 for one in tried[best]) - sum(one.ndcg_10 for one in tried[DEFAULT])) / 40
    assert found.ndcg_10.difference < apparent
    assert (found.chosen, found.recommended) == (DEFAULT, False)


def test_too_few_questions_are_refused_by_number() -> None:
    """An interval over a handful of questions would say nothing."""
    few = scored([0.5] * (LEAST_QUESTIONS - 1))
    with pytest.raises(InvalidInput, match=str(LEAST_QUESTIONS - 1)):
        choose({DEFAULT: few, OTHER: few}, DEFAULT)


def test_settings_begin_with_the_default_and_try_each_once() -> None:
    """The default is what a gain is measured against."""
    tried = settings(Fusion())
    assert tried[0] == Fusion()
    assert len(set(tried)) == len(tried)
    assert {one.method for one in tried} == {"convex", "rrf"}
