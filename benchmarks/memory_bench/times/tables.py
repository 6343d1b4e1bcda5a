"""Writes the report of the periods that memories name: the verdict, what texts name, and every setting on all sets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from memory_bench.report import machine, write_json
from memory_bench.studies.gains import bounded, corrected_p, greatest_by_chance
from memory_bench.studies.questions import MEASURES, RECALL
from memory_bench.studies.tables import Rows, by_set, cells, gains_cells, interval, name_of, write_report
from memory_bench.times.boosting import TimeScores
from memory_bench.times.choice import halves
from memory_bench.times.coverage import Coverage, Met
from memory_bench.times.expressions import FINDERS, Finder
from memory_bench.times.memory_times import Capture
from memory_bench.times.verdict import CHOOSING_SET, Outcome


@dataclass(frozen=True, slots=True)
class TimesStudy:
    """The scores of all sets, bare and inside prompts; what their texts name, and what that meets, by set."""

    sets: Sequence[TimeScores]
    prompts: Sequence[TimeScores]
    captures: Mapping[str, Mapping[Finder, Capture]]
    coverage: Mapping[str, Coverage]
    outcome: Outcome

    @property
    def choosing(self) -> TimeScores:
        """The scores of LoCoMo."""
        return next(one for one in self.sets if one.name == CHOOSING_SET)

    @property
    def shipped(self) -> str:
        """The name of the setting that would be shipped, the best one on all questions of LoCoMo, or "none"."""
        place = self.outcome.shipped
        return "none" if place is None else str(self.choosing.settings[place])


def write(study: TimesStudy, directory: Path, *, model: str, seed: int) -> None:
    """Write `report.md` and `summary.json`."""
    outcome, settings = study.outcome, len(study.choosing.settings)
    opening = [
        f"# Times that a memory's text names: {outcome.verdict}",
        (
            f"{model}; {settings} settings against the boost of ADR 12 by times of creation, with the default fusion "
            "without a graph leg and the sets' importance. Rule and terms: ADR 33. p without further word is of a "
            "paired randomisation test, corrected p of the greatest gain of all settings."
        ),
        (
            f"Over the {outcome.questions} questions of LoCoMo that name a time, out of fold: recall@10 "
            f"{interval(outcome.named['recall@10'])}, corrected p = {outcome.p:.4f}; nDCG@10 "
            f"{interval(outcome.named['ndcg@10'])}. All of LoCoMo chooses: {study.shipped}. Gains enough: "
            f"{_yes(outcome.gains)}; harmless: {_yes(outcome.harmless)}; in budget: {_yes(outcome.in_budget)}."
        ),
    ]
    sections = {
        "LoCoMo: each half by what the other half chooses (out of fold)": _folds(study),
        "What may not lose: LoCoMo out of fold, the others by what all of LoCoMo chooses": _kept(outcome),
        "What the boost is worth, without and with what texts name": _boosts(study),
        "What memories name, and what finding it takes (processor time)": _captures(study.captures),
        "Memories of the questions that name a time": _covered(study.coverage),
        "Every setting, chosen and judged in sight of all: questions that name a time": _settings(study, seed),
    }
    write_report(directory / "report.md", opening, sections)
    chosen = {each.judged: name_of(study.choosing, each) for each in outcome.folds}
    figures = {"times": outcome.figures(), "chosen": chosen, "shipped": study.shipped}
    write_json(directory / "summary.json", {"model": model, "machine": machine(), **figures})


def _yes(holds: object) -> str:
    return "yes" if holds else "no"


def _folds(study: TimesStudy) -> Rows:
    heading = (*MEASURES, "naming a time", *(f"{measure}, naming a time" for measure in MEASURES))
    yield ["judged", "admissible", "chosen by the other half", "questions", *heading]
    one = study.choosing
    for part, fold in zip(halves(one.scopes), study.outcome.folds, strict=True):
        judged = one.only(part)
        everything = np.ones(len(judged.strata), dtype=bool)
        gained = [gains_cells(judged, fold.setting, which) for which in (everything, judged.named)]
        counts = str(len(judged.strata)), str(int(judged.named.sum()))
        yield [fold.judged, str(fold.admissible), name_of(one, fold), counts[0], *gained[0], counts[1], *gained[1]]


def _kept(outcome: Outcome) -> Rows:
    yield ["questions", *MEASURES]
    for name, gains in outcome.kept.items():
        yield [name, *cells(gains)]


def _boosts(study: TimesStudy) -> Rows:
    ways = ("without a boost", "boost by creation", "with what all of LoCoMo chooses")
    yield ["set", "naming a time", *(f"{measure}, {way}" for measure in MEASURES for way in ways)]
    within = [(one, "") for one in study.sets] + [(one, ", prompts") for one in study.prompts]
    for one, where in within:
        named, place = one.only(one.named), study.outcome.shipped
        if not len(named.strata):
            continue
        scores = [named.unboosted, named.plain, named.plain if place is None else named.scores[place]]
        means = [f"{each.mean(axis=0)[row]:.3f}" for row in range(len(MEASURES)) for each in scores]
        yield [f"{one.name}{where}", str(len(named.strata)), *means]


def _captures(captures: Mapping[str, Mapping[Finder, Capture]]) -> Rows:
    heading = ("memories", "naming a time", "share", "periods a memory", "ms, mean", "ms, 99th of 100")
    yield ["set", "finder", *heading]
    for name, found in captures.items():
        for finder in FINDERS:
            one = found[finder]
            counts = f"{one.memories:,}", f"{one.naming:,}", f"{one.naming / one.memories:.3f}", f"{one.periods:.3f}"
            yield [name, finder, *counts, f"{one.mean:.2f}", f"{one.of_99:.1f}"]


def _covered(coverage: Mapping[str, Coverage]) -> Rows:
    meets = [
        f"{what}, {finder}" for finder in FINDERS for what in ("names one that meets it", "and was created far from it")
    ]
    yield ["set", "questions", "memories", "count", "created in the period", "close to it", *meets]
    for name, found in coverage.items():
        kinds = {
            "relevant": found.relevant,
            "irrelevant candidates": found.irrelevant,
            "relevant candidates, not among the ten": found.left,
        }
        for kind, met in kinds.items():
            yield [name, str(found.questions), kind, f"{met.count:,}", *_shares(met)]
        yield [name, str(found.questions), "relevant, found by no leg", f"{found.beyond:,}", *([""] * (2 + len(meets)))]


def _shares(met: Met) -> list[str]:
    named = [count for finder in FINDERS for count in (met.named[finder], met.named_alone[finder])]
    return [f"{count:,} ({count / max(met.count, 1):.3f})" for count in (met.created, met.close, *named)]


def _settings(study: TimesStudy, seed: int) -> Rows:
    one = study.choosing
    asked = next(each for each in study.prompts if each.name == one.name)
    named = one.only(one.named)
    others = [each.only(each.named) for each in study.sets if each.name != one.name and each.named.any()]
    yield [
        "setting", "admissible", *(f"{measure}, {one.name}" for measure in MEASURES), "corrected p (recall@10)",
        *(each.name for each in others), *(f"{each.name}, prompts (all)" for each in study.prompts),
    ]  # fmt: skip
    allowed, by_chance = bounded([one], [asked]), greatest_by_chance(named.gains[:, :, RECALL], seed=seed)
    for place, setting in enumerate(one.settings):
        means = named.gains[place].mean(axis=0, dtype=np.float64)
        p = corrected_p(by_chance, float(means[RECALL]))
        gained = [*(f"{value:+.4f}" for value in means), f"{p:.4f}"]
        yield [str(setting), _yes(allowed[place]), *gained, *by_set([*others, *study.prompts], place)]
