"""What a language model's tokens weigh is fitted to the voices that teach, and to what the rules leave open."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from memory_bench.curation import by_model
from memory_bench.curation.by_model import Sets
from memory_bench.curation.fitting import Material, proposals
from memory_bench.curation.judge import judge_chosen
from memory_bench.curation.other_people import OtherPeople
from memory_bench.curation.token_weights import Asked, KeptAnswers, asked_about, fit_tokens
from memory_recall.curation.judging import Judging
from memory_recall.curation.known_models import KnownModel
from memory_recall.curation.model_answers import FEW_TOKENS, MANY_TOKENS, question_about
from memory_recall.errors import EmbedderRejected, EmbedderUnauthorized
from tests.unit.memory_bench.test_curation_benchmark import Model, material, truth


async def test_a_model_is_asked_each_question_once_however_often_its_answers_are_read(tmp_path: Path) -> None:
    """Each costs a second, and every voice's weights are fitted to the answers about all others."""
    given = material(truth(tmp_path), (1, 2), (4, 5), first=0)
    kept = KeptAnswers(Model(2), "tiny")
    for _ in range(3):
        await judge_chosen(kept, given, np.array([0.9, 0.8]), np.ones(2, dtype=np.bool_), 0.5)
    assert [kept.answer_to(question_about(pair)) for pair in given.pairs] == [{"Yes": 1.0}] * 2
    assert (kept.answer_to("another question"), kept.gives_many) == (None, True)


async def test_answers_that_are_kept_in_a_file_are_not_asked_for_again_of_the_same_model(tmp_path: Path) -> None:
    """So that a benchmark of forty minutes goes on where it was interrupted."""
    given = material(truth(tmp_path), (1, 2), first=0)
    scores, all_of_them = np.array([0.9]), np.ones(1, dtype=np.bool_)
    file = tmp_path / "answers.jsonl"
    await judge_chosen(KeptAnswers(Model(1), "tiny", file), given, scores, all_of_them, 0.5)
    await judge_chosen(KeptAnswers(Model(0), "tiny", file), given, scores, all_of_them, 0.5)
    with pytest.raises(EmbedderUnauthorized):
        await judge_chosen(KeptAnswers(Model(0), "another", file), given, scores, all_of_them, 0.5)


async def test_an_answer_that_was_cut_off_when_its_writer_was_killed_is_asked_for_again(tmp_path: Path) -> None:
    given = material(truth(tmp_path), (1, 2), first=0)
    scores, all_of_them = np.array([0.9]), np.ones(1, dtype=np.bool_)
    file = tmp_path / "answers.jsonl"
    await judge_chosen(KeptAnswers(Model(1), "tiny", file), given, scores, all_of_them, 0.5)
    file.write_text(file.read_text()[:-9])
    with pytest.raises(EmbedderUnauthorized):
        await judge_chosen(KeptAnswers(Model(0), "tiny", file), given, scores, all_of_them, 0.5)
    await judge_chosen(KeptAnswers(Model(1), "tiny", file), given, scores, all_of_them, 0.5)
    await judge_chosen(KeptAnswers(Model(0), "tiny", file), given, scores, all_of_them, 0.5)


async def test_a_server_that_gives_few_tokens_is_noticed(tmp_path: Path) -> None:
    """Weights of its tokens would be of no use, since a known model is asked for many. A later run knows it, too."""

    class Limited(Model):
        async def first_token(
            self, _instruction: str, _examples: object, text: str, /, *, most: int
        ) -> dict[str, float]:
            if most > FEW_TOKENS:
                raise EmbedderRejected("top_logprobs is 20 at most")
            return await super().first_token(_instruction, _examples, text, most=most)

    kept = KeptAnswers(Limited(2), "tiny", tmp_path / "answers.jsonl")
    assert await kept.first_token("", [], "one", most=MANY_TOKENS) == {"Yes": 1.0}
    assert kept.gives_many is False
    assert KeptAnswers(Limited(0), "tiny", tmp_path / "answers.jsonl").gives_many is False


def _asked(count: int) -> Asked:
    """Answers whose token `hint` tells restatements from other pairs in one voice, and is the wrong way round in two.

    The rules know nothing of them, and `rare` is hardly ever returned.
    """
    labels = np.arange(count) % 2.0
    voices = np.array(["terse", "spoken", "narrative"])[np.arange(count) % 3]
    right = (labels == 1) == (voices == "spoken")
    answers = [
        {"Yes": 0.5, "hint": 0.2 if true else 0.02, "No": 0.01} | ({"rare": 0.1} if place == 0 else {})
        for place, true in enumerate(right)
    ]
    return Asked(answers, np.zeros(count), labels, voices)


