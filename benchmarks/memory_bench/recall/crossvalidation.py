"""Nested cross-validation over sets: what choosing a fusion on some sets is worth on a set that had no say.

The outer loop leaves one set out. On the others the setting is chosen by how it does against the better of its own two
legs, since a store on which fusing loses to a leg is better off without it; the set that was left out then says what
the choice was worth. Two rules of choice are compared: the best mean over sets, and the best of the worst set.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from memory_bench.recall.evidence import Evidence
from memory_bench.recall.settings import Setting
from memory_recall.evaluation import measures
from memory_recall.evaluation.significance import Comparison, compare

Rule = Literal["mean", "worst"]
RULES: tuple[Rule, ...] = ("mean", "worst")
MEASURES = ("recall@10", "ndcg@10")


@dataclass(frozen=True, slots=True)
class SetScores:
    """One set: the scores of every setting and of both legs, question by question; rows are measures."""

    name: str
    strata: tuple[str, ...]
    settings: Mapping[str, NDArray[np.float64]]
    legs: Mapping[str, NDArray[np.float64]]

    @property
    def better_leg(self) -> str:
        """The leg with the greater mean of both measures."""
        return max(self.legs, key=lambda name: float(self.legs[name].mean()))

    def advantage(self, setting: str) -> float:
        """How far the setting is above the better leg, mean of both measures."""
        return float(self.settings[setting].mean() - self.legs[self.better_leg].mean())

    def against_better_leg(self, setting: str, measure: str, *, seed: int) -> Comparison:
        """The paired comparison with the leg that is better in this measure."""
        row = MEASURES.index(measure)
        leg = max(self.legs.values(), key=lambda one: float(one[row].mean()))
        return compare(leg[row].tolist(), self.settings[setting][row].tolist(), seed=seed)


@dataclass(frozen=True, slots=True)
class Fold:
    """What was chosen without one set, and what it is worth there."""

    left_out: str
    rule: Rule
    chosen: str
    gains: Mapping[str, Comparison]
    regret: float  # behind the setting that is best on this very set


def score_set(name: str, evidence: Sequence[Evidence], settings: Mapping[str, Setting]) -> SetScores:
    """Score every setting on one set."""
    ranked = {one: [setting.rank(found, measures.DEPTH) for found in evidence] for one, setting in settings.items()}
    legs = {"words": [found.lexical[: measures.DEPTH] for found in evidence]}
    legs["meaning"] = [found.dense[: measures.DEPTH] for found in evidence]
    strata = tuple(found.query.stratum for found in evidence)
    return SetScores(
        name,
        strata,
        {one: _measured(rankings, evidence) for one, rankings in ranked.items()},
        {one: _measured(rankings, evidence) for one, rankings in legs.items()},
    )


def _measured(rankings: Sequence[Sequence[int]], evidence: Sequence[Evidence]) -> NDArray[np.float64]:
    scores = [measures.score(one, found.query.relevant).named() for one, found in zip(rankings, evidence, strict=True)]
    return np.array([[one[measure] for one in scores] for measure in MEASURES])


def cross_validate(sets: Sequence[SetScores], *, seed: int) -> list[Fold]:
    """Leave each set out once, under both rules."""
    folds = []
    for rule in RULES:
        for held_out in sets:
            chosen = choose([one for one in sets if one is not held_out], rule)
            gains = {measure: held_out.against_better_leg(chosen, measure, seed=seed) for measure in MEASURES}
            best = max(held_out.advantage(setting) for setting in held_out.settings)
            folds.append(Fold(held_out.name, rule, chosen, gains, best - held_out.advantage(chosen)))
    return folds


def choose(sets: Sequence[SetScores], rule: Rule) -> str:
    """The setting that the rule prefers on these sets."""
    summarise = np.mean if rule == "mean" else np.min
    return max(sets[0].settings, key=lambda setting: float(summarise([one.advantage(setting) for one in sets])))
