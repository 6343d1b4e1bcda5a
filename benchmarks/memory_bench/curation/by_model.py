"""Judges `memory curate find --judge`: what is found of both sets if a language model is asked about likely pairs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from memory_bench.curation.fitting import Array, Material, fitted_halves, kinds_right, tallied
from memory_bench.curation.judge import GivenAnswers, judge_chosen
from memory_bench.curation.other_people import OtherPeople, judge_other_people, score_other_people
from memory_bench.curation.recalls import newer_first, recall_with_and_without
from memory_bench.curation.token_weights import KeptAnswers, asked_about, fit_tokens, trial_answers
from memory_bench.curation.truth import JUDGES, Truth, restatements_of
from memory_bench.harness.dataset import Dataset
from memory_bench.harness.vectors import EmbeddedSet
from memory_bench.postgres import BenchmarkDatabase
from memory_recall.curation.decisions import THRESHOLD, Action, Judgement
from memory_recall.curation.judging import Judging
from memory_recall.curation.known_models import KnownModel
from memory_recall.curation.model_answers import MANY_TOKENS, JudgingModel
from memory_recall.errors import JudgeUnfit
from memory_recall.evaluation.significance import compare


@dataclass(frozen=True, slots=True)
class Sets:
    """What the command has read: homelab with its vectors and its pairs, in its database, and other people's pairs."""

    dataset: Dataset
    embedded: EmbeddedSet
    database: BenchmarkDatabase
    homelab: Material
    others: OtherPeople


def judge_by_language_model(kept: KeptAnswers, name: str, sets: Sets) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the figures of both sets with a language model as judge, and the weights of its tokens, to be shipped.

    The figures are under three keys: `by_yes_or_no`, where the answers are read as those of any model; `by_tokens`,
    where they are read by weights that were fitted to all voices, or for a voice to the others; and `by_right_answers`,
    where the sets' own restatements are answered with Yes. If the server returns few tokens, or the weights do not pass
    the trial, `by_tokens` says so, and there are no weights.
    """
    scores = score_other_people(sets.others, sets.homelab)
    by_yes_or_no = _of_both(sets, scores, kept, kept)
    figures = {
        "by_yes_or_no": by_yes_or_no,
        "by_right_answers": _of_both(sets, scores, _right(sets.homelab), _right(sets.others.material)),
    }
    if not kept.gives_many:
        return figures | {"by_tokens": f"The server gives fewer than {MANY_TOKENS} tokens."}, {}
    asked = asked_about(kept, sets.others, scores)
    trial = trial_answers(kept)
    shipped = fit_tokens(name, asked, trial)
    by_voice = {voice: fit_tokens(name, asked, trial, without=voice) for voice in np.unique(asked.voices)}
    try:
        by_tokens = _of_both(sets, scores, kept, kept, of_homelab=shipped, of_voices=by_voice)
    except JudgeUnfit as error:
        return figures | {"by_tokens": error.message}, {}
    net = [one["other_people"]["found_less_wrong"] for one in (by_yes_or_no, by_tokens)]
    by_rules = sets.others.net_by_person(judge_other_people(sets.others, sets.homelab))
    gains = {
        "yes_or_no_over_rules": _gain(by_rules, net[0]),
        "tokens_over_rules": _gain(by_rules, net[1]),
        "tokens_over_yes_or_no": _gain(*net),
    }
    weights = {name: {"weights": shipped.weights, "mean": shipped.mean, "usual": shipped.usual}}
    return figures | {"by_tokens": by_tokens, "found_less_wrong_by_person": gains}, weights


def _gain(before: Sequence[int], after: Sequence[int]) -> dict[str, Any]:
    """Return by how much the mean over people has grown, its 95 % interval, and the p of a randomisation test."""
    gain = compare(before, after)
    return {
        "mean": round(gain.difference, 2),
        "interval": [round(gain.low, 2), round(gain.high, 2)],
        "p": round(gain.p_value, 5),
    }


def judge_by_recorded_answers(sets: Sets, blind: Path, truth: Truth) -> list[dict[str, Any]]:
    """Return the figures of homelab with the recorded answers of each blind judge in place of a language model's.

    The judges were not asked through the product's interface, and its trial is taken as passed. `truth` is what was
    known before they judged.
    """
    before = replace(sets, homelab=replace(sets.homelab, truth=truth))
    answers = [restatements_of(blind, judge) for judge in range(JUDGES)]
    return [_of_homelab(before, GivenAnswers(before.homelab, yes), []) for yes in answers]


def _right(material: Material) -> GivenAnswers:
    return GivenAnswers(material, material.truth.kinds)


def _of_both(
    sets: Sets,
    scores: Array,
    homelab: JudgingModel,
    others: JudgingModel,
    *,
    of_homelab: KnownModel | None = None,
    of_voices: Mapping[str, KnownModel] | None = None,
) -> dict[str, Any]:
    return {
        "homelab": _of_homelab(sets, homelab, [of_homelab] if of_homelab else []),
        "other_people": _of_other_people(sets, others, scores, of_voices or {}),
    }


def _of_homelab(sets: Sets, model: JudgingModel, known: Sequence[KnownModel]) -> dict[str, Any]:
    material = sets.homelab
    judgings = [
        sets.database.wait(judge_chosen(model, material, scores, judged, fitted.threshold, known=known))
        for judged, fitted, scores in fitted_halves(material)
    ]
    proposed = _proposed(judgings)
    rankings = recall_with_and_without(sets.database, sets.dataset.queries, sets.embedded, proposed)
    right, counted = newer_first(sets.dataset.queries, rankings.curated, material.truth)
    return {
        **tallied(material, proposed),
        "newer_first": round(right / counted, 3),
        "kind_right": kinds_right(material, proposed),
        **_answers(judgings),
    }


def _of_other_people(sets: Sets, model: JudgingModel, scores: Array, known: Mapping[str, KnownModel]) -> dict[str, Any]:
    material, voices = sets.others.material, sets.others.voices
    judgings = {
        str(voice): sets.database.wait(
            judge_chosen(
                model, material, scores, voices == voice, THRESHOLD, known=[known[voice]] if voice in known else []
            )
        )
        for voice in np.unique(voices)
    }
    proposed = _proposed(list(judgings.values()))
    return {
        **tallied(material, proposed),
        "found_less_wrong": sets.others.net_by_person(proposed),
        "voices": {voice: tallied(material, _proposed([judging])) for voice, judging in judgings.items()},
        "kind_right": kinds_right(material, proposed),
        **_answers(list(judgings.values())),
    }


def _proposed(judgings: Sequence[Judging]) -> list[Judgement]:
    return [one for judging in judgings for one in judging.judgements if one.action is not Action.ADD]


def _answers(judgings: Sequence[Judging]) -> dict[str, int]:
    names = ("judged", "unusable", "not_judged", "changed")
    return {name: sum(getattr(one, name) for one in judgings) for name in names}
