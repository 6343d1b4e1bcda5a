"""Decides by the rules of ADR 27 whether MaxSim and MMR are adopted, may be opted in to, or are rejected."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np

from memory_bench.second_stage.choice import choose_maxsim, choose_mmr
from memory_bench.second_stage.costs import Costs
from memory_bench.second_stage.diversity import DiversityScores, FactScores
from memory_bench.second_stage.reranking import MaxSimScores
from memory_bench.second_stage.settings import States
from memory_bench.studies.gains import (
    OWN_SET,
    ROUNDING,
    Fold,
    Gains,
    SettingScores,
    compare_gains,
    corrected_p,
    evenly,
    folds,
    gains_of,
    greatest_by_chance,
    is_bounded,
    is_worse,
    own_gains,
)
from memory_bench.studies.questions import MEASURES
from memory_recall.evaluation.significance import Comparison, compare

Verdict = Literal["adopted", "opt-in", "rejected"]
Scored = TypeVar("Scored", bound=SettingScores[object])

LARGEST_P, LARGEST_OWN_P = 0.01, 0.05
ADOPTED_GAIN, OPT_IN_GAIN, OWN_GAIN = 0.01, 0.005, 0.005
RECALL_MS, SECOND_STAGE_MS, STORED_BYTES = 10.0, 500.0, 2_048
FEWER_REPEATS = 1 / 3
FACTS_GAIN = 0.005


@dataclass(frozen=True, slots=True)
class Changes:
    """How the scores change out of fold: on all questions of each set, and on the same questions inside prompts.

    `mean` is over sets, each of which counts the same. `own` is over our own set, under "", and each of its strata.
    """

    mean: Gains
    sets: Mapping[str, Gains]
    prompts: Mapping[str, Gains]
    own: Mapping[str, Gains]

    @property
    def bounded(self) -> bool:
        """Whether no set and no set's prompts lose more than allowed."""
        return all(map(is_bounded, self._whole))

    @property
    def harmless(self) -> bool:
        """Whether no set, no set's prompts and no stratum of our own set becomes significantly worse."""
        return not any(map(is_worse, [*self._whole, *self.own.values()]))

    @property
    def _whole(self) -> list[Gains]:
        return [*self.sets.values(), *self.prompts.values()]

    def worst(self, measure: str) -> float:
        """Return the change of the measure on the set that fares worst."""
        return min(gains[measure].difference for gains in self.sets.values())


@dataclass(frozen=True, slots=True)
class MaxSimOutcome:
    """The figures by which ADR 27 decides about MaxSim; `p` is corrected for all settings and both measures.

    `states` are those of the setting that the public sets choose, None if they choose none.
    """

    folds: Sequence[Fold]
    changes: Changes
    p: Mapping[str, float]
    costs: Costs
    states: States | None

    @property
    def in_budget(self) -> bool:
        """Whether computing the states, or storing and reading them, is within the recall's budget."""
        if self.states is None:
            return False
        stored = self.costs.stored[self.states] <= RECALL_MS and self.costs.size[self.states] <= STORED_BYTES
        return stored or self.costs.computed <= RECALL_MS

    @property
    def verdict(self) -> Verdict:
        """Whether it is adopted, opt-in or rejected, by the rule of ADR 27."""
        own = self.changes.own.get("", {})
        judged = any(one.difference >= OWN_GAIN - ROUNDING and one.p_value < LARGEST_OWN_P for one in own.values())
        if self._gains(ADOPTED_GAIN) and self.changes.bounded and self.changes.harmless and judged and self.in_budget:
            return "adopted"
        kept = bool(own) and all(one.difference >= -ROUNDING for one in own.values())
        affordable = self.costs.computed <= SECOND_STAGE_MS
        return "opt-in" if self._gains(OPT_IN_GAIN) and self.changes.harmless and kept and affordable else "rejected"

    def _gains(self, least: float) -> bool:
        mean = self.changes.mean
        kept = all(mean[one].difference >= -ROUNDING for one in MEASURES)
        return kept and any(mean[one].difference >= least - ROUNDING and self.p[one] < LARGEST_P for one in MEASURES)

    def figures(self) -> dict[str, object]:
        """Return the main figures, as the last line of output has them."""
        return {
            **_figures(self.changes),
            "p": {measure: round(value, 4) for measure, value in self.p.items()},
            "computed_ms": round(self.costs.computed, 1),
            "stored_ms": {kind: round(value, 1) for kind, value in self.costs.stored.items()},
            "stored_bytes": {kind: round(value) for kind, value in self.costs.size.items()},
            "verdict": self.verdict,
        }


