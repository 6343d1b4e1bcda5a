"""Decides by the rules of ADR 26 whether the graph leg is adopted, may be opted in to, or is rejected."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from memory_bench.graph.choice import (
    LARGEST_LOSS,
    MULTIHOP,
    RECALL,
    choose,
    corrected_p,
    gains_of,
    greatest_by_chance,
    has_multihop,
    multihop,
    nested,
    pooled_gains,
)
from memory_bench.graph.sets import MEASURES, GraphScores
from memory_recall.evaluation.significance import Comparison, compare

Verdict = Literal["adopted", "opt-in", "rejected"]
Gains = Mapping[str, Comparison]
"""How the scores change by measure."""

OWN_SET = "homelab"
LEAST_QUESTIONS = 600
ADOPTED_GAIN, OPT_IN_GAIN = 0.02, 0.01
LARGEST_P = 0.01
_WORSE = 0.05
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the rules look at.

    `multihop` is over the multi-hop questions of all sets together, and `p` corrected for the number of settings;
    `sets` is over all questions of each set. Both are out of fold. `own` is by what the public sets choose: over our
    own set and over each of its strata; it is empty if our own set was not measured.
    """

    questions: int
    multihop: Gains
    p: float
    sets: Mapping[str, Gains]
    own: Mapping[str, Gains]
    beyond: int
    missing: int

    def worst(self, measure: str) -> float:
        """Return the change of the measure on the set that fares worst."""
        return min(gains[measure].difference for gains in self.sets.values())

    @property
    def verdict(self) -> Verdict:
        """What the rules say."""
        kept = self.multihop["ndcg@10"].difference >= -_ROUNDING and self.p < LARGEST_P
        gain = self.multihop["recall@10"].difference
        bounded = all(_within(gains) for gains in self.sets.values()) and all(
            not _worse(gains) if stratum else _within(gains) for stratum, gains in self.own.items()
        )
        if kept and gain >= ADOPTED_GAIN and self.questions >= LEAST_QUESTIONS and bounded:
            return "adopted"
        harmless = not any(
            _worse(gains) for gains in (*self.sets.values(), *(self.own[one] for one in self.own if not one))
        )
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


def judge(sets: Sequence[GraphScores], *, seed: int, also: Sequence[Sequence[GraphScores]] = ()) -> Outcome:
    """Judge each set by what the others choose, and our own set by what the public ones choose.

    `also` holds scores of the same sets in further settings that were tried, for which p is corrected as well.

    Raises:
        ValueError: no set has a multi-hop question.
    """
    if not has_multihop(sets):
        raise ValueError(f"no question of these sets has the stratum {MULTIHOP!r}")
    folds = nested(sets)
    together = np.concatenate(
        [gains_of(one, each.setting)[multihop(one)] for one, each in zip(sets, folds, strict=True)]
    )
    gains = _compare(together, seed=seed)
    tried = np.concatenate([pooled_gains(one)[:, :, RECALL] for one in (sets, *also)])
    return Outcome(
        questions=len(together),
        multihop=gains,
        p=corrected_p(greatest_by_chance(tried, seed=seed), gains["recall@10"].difference),
        sets={
            one.name: _compare(gains_of(one, each.setting), seed=seed) for one, each in zip(sets, folds, strict=True)
        },
        own=_own(sets, seed=seed),
        beyond=sum(
            int(one.beyond[each.setting].sum())
            for one, each in zip(sets, folds, strict=True)
            if each.setting is not None
        ),
        missing=sum(int(one.missing.sum()) for one in sets),
    )


def chosen_by_public_sets(sets: Sequence[GraphScores]) -> int | None:
    """Return the place of the setting that all sets but our own choose, which is what would be shipped."""
    return choose([one for one in sets if one.name != OWN_SET])[0]


def _own(sets: Sequence[GraphScores], *, seed: int) -> dict[str, Gains]:
    """Return the gains on our own set under "", and those on each of its strata under its name."""
    own = next((one for one in sets if one.name == OWN_SET), None)
    if own is None or len(sets) == 1:
        return {}
    gains = gains_of(own, chosen_by_public_sets(sets))
    strata = np.array(own.strata)
    return {"": _compare(gains, seed=seed)} | {
        stratum: _compare(gains[strata == stratum], seed=seed) for stratum in sorted(set(own.strata))
    }


def _compare(gains: "np.typing.NDArray[np.float64]", *, seed: int) -> Gains:
    return {
        measure: compare([0.0] * len(gains), gains[:, place].tolist(), seed=seed)
        for place, measure in enumerate(MEASURES)
    }


def _within(gains: Gains) -> bool:
    return all(gains[measure].difference >= -loss - _ROUNDING for measure, loss in LARGEST_LOSS.items())


def _worse(gains: Gains) -> bool:
    return any(one.difference < 0 and one.p_value < _WORSE for one in gains.values())
