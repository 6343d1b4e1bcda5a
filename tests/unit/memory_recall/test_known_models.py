"""A language model of which it is known what its tokens weigh is read by them, and no other model is."""

import math
from collections.abc import Mapping
from typing import Any

import pytest

from memory_recall.curation.decisions import Decider
from memory_recall.curation.known_models import LARGEST_DIFFERENCE, KnownModel, known_models, log_probabilities
from memory_recall.curation.model_answers import FEW_TOKENS, MANY_TOKENS, evidence
from memory_recall.errors import EmbedderBroken, EmbedderRejected, JudgeUnfit
from tests.unit.memory_recall.judging_model import RIGHT, YES, Model, judged, lines, scored

AGAIN, OTHER = {"Yes": 0.5, "No": 0.4, "Same": 0.09, "Both": 0.01}, {"Yes": 0.5, "No": 0.4, "Same": 0.01, "Both": 0.09}
TRIAL = {asked: AGAIN if answer["Yes"] > answer["No"] else OTHER for asked, answer in RIGHT.items()}


def known(further: float = 0.0) -> KnownModel:
    """What is known of a model that says as much of Yes and No to all pairs, and hints at its opinion otherwise.

    The usual log-probability of each token is `further` from that of the answers above.
    """
    usual = {token: sum(math.log(answer[token]) for answer in TRIAL.values()) / len(TRIAL) for token in AGAIN}
    return KnownModel(
        "hinting", {"Same": 1.0, "Both": -1.0}, 0.0, {token: value + further for token, value in usual.items()}
    )


def test_an_answer_counts_by_the_logarithms_of_its_tokens_times_their_weights() -> None:
    assert evidence(AGAIN, known()) == pytest.approx(math.log(0.09) - math.log(0.01))
    assert evidence(OTHER, known()) == pytest.approx(math.log(0.01) - math.log(0.09))


def test_a_token_that_was_not_returned_counts_as_the_unlikeliest_one_that_was() -> None:
    answer = {"Yes": 0.9, "No": 0.05, "Same": 0.002}
    assert evidence(answer, known()) == pytest.approx(0.0)
    assert log_probabilities({"Yes": 1.0, "No": 0.0}, ["No", "Both"])["Both"] > -30  # where a server rounds to none


def test_an_answer_that_is_neither_yes_nor_no_counts_as_none_of_a_known_model_either() -> None:
    assert evidence({"Same": 0.9, "Yes": 0.1}, known()) is None


async def test_a_known_model_is_recognised_by_its_trial_and_read_by_its_tokens() -> None:
    """By Yes and No alone it would not even pass."""
    found = [scored(1, 11, 0.6), scored(2, 12, 0.6), scored(3, 13, 0.3)]
    model = Model({"note 11": AGAIN, "note 12": OTHER, "note 13": AGAIN}.__getitem__, TRIAL)
    result = await judged(model, *found, known=[known(further=-20.0), known()])
    assert result.known_model == "hinting"
    assert lines(result)[:2] == [(1, 11, True, Decider.MODEL), (3, 13, True, Decider.MODEL)]
    assert lines(result)[2][2] is False
    logit = math.log(0.6 / 0.4) + 2 * math.log(3)  # half of the trial's answers are alike, so their mean is zero
    assert result.judgements[0].score == pytest.approx(1 / (1 + math.exp(-logit)))


@pytest.mark.parametrize("side", [-1, 1])
async def test_a_model_whose_tokens_are_usually_likelier_or_unlikelier_is_not_taken_for_a_known_one(side: int) -> None:
    """Weights that were fitted to another model's answers would be noise. By Yes and No, this one is not fit."""
    near, far = (known(further=side * LARGEST_DIFFERENCE * factor) for factor in (0.99, 1.01))
    assert (await judged(Model(lambda _newer: AGAIN, TRIAL), scored(1, 11, 0.6), known=[near])).known_model == "hinting"
    with pytest.raises(JudgeUnfit):
        await judged(Model(lambda _newer: AGAIN, TRIAL), scored(1, 11, 0.6), known=[far])


