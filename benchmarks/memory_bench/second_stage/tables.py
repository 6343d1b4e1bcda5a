"""Writes the report of MaxSim and MMR: both verdicts, what each set chose, costs, and every setting on all sets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from memory_bench.report import machine, write_json
from memory_bench.second_stage.choice import drop_in_likeness
from memory_bench.second_stage.costs import MEMORIES, QUESTIONS, Costs, sizes
from memory_bench.second_stage.diversity import DiversityScores, FactScores
from memory_bench.second_stage.reranking import MaxSimScores
from memory_bench.second_stage.settings import STATES
from memory_bench.second_stage.verdict import Changes, MaxSimOutcome, MmrOutcome
from memory_bench.studies.gains import (
    OWN_SET,
    Fold,
    SettingScores,
    bounded,
    corrected_p,
    evenly,
    greatest_by_chance,
    mean_over_sets,
)
from memory_bench.studies.questions import MEASURES
from memory_bench.studies.tables import Rows, by_set, cells, interval, name_of, own_rows, prompts_rows, write_report


@dataclass(frozen=True, slots=True)
class MaxSimStudy:
    """The scores of all sets, bare and inside prompts, and the tokens of the memories that were encoded, by set."""

    sets: Sequence[MaxSimScores]
    prompts: Sequence[MaxSimScores]
    tokens: Mapping[str, Sequence[int]]
    worst_pooled: float
    outcome: MaxSimOutcome


@dataclass(frozen=True, slots=True)
class MmrStudy:
    """The scores of all sets, bare and inside prompts, and the facts of our own set."""

    sets: Sequence[DiversityScores]
    prompts: Sequence[DiversityScores]
    facts: FactScores
    outcome: MmrOutcome


def write(maxsim: MaxSimStudy, mmr: MmrStudy, directory: Path, *, model: str, dimensions: int, seed: int) -> None:
    """Write `report.md` and `summary.json`."""
    write_report(
        directory / "report.md",
        [
            f"# The ten chosen again: MaxSim {maxsim.outcome.verdict}, MMR {mmr.outcome.verdict}",
            (
                f"{model}; every setting against the default fusion without a graph leg, with the sets' importance. "
                "Rules and terms: ADR 27. p without further word is of a paired randomisation test, corrected p of the "
                "greatest change of all settings. Means over sets count every set the same."
            ),
            _maxsim_sentence(maxsim),
            _mmr_sentence(mmr),
        ],
        {**_maxsim_sections(maxsim, dimensions, seed), **_mmr_sections(mmr, seed)},
    )
    data = {
        "model": model,
        "machine": machine(),
        "maxsim": {**maxsim.outcome.figures(), "chosen": _chosen(maxsim.sets[0], maxsim.outcome.folds)},
        "mmr": {**mmr.outcome.figures(), "chosen": _chosen(mmr.sets[0], mmr.outcome.folds)},
    }
    write_json(directory / "summary.json", data)


def _maxsim_sections(study: MaxSimStudy, dimensions: int, seed: int) -> dict[str, Rows]:
    changes = study.outcome.changes
    cost = f"MaxSim: cost, medians of {QUESTIONS} questions with {MEMORIES} memories each"
    return {
        "MaxSim: each set by what the others choose (out of fold)": _folds(study.sets, study.outcome.folds, changes),
        "MaxSim: the same questions inside prompts": prompts_rows(study.prompts, changes.prompts, "MaxSim"),
        f"MaxSim: {OWN_SET} by what the public sets choose": own_rows(changes.own),
        cost: _costs(study.outcome.costs),
        "MaxSim: tokens and bytes of a memory, of those that were encoded": _tokens(study.tokens, dimensions),
        "MaxSim: every setting in sight of all sets": _maxsim_settings(study, seed),
    }


def _mmr_sections(study: MmrStudy, seed: int) -> dict[str, Rows]:
    changes = study.outcome.changes
    return {
        "MMR: each set by what the others choose (out of fold)": _folds(study.sets, study.outcome.folds, changes),
        "MMR: the same questions inside prompts": prompts_rows(study.prompts, changes.prompts, "MMR"),
        f"MMR: {OWN_SET} by what the public sets choose": own_rows(changes.own),
        "MMR: every setting in sight of all sets": _mmr_settings(study, seed),
    }


def _maxsim_sentence(study: MaxSimStudy) -> str:
    outcome = study.outcome
    gains = "; ".join(
        f"{measure} {interval(outcome.changes.mean[measure])}, corrected p = {outcome.p[measure]:.4f}"
        for measure in MEASURES
    )
    return (
        f"MaxSim, {len(study.sets[0].settings)} settings, mean over sets out of fold: {gains}. The mean of a memory's "
        f"states agrees with its vector to a cosine of at least {study.worst_pooled:.6f}."
    )


def _mmr_sentence(study: MmrStudy) -> str:
    outcome = study.outcome
    return (
        f"MMR, {len(study.sets[0].settings)} settings, on {OWN_SET} by what the public sets choose: of ten memories "
        f"{outcome.plain_repeats:.3f} repeat a fact without MMR; change {interval(outcome.repeats)}, corrected p = "
        f"{outcome.p:.4f}. Share of the relevant facts in the ten: {study.facts.plain_facts.mean():.3f}; change "
        f"{interval(outcome.facts)}."
    )


def _chosen(one: SettingScores[object], folds: Sequence[Fold]) -> dict[str, str]:
    return {fold.judged: name_of(one, fold) for fold in folds}


def _folds(sets: Sequence[SettingScores[object]], folds: Sequence[Fold], changes: Changes) -> Rows:
    yield ["judged", "questions", "admissible", "chosen on the others", *MEASURES]
    for one, fold in zip(sets, folds, strict=True):
        name = [one.name, str(len(one.strata)), str(fold.admissible), name_of(one, fold)]
        yield [*name, *cells(changes.sets[one.name])]
    yield ["mean over sets", str(sum(len(one.strata) for one in sets)), "", "", *cells(changes.mean)]


def _costs(costs: Costs) -> Rows:
    yield ["states", "milliseconds", "bytes a memory"]
    yield ["computed", f"{costs.computed:.1f}", "0"]
    for kind in STATES:
        yield [f"stored, {kind}", f"{costs.stored[kind]:.1f}", f"{costs.size[kind]:,.0f}"]


def _tokens(tokens: Mapping[str, Sequence[int]], dimensions: int) -> Rows:
    yield ["set", "memories", "tokens, mean", "tokens, most", *(f"bytes, {kind}" for kind in STATES)]
    for name, counts in tokens.items():
        size = [f"{value:,.0f}" for value in sizes(counts, dimensions).values()]
        yield [name, str(len(counts)), f"{np.mean(counts):.1f}", str(max(counts)), *size]


def _maxsim_settings(study: MaxSimStudy, seed: int) -> Rows:
    yield [
        "setting", "admissible", *(f"{one}, mean over sets (corrected p)" for one in MEASURES),
        *(one.name for one in study.sets), *(f"{one.name}, prompts" for one in study.prompts),
    ]  # fmt: skip
    means, allowed = mean_over_sets(study.sets), bounded(study.sets, study.prompts)
    tried = np.concatenate(np.moveaxis(evenly([one.gains for one in study.sets]), -1, 0)).astype(np.float32)
    by_chance = greatest_by_chance(tried, seed=seed)
    for place, setting in enumerate(study.sets[0].settings):
        figures = [f"{value:+.4f} ({corrected_p(by_chance, float(value)):.4f})" for value in means[place]]
        yield [str(setting), _yes(allowed[place]), *figures, *by_set([*study.sets, *study.prompts], place)]


def _mmr_settings(study: MmrStudy, seed: int) -> Rows:
    facts = study.facts
    yield [
        "setting", "admissible", "likeness, mean over sets", f"repeats, {OWN_SET} (corrected p)", f"facts, {OWN_SET}",
        *(one.name for one in study.sets), *(f"{one.name}, prompts" for one in study.prompts),
    ]  # fmt: skip
    allowed = bounded(study.sets, study.prompts)
    drop = np.mean([drop_in_likeness(one) for one in study.sets], axis=0)
    changed = facts.repeats - facts.plain_repeats.astype(np.float32)
    by_chance, known = greatest_by_chance(changed, seed=seed), facts.facts - facts.plain_facts.astype(np.float32)
    for place, setting in enumerate(study.sets[0].settings):
        repeats = float(changed[place].mean())
        figures = [
            f"{-drop[place]:+.3f}",
            f"{repeats:+.3f} ({corrected_p(by_chance, repeats):.4f})",
            f"{float(known[place].mean()):+.4f}",
        ]
        yield [str(setting), _yes(allowed[place]), *figures, *by_set([*study.sets, *study.prompts], place)]


def _yes(allowed: object) -> str:
    return "yes" if allowed else "no"
