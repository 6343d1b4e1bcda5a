"""Relevance grows with meaning and words, stays from 0 to 1, and needs no cosine."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_recall.errors import InvalidInput
from memory_recall.search.relevance import (
    LEVELS,
    LeastRelevance,
    RelevanceScale,
    least_relevance_named,
    least_relevance_of,
)

COSINES = st.floats(-1, 1)
USUAL = st.floats(-1, 0.999)
SCORES = st.floats(0, 100)


def relevance(cosine: float | None, words: float | None, scale: RelevanceScale) -> float:
    return scale.relevance_of({"dense_score": cosine, "lexical_score": words})


SCALES = st.builds(RelevanceScale, COSINES, SCORES, st.one_of(SCORES, st.none()), USUAL)


@given(st.one_of(COSINES, st.none()), st.one_of(SCORES, st.none()), SCALES)
def test_whatever_the_scores_it_is_from_0_to_1(
    cosine: float | None, words: float | None, scale: RelevanceScale
) -> None:
    """A usual cosine near 1 leaves no way to go, a reach of nearly nothing makes every word much."""
    assert 0 <= relevance(cosine, words, scale) <= 1


@given(COSINES, COSINES, SCORES, SCORES, USUAL)
def test_of_two_memories_the_nearer_with_more_of_the_words_is_not_less_relevant(
    one: float, other: float, few: float, many: float, usual: float
) -> None:
    low, high = sorted((one, other))
    few, many = sorted((few, many))
    scale = RelevanceScale(high, many, 100.0, usual)
    assert relevance(low, few, scale) <= relevance(high, many, scale)


def test_what_is_as_near_as_anything_usually_is_and_has_no_word_is_hardly_relevant() -> None:
    assert relevance(0.3, None, RelevanceScale(0.3, None, None, 0.3)) < 0.01
    assert relevance(0.9, 3.0, RelevanceScale(0.9, 3.0, 3.0, 0.3)) > 0.99


@pytest.mark.parametrize(
    ("cosine", "scale"),
    [
        (None, RelevanceScale(0.9, 2.0, 2.0, 0.3)),
        (0.9, RelevanceScale(None, 2.0, 2.0, 0.3)),
        (0.9, RelevanceScale(0.9, 2.0, 2.0, None)),
    ],
    ids=["of the memory", "of the best memory", "the usual one"],
)
def test_without_one_of_the_cosines_words_alone_decide(cosine: float | None, scale: RelevanceScale) -> None:
    alone = relevance(cosine, 2.0, scale)
    assert alone == relevance(None, 2.0, RelevanceScale(None, 2.0, 2.0))
    assert 0.9 < alone < 0.999


def test_likely_asks_less_of_words_alone_since_they_tell_less() -> None:
    scale = RelevanceScale(None, 1.2, 4.0, None)
    row = {"dense_score": None, "lexical_score": 1.2}
    rated = {**row, "relevance": scale.relevance_of(row)}
    assert 0.1 < rated["relevance"] < 0.15
    likely = LEVELS["likely"]
    assert likely is not None
    assert scale.suffices(rated, likely)
    assert not scale.suffices(rated, LeastRelevance(0.15, 0.15))


@pytest.mark.parametrize(("text", "level"), [("likely", "likely"), ("0", 0.0), ("1", 1.0), ("0.35", 0.35)])
def test_a_text_names_a_level_or_a_number(text: str, level: str | float) -> None:
    assert least_relevance_named(text) == level


@pytest.mark.parametrize("text", ["", "some", "-0.1", "1.01", "nan", "inf", "Likely"])
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="no least relevance"):
        least_relevance_named(text)


def test_everything_demands_nothing_and_a_number_itself() -> None:
    assert least_relevance_of("everything") is None
    assert least_relevance_of(0.4) == LeastRelevance(0.4, 0.4)