FILLING = {f"word {number}": 0.001 for number in range(FEW_TOKENS)}  # likelier than what the model hints
HINTING = {asked: answer | FILLING | {"Same": 1e-5, "Both": 1e-6} for asked, answer in RIGHT.items()}
USUAL = {"Same": math.log(1e-5), "Both": math.log(1e-6)}


@pytest.mark.parametrize(
    ("limit", "refusal", "name"),
    [(MANY_TOKENS, EmbedderRejected, "long"), (FEW_TOKENS, EmbedderRejected, None), (FEW_TOKENS, EmbedderBroken, None)],
)
async def test_a_server_that_gives_few_tokens_is_asked_for_few_and_read_by_yes_and_no(
    limit: int, refusal: type[Exception], name: str | None
) -> None:
    """As OpenAI's interface does, or one whose long answers exceed our bound. The trial is then done anew."""
    model = Model(lambda _newer: YES | FILLING | {"Same": 1e-5, "Both": 1e-6}, HINTING, limit=limit)
    model.refusal = refusal
    passing = KnownModel("long", {"Yes": 1.0, "No": -1.0}, 0.0, USUAL)
    result = await judged(model, scored(1, 11, 0.6), known=[passing])
    assert (result.known_model, result.judged, result.unusable) == (name, 1, 0)
    assert set(model.most) == {limit}


async def test_a_model_that_is_not_known_is_asked_for_many_tokens_in_the_trial_alone() -> None:
    """They are 25 kB of each answer, of which two would be read."""
    model = Model(lambda _newer: YES)
    await judged(model, scored(1, 11, 0.6))
    assert model.most == [MANY_TOKENS] * len(RIGHT) + [FEW_TOKENS]


async def test_one_example_that_is_refused_for_its_many_tokens_has_the_whole_trial_done_anew() -> None:
    """A model must not be recognised by answers of two kinds, and then be read by those of the shorter kind."""
    refused = iter([EmbedderRejected("no")])
    first = next(iter(HINTING))

    class Fickle(Model):
        def _given(self, answer: Any) -> Mapping[str, float]:
            return super()._given(next(refused, answer) if answer is HINTING[first] else answer)

    model = Fickle(lambda _newer: YES, HINTING)
    result = await judged(model, scored(1, 11, 0.6), known=[KnownModel("long", {"Yes": 1.0, "No": -1.0}, 0.0, USUAL)])
    assert result.known_model is None
    assert model.most[-len(RIGHT) - 1 :] == [FEW_TOKENS] * (len(RIGHT) + 1)


async def test_of_few_pairs_what_a_known_model_says_on_average_is_what_it_says_of_others() -> None:
    """Its sum over tokens is far from zero, and the mean of three pairs may be that of three restatements."""
    usual = KnownModel("hinting", known().weights, 2.0, known().usual)
    result = await judged(Model(lambda _newer: AGAIN, TRIAL), scored(1, 11, 0.6), known=[usual])
    logit = math.log(0.6 / 0.4) + 2 * math.log(3) - 2.0
    assert result.judgements[0].score == pytest.approx(1 / (1 + math.exp(-logit)))


@pytest.mark.parametrize("least", [1e-2, 1e-9])
async def test_one_text_that_makes_the_model_answer_absurdly_changes_hardly_a_score_but_its_own(least: float) -> None:
    """A memory may hold a text that was written to do so."""
    strong = KnownModel(
        "hinting", {token: 20 * weight for token, weight in known().weights.items()}, 0.0, known().usual
    )
    absurd = {"Yes": 0.5, "No": 0.4, "Same": 0.1, "Both": least}
    found = [scored(number, 100 + number, 0.3) for number in range(40)]
    model = Model(lambda newer: absurd if newer == "note 100" else {**AGAIN, "Same": 0.05, "Both": 0.05}, TRIAL)
    result = await judged(model, *found, known=[strong])
    others = [one.score for one in result.judgements if one.pair.newer.id != 100]
    assert len(others) == 39
    assert all(abs(score - 0.3) < 0.06 for score in others)


def test_what_is_shipped_has_a_usual_value_for_each_weight() -> None:
    (shipped,) = known_models()
    assert {"Yes", "No"} <= shipped.weights.keys() == shipped.usual.keys()
