"""Which least relevance is recommended, and what each level keeps of the owner's memories and lets through."""

import pytest

from memory_recall.evaluation.relevance_levels import Rated, TunedLevel, choose_level


def answers(*relevances: float) -> list[Rated]:
    return [Rated(relevance, by_words=False, relevant=True) for relevance in relevances]


def in_vain(*relevances: float) -> list[Rated]:
    return [Rated(relevance, by_words=False) for relevance in relevances]


def chosen(questions: list[list[Rated]], prompts: list[list[Rated]]) -> TunedLevel:
    tuned = choose_level(questions, prompts)
    assert tuned is not None
    return tuned


def test_the_highest_level_that_keeps_95_in_100_is_recommended() -> None:
    """One of twenty below a level is still .95; two are not."""
    tuned = chosen([answers(0.25), *[answers(0.4)] * 19], [in_vain(0.1)])
    assert tuned.recommended == 0.3
    tuned = chosen([answers(0.25), answers(0.25), *[answers(0.4)] * 18], [in_vain(0.1)])
    assert tuned.recommended == 0.2


def test_everything_is_recommended_where_every_level_loses_too_much() -> None:
    assert chosen([answers(0.01), answers(0.9)], [in_vain(0.1)]).recommended == "everything"


def test_only_relevant_memories_count_as_kept() -> None:
    tuned = chosen([[*answers(0.9), *in_vain(0.01, 0.02)]], [in_vain(0.1)])
    assert (tuned.relevant_memories, tuned.recommended) == (1, "certain")


def test_prompts_without_an_answer_are_empty_or_get_memories_in_vain() -> None:
    tuned = chosen([answers(0.9)], [in_vain(0.6, 0.25, 0.01), in_vain(0.12), in_vain()])
    shares = {one.level: (one.empty, one.in_vain) for one in tuned.levels}
    assert shares["everything"] == (pytest.approx(1 / 3), pytest.approx(4 / 3))
    assert shares[0.1] == (pytest.approx(1 / 3), 1.0)
    assert shares["likely"] == (pytest.approx(2 / 3), pytest.approx(2 / 3))
    assert shares["certain"] == (1.0, 0.0)


def test_levels_are_in_order_of_what_they_demand() -> None:
    tuned = chosen([answers(0.9)], [in_vain(0.1)])
    assert [one.level for one in tuned.levels] == ["everything", 0.05, 0.1, "likely", 0.2, 0.3, 0.5, "certain"]
    kept = [one.kept for one in chosen([answers(0.03, 0.15, 0.25, 0.6)], [[]]).levels]
    assert kept == sorted(kept, reverse=True)


def test_likely_demands_less_of_a_memory_that_words_alone_judge() -> None:
    kept = {one.level: one.kept for one in chosen([[Rated(0.15, by_words=True, relevant=True)]], [[]]).levels}
    assert (kept["likely"], kept[0.2]) == (1.0, 0.0)


def test_the_lower_bound_of_a_share_is_wilson_s() -> None:
    """All memories of 73 questions are the fewest whose lower bound is .95, rounded to three digits."""
    bounds = {count: chosen([answers(0.9)] * count, [[]]).levels[0].kept_at_least for count in (30, 72, 73)}
    assert bounds[30] == pytest.approx(0.8865, abs=1e-4)
    assert bounds[72] < 0.9495 < bounds[73]


def test_several_memories_of_a_question_make_the_lower_bound_no_surer() -> None:
    """They are kept or lost together for the most part, as their relevance is that of one recall."""
    one, five = (chosen([answers(*[0.9] * each)] * 20, [[]]).levels[0] for each in (1, 5))
    assert one.kept_at_least == five.kept_at_least


def test_without_a_relevant_memory_no_level_is_chosen() -> None:
    assert choose_level([in_vain(0.9)], [in_vain(0.1)]) is None