@dataclass(frozen=True, slots=True)
class MmrOutcome:
    """The figures by which ADR 27 decides about MMR; `p` is that of the repeats, corrected for all settings.

    `repeats` and `facts` are the changes on our own set, by what the public sets choose.
    """

    folds: Sequence[Fold]
    changes: Changes
    plain_repeats: float
    repeats: Comparison
    p: float
    facts: Comparison

    @property
    def verdict(self) -> Verdict:
        """Whether it is adopted, opt-in or rejected, by the rule of ADR 27."""
        fewer = -self.repeats.difference >= FEWER_REPEATS * self.plain_repeats - ROUNDING and self.p < LARGEST_P
        fewer = fewer and self.repeats.difference < 0
        gain = self.facts.difference
        known = gain >= FACTS_GAIN - ROUNDING and self.facts.p_value < LARGEST_OWN_P
        if fewer and known and self.changes.bounded and self.changes.harmless:
            return "adopted"
        return "opt-in" if fewer and gain >= -ROUNDING and self.changes.harmless else "rejected"

    def figures(self) -> dict[str, object]:
        """Return the main figures, as the last line of output has them."""
        return {
            **_figures(self.changes),
            "repeats": round(self.plain_repeats, 3),
            "repeats_change": round(self.repeats.difference, 3),
            "p": round(self.p, 4),
            "facts_change": round(self.facts.difference, 4),
            "verdict": self.verdict,
        }


def _figures(changes: Changes) -> dict[str, object]:
    return {
        **{f"{measure}_gain": round(changes.mean[measure].difference, 4) for measure in MEASURES},
        **{f"worst_set_{measure}": round(changes.worst(measure), 4) for measure in MEASURES},
    }


def judge_maxsim(
    sets: Sequence[MaxSimScores], prompts: Sequence[MaxSimScores], costs: Costs, *, seed: int
) -> MaxSimOutcome:
    """Judge MaxSim: each set by what the others choose."""
    chosen = folds(sets, prompts, choose_maxsim)
    changes = _changes(sets, prompts, chosen, seed=seed)
    tried = np.concatenate(np.moveaxis(evenly([one.gains for one in sets]), -1, 0)).astype(np.float32)
    by_chance = greatest_by_chance(tried, seed=seed)
    p = {measure: corrected_p(by_chance, changes.mean[measure].difference) for measure in MEASURES}
    own = setting_for(OWN_SET, chosen)
    return MaxSimOutcome(chosen, changes, p, costs, None if own is None else sets[0].settings[own].states)


def judge_mmr(
    sets: Sequence[DiversityScores], prompts: Sequence[DiversityScores], facts: FactScores, *, seed: int
) -> MmrOutcome:
    """Judge MMR: each set by what the others choose; `facts` are those of our own set."""
    chosen = folds(sets, prompts, choose_mmr)
    setting = setting_for(OWN_SET, chosen)
    changed = facts.repeats - facts.plain_repeats.astype(np.float32)
    repeats = _change(facts.plain_repeats, facts.repeats, setting, seed=seed)
    return MmrOutcome(
        folds=chosen,
        changes=_changes(sets, prompts, chosen, seed=seed),
        plain_repeats=float(facts.plain_repeats.mean()),
        repeats=repeats,
        p=corrected_p(greatest_by_chance(changed, seed=seed), repeats.difference),
        facts=_change(facts.plain_facts, facts.facts, setting, seed=seed),
    )


def setting_for(judged: str, chosen: Iterable[Fold]) -> int | None:
    """Return the place of the setting that the other sets choose for a set."""
    return next((one.setting for one in chosen if one.judged == judged), None)


def _changes(sets: Sequence[Scored], prompts: Sequence[Scored], chosen: Sequence[Fold], *, seed: int) -> Changes:
    gains = [gains_of(one, fold.setting) for one, fold in zip(sets, chosen, strict=True)]
    in_prompts = [gains_of(one, fold.setting) for one, fold in zip(prompts, chosen, strict=True)]
    return Changes(
        mean=compare_gains(evenly(gains), seed=seed),
        sets={one.name: compare_gains(found, seed=seed) for one, found in zip(sets, gains, strict=True)},
        prompts={one.name: compare_gains(found, seed=seed) for one, found in zip(prompts, in_prompts, strict=True)},
        own=own_gains(sets, setting_for(OWN_SET, chosen), seed=seed),
    )


def _change(
    plain: "np.typing.NDArray[np.float64]",
    changed: "np.typing.NDArray[np.float32]",
    setting: int | None,
    *,
    seed: int,
) -> Comparison:
    other = plain if setting is None else changed[setting].astype(np.float64)
    return compare(plain.tolist(), other.tolist(), seed=seed)
