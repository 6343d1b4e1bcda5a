"""Decides by the rules of ADR 26 whether the graph leg is adopted, may be opted in to, or is rejected."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from memory_bench.graph.choice import MULTIHOP, choose, has_multihop, multihop, nested, pooled_gains
from memory_bench.graph.sets import GraphMeasurements, GraphScores
from memory_bench.studies.gains import (
    OWN_SET,
    ROUNDING,
    Gains,
    compare_gains,
    corrected_p,
    gains_of,
    greatest_by_chance,
    is_bounded,
    is_worse,
    own_gains,
    without,
)
from memory_bench.studies.questions import RECALL

Verdict = Literal["adopted", "opt-in", "rejected"]

LEAST_QUESTIONS = 600
ADOPTED_GAIN, OPT_IN_GAIN = 0.02, 0.01
LARGEST_P = 0.01


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the rules look at.

    `multihop` is over the multi-hop questions of all sets together, and `p` corrected for the number of settings;
    `sets` is over all questions of each set, and `prompts` over the same inside prompts, where these were measured. All
    are out of fold. `own` is by what the public sets choose: over our own set and over each of its strata; it is empty
    if our own set was not measured.
    """

    questions: int
    multihop: Gains
    p: float
    sets: Mapping[str, Gains]
    prompts: Mapping[str, Gains]
    own: Mapping[str, Gains]
    beyond: int
    missing: int

    def worst(self, measure: str) -> float:
        """Return the change of the measure on the set that fares worst."""
        return min(gains[measure].difference for gains in self.sets.values())

    @property
    def _whole(self) -> list[Gains]:
        return [*self.sets.values(), *self.prompts.values(), *(self.own[one] for one in self.own if not one)]

    @property
    def verdict(self) -> Verdict:
        """What the rules say."""
        kept = self.multihop["ndcg@10"].difference >= -ROUNDING and self.p < LARGEST_P
        gain = self.multihop["recall@10"].difference
        strata = [gains for stratum, gains in self.own.items() if stratum]
        bounded = all(map(is_bounded, self._whole)) and not any(map(is_worse, strata))
        if kept and gain >= ADOPTED_GAIN and self.questions >= LEAST_QUESTIONS and bounded:
            return "adopted"
        harmless = not any(map(is_worse, self._whole))
        return "opt-in" if kept and gain >= OPT_IN_GAIN and harmless else "rejected"

    def figures(self) -> dict[str, object]:
        """Return the main figures, as the last line of output has them."""
        return {
            "multihop_questions": self.questions,
            "recall@10_gain": round(self.multihop["recall@10"].difference, 4),
            "p": round(self.p, 4),
            "ndcg@10_gain": round(self.multihop["ndcg@10"].difference, 4),
            "worst_set_recall@10": round(self.worst("recall@10"), 4),
            "worst_set_ndcg@10": round(self.worst("ndcg@10"), 4),
            "reached_beyond_both_legs": self.beyond,
            "verdict": self.verdict,
        }


def judge(measured: Sequence[GraphMeasurements], *, seed: int, near: Sequence[Sequence[GraphScores]] = ()) -> Outcome:
    """Judge the second family: each set by what the others choose, and our own set by what the public ones choose.

    p is corrected for the first family as well, and for `near`, the scores of the same sets with near concepts merged.
    """
    sets, prompts = [one.second for one in measured], [one.prompts for one in measured]
    first = [one.first for one in measured]
    return judge_family(sets, prompts, seed=seed, also=(first, *near))


def judge_family(
    sets: Sequence[GraphScores],
    prompts: Sequence[GraphScores] = (),
    *,
    seed: int,
    also: Sequence[Sequence[GraphScores]] = (),
) -> Outcome:
    """Judge one family of settings; p is corrected for the settings in `also`, too.

    Raises:
        ValueError: no set has a multi-hop question.
    """
    if not has_multihop(sets):
        raise ValueError(f"no question of these sets has the stratum {MULTIHOP!r}")
    folds = nested(sets, prompts)
    pairs = list(zip(sets, folds, strict=True))
    together = np.concatenate([gains_of(one, each.setting)[multihop(one)] for one, each in pairs])
    gains = compare_gains(together, seed=seed)
    tried = np.concatenate([pooled_gains(one)[:, :, RECALL] for one in (sets, *also)])
    return Outcome(
        questions=len(together),
        multihop=gains,
        p=corrected_p(greatest_by_chance(tried, seed=seed), gains["recall@10"].difference),
        sets={one.name: compare_gains(gains_of(one, each.setting), seed=seed) for one, each in pairs},
        prompts={
            one.name: compare_gains(gains_of(one, each.setting), seed=seed)
            for one, each in zip(prompts, folds, strict=bool(prompts))
        },
        own=own_gains(sets, chosen_by_public_sets(sets, prompts), seed=seed),
        beyond=sum(int(one.beyond[each.setting].sum()) for one, each in pairs if each.setting is not None),
        missing=sum(int(one.missing.sum()) for one in sets),
    )


def chosen_by_public_sets(sets: Sequence[GraphScores], prompts: Sequence[GraphScores] = ()) -> int | None:
    """Return the place of the setting that all sets but our own choose, which is what would be shipped."""
    return choose(without(sets, OWN_SET), without(prompts, OWN_SET))[0]