def test_tokens_weigh_what_tells_restatements_apart_in_the_voices_that_teach() -> None:
    """And none is weighed that is seldom among the likeliest."""
    asked = _asked(60)
    trial = [{"Yes": 0.5, "hint": 0.1, "No": 0.1}]
    of_all = fit_tokens("tiny", asked, trial)
    assert of_all.weights.keys() == of_all.usual.keys() == {"Yes", "hint", "No"}
    assert of_all.usual["hint"] == pytest.approx(math.log(0.1), abs=1e-3)
    assert of_all.weights["hint"] < -0.1
    sums = {
        voice: [of_all.evidence(one) for one, own in zip(asked.answers, asked.voices, strict=True) if own == voice]
        for voice in set(asked.voices)
    }
    assert of_all.mean == pytest.approx(fmean(fmean(own) for own in sums.values()), abs=1e-3)
    only = Asked(
        [one for one, voice in zip(asked.answers, asked.voices, strict=True) if voice != "narrative"],
        *(one[asked.voices != "narrative"] for one in (asked.offsets, asked.labels, asked.voices)),
    )
    assert fit_tokens("tiny", asked, trial, without="narrative") == fit_tokens("tiny", only, trial)


def test_tokens_are_not_weighed_for_what_the_rules_know_already() -> None:
    asked = _asked(60)
    certain = replace(asked, offsets=np.where(asked.labels == 1, 9.0, -9.0))
    assert abs(fit_tokens("tiny", certain, asked.answers[:1]).weights["hint"]) < 0.01


def test_what_all_answers_of_a_voice_have_in_common_teaches_nothing() -> None:
    """As little counts when the weights are used: the mean of all answers is taken away."""
    asked = _asked(60)
    shifted = [
        answer if voice != "spoken" else answer | {"hint": answer["hint"] / 2}
        for answer, voice in zip(asked.answers, asked.voices, strict=True)
    ]
    trial = asked.answers[:1]
    of_shifted = fit_tokens("tiny", replace(asked, answers=shifted), trial)
    assert of_shifted.weights == fit_tokens("tiny", asked, trial).weights


async def test_the_pairs_that_teach_are_those_that_were_asked_about_and_answered_by_yes_or_no(tmp_path: Path) -> None:
    """Each with its own answer, label, voice, and log-odds by the rules."""
    given = material(truth(tmp_path), (1, 2), (1, 8), (4, 5), (6, 7), first=0)
    others = OtherPeople(
        given, np.array(["terse", "terse", "spoken", "spoken"]), np.array(["ann", "ann", "bob", "bob"])
    )
    kept = KeptAnswers(Model(0), "tiny")
    tokens = {2: {"Yes": 0.9}, 8: {"I": 1.0}, 5: {"No": 0.7}}
    for pair in given.pairs[:3]:
        kept.keep(question_about(pair), tokens[pair.newer.id])
    asked = asked_about(kept, others, np.array([0.9, 0.5, 0.2, 0.6]))
    assert asked.answers == [{"Yes": 0.9}, {"No": 0.7}]
    assert (asked.labels.tolist(), asked.voices.tolist()) == ([1, 1], ["terse", "spoken"])
    assert asked.offsets.tolist() == pytest.approx([math.log(9), math.log(0.25)])


def test_a_person_s_net_is_what_was_found_less_what_was_wrong(tmp_path: Path) -> None:
    """People are in the order of their names, and one for whom nothing is proposed has zero."""
    given = material(truth(tmp_path), (4, 5), (1, 2), (2, 3), (1, 8), (6, 7), first=0)
    others = OtherPeople(given, np.array(["terse"] * 5), np.array(["cy", "ann", "ann", "ann", "bob"]))
    proposed = proposals(given, np.array([0.0, 0.9, 0.9, 0.0, 0.9]), np.ones(5, dtype=np.bool_), 0.5)
    assert others.net_by_person(proposed) == [2, -1, 0]


def test_each_voice_is_judged_by_what_the_other_voices_teach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = material(truth(tmp_path), (1, 2), (4, 5), first=0)
    others = OtherPeople(given, np.array(["terse", "spoken"]), np.array(["ann", "bob"]))
    used: list[tuple[str, list[str]]] = []

    async def judge(
        _model: object,
        _material: Material,
        _scores: object,
        chosen: Any,
        _threshold: float,
        *,
        known: Sequence[KnownModel] = (),
    ) -> Judging:
        used.append((str(others.voices[chosen][0]), [one.name for one in known]))
        return Judging([], None, 0, 0, 0, 0, 0, None)

    monkeypatch.setattr(by_model, "judge_chosen", judge)
    database = type("Database", (), {"wait": staticmethod(asyncio.run)})()
    sets = Sets(None, None, database, None, others)  # type: ignore[arg-type]  (homelab is not judged here)
    weights = {voice: KnownModel(f"by all but {voice}", {}, 0.0, {}) for voice in ("spoken", "terse")}
    by_model._of_other_people(sets, Model(0), np.array([0.9, 0.9]), weights)
    assert used == [("spoken", ["by all but spoken"]), ("terse", ["by all but terse"])]
