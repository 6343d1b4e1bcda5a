"""What a language model may change about the pairs that the rules have found."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from memory_recall.curation import model_answers
from memory_recall.curation.decisions import Decider
from memory_recall.curation.features import Pair
from memory_recall.curation.judging_examples import SHOWN, TRIAL
from memory_recall.curation.model_answers import WEIGHT, evidence, question_about
from memory_recall.errors import EmbedderUnavailable, JudgeUnfit
from memory_recall.retrying import Backoff
from tests.unit.memory_recall.judging_model import NO, RIGHT, YES, Model, judged, lines, pair, scored


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_answers, "_BACKOFF", Backoff(first=0.001, longest=0.001, jitter=0))


@pytest.mark.promise("judge-misled-for-own-pairs")
@pytest.mark.parametrize(
    ("tokens", "odds"),
    [
        ({"Yes": 0.6, "No": 0.3, "yes": 0.05}, 0.605 / 0.305),
        ({" Yes": 0.4, "Yes": 0.2, "No": 0.2}, 0.605 / 0.205),
        ({"Yes": 1.0}, 1.005 / 0.005),
        ({"No": 0.5}, 0.005 / 0.505),
        ({"Yes": 0.3, "No": 0.19, "The": 0.5}, None),
        ({"Yesterday": 0.9, "None": 0.1}, None),
        ({}, None),
    ],
)
def test_an_answer_counts_by_how_much_likelier_yes_is_than_no_and_not_if_it_is_neither(
    tokens: Mapping[str, float], odds: float | None
) -> None:
    """Within bounds, so that one answer cannot outweigh every rule."""
    assert evidence(tokens, None) == (None if odds is None else pytest.approx(WEIGHT * math.log(odds)))


def test_the_model_sees_the_texts_and_the_dates_of_both_memories_and_nothing_else() -> None:
    asked = question_about(pair(1, 3))
    assert asked == "OLDER NOTE (2026-01-02): note 1\n\nNEWER NOTE (2026-01-04): note 3"


def test_no_example_of_the_trial_is_shown_with_its_answer() -> None:
    """Otherwise a model would pass by copying; and there are as many of each kind."""
    texts = [{one.older.text, one.newer.text} for one in (*SHOWN, *TRIAL)]
    assert len(set.union(*texts)) == 2 * len(texts)
    for examples in (SHOWN, TRIAL):
        assert 2 * sum(one.restates for one in examples) == len(examples)


def worth(answer: Mapping[str, float]) -> float:
    """What an answer of Yes or No adds to the log-odds of the rules."""
    found = evidence(answer, None)
    assert found is not None
    return found


async def test_a_pair_s_score_is_the_rules_and_how_much_surer_the_model_is_of_it_than_on_average() -> None:
    """The rules alone score a pair whose answer is no Yes or No, and one that is too unlikely to be asked about."""
    found = [scored(1, 11, 0.9), scored(2, 12, 0.8), scored(3, 13, 0.15), scored(4, 14, 0.09), scored(5, 15, 0.3)]
    answers = {"note 11": NO, "note 12": {"I": 1.0}, "note 13": YES, "note 15": NO}
    model = Model(answers.__getitem__)
    result = await judged(model, *found)
    mean = sum(worth(one) for one in RIGHT.values()) / len(RIGHT)  # of the trial, as few pairs are asked about
    logit = math.log(0.15 / 0.85) + worth(YES) - mean
    assert lines(result) == [
        (3, 13, True, Decider.MODEL),
        (2, 12, True, Decider.RULES),
        (1, 11, False, Decider.MODEL),
        (5, 15, False, Decider.MODEL),
    ]
    assert result.judgements[0].score == pytest.approx(1 / (1 + math.exp(-logit)))
    assert (result.judged, result.unusable, result.not_judged, result.changed, result.left_out) == (3, 1, 0, 2, 0)
    assert sorted(model.asked) == sorted(answers)


@pytest.mark.parametrize("leaning", [YES, NO, {"Yes": 0.6, "No": 0.4}])
async def test_a_model_that_leans_towards_one_answer_changes_nothing_by_that(leaning: Mapping[str, float]) -> None:
    """What it says of all pairs alike says nothing about one."""
    found = [scored(number, 100 + number, 0.2 + number / 50) for number in range(30)]
    result = await judged(Model(lambda _newer: leaning), *found)
    assert [round(one.score, 6) for one in result.judgements] == [round(score, 6) for _, score in reversed(found)]
    assert (result.judged, result.changed) == (30, 0)


async def test_a_memory_has_one_successor_the_one_with_the_best_score_of_both() -> None:
    """Here the model is sure of the second one by the rules."""
    found = [scored(1, 11, 0.9), scored(1, 12, 0.6)]
    result = await judged(Model(lambda newer: YES if newer == "note 12" else NO), *found)
    assert lines(result) == [(1, 12, True, Decider.MODEL), (1, 11, False, Decider.MODEL)]


UNFIT: dict[str, Mapping[str, Any]] = {
    "always the same": dict.fromkeys(RIGHT, YES),
    "the wrong way round": {question: NO if answer is YES else YES for question, answer in RIGHT.items()},
    "no word of it": RIGHT | {next(iter(RIGHT)): {"Well": 0.9, "Yes": 0.1}},
}


@pytest.mark.parametrize("trial", UNFIT.values(), ids=UNFIT)
async def test_a_model_that_does_not_tell_the_examples_apart_is_an_error_and_is_sent_no_memory(
    trial: Mapping[str, Any],
) -> None:
    model = Model(lambda _newer: YES, trial)
    with pytest.raises(JudgeUnfit, match="No memory was sent"):
        await judged(model, scored(1, 2, 0.9))
    assert (model.tried, model.asked) == (len(TRIAL), [])


async def test_a_model_is_not_asked_at_all_where_no_pair_is_likely_enough() -> None:
    model = Model(lambda _newer: YES)
    result = await judged(model, scored(1, 2, 0.05))
    assert (model.tried, model.asked, result.judgements, result.judged) == (0, [], [], 0)


async def test_the_best_pairs_are_asked_about_four_at_a_time_and_no_more_than_allowed() -> None:
    found = [scored(number, 100 + number, 0.2 + number / 100) for number in range(1, 13)]
    model, seen = Model(lambda _newer: YES), []
    result = await judged(model, *found, most=9, progress=lambda done, total: seen.append((done, total)))
    assert sorted(model.asked) == sorted(f"note {100 + number}" for number in range(4, 13))
    assert model.most_at_once == 4
    assert (result.judged, result.not_judged, result.changed) == (9, 3, 9)
    assert seen == [(done, 9) for done in range(1, 10)]


async def test_a_text_that_is_too_long_is_not_sent_rather_than_cut() -> None:
    model = Model(lambda _newer: NO)
    result = await judged(model, (pair(1, 2, "x" * 8_001), 0.9), scored(3, 4, 0.8))
    assert model.asked == ["note 4"]
    assert lines(result)[0] == (1, 2, True, Decider.RULES)
    assert (result.judged, result.not_judged) == (1, 1)


async def test_a_pair_that_changed_before_it_was_sent_is_neither_sent_nor_proposed() -> None:
    """And one that changed after it was sent, or that was never to be sent, is not proposed either."""
    sent: list[tuple[int, int]] = []

    async def lookup(pairs: Sequence[Pair]) -> set[tuple[int, int]]:
        sent.extend(one.ids for one in pairs if len(pairs) == 1)
        gone = {(1, 11)} if len(pairs) == 1 else {(2, 12), (4, 14)}  # the last lookup finds the first one again
        return {one.ids for one in pairs} - gone

    found = [scored(number, 10 + number, 1 - number / 10) for number in (1, 2, 3)]
    model = Model(lambda _newer: YES)
    long = pair(4, 14, "x" * 8_001)
    result = await judged(model, *found, (long, 0.55), lookup=lookup)
    assert sent == [(1, 11), (2, 12), (3, 13)]
    assert model.asked == ["note 12", "note 13"]
    assert lines(result) == [(3, 13, True, Decider.MODEL)]
    assert (result.judged, result.not_judged, result.left_out) == (1, 0, 3)


@pytest.mark.promise("judge-gets-two-texts")
async def test_a_pair_is_looked_up_again_before_it_is_sent_again() -> None:
    """The memory became sensitive after the first attempt, which found no model."""
    model = Model(lambda _newer: EmbedderUnavailable("away"))

    async def lookup(pairs: Sequence[Pair]) -> set[tuple[int, int]]:
        return set() if model.asked else {one.ids for one in pairs}

    assert (await judged(model, scored(1, 2, 0.9), lookup=lookup)).judgements == []
    assert model.asked == ["note 2"]
