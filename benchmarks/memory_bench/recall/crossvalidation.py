"""Nested cross-validation over labelled sets: measures a fusion setting on a set that had no part in its choice.

The outer loop leaves one set out. On the other sets the setting is chosen by its advantage over the better of the two
legs on that set, since fusion is of no use where a leg alone is better. Then the setting is measured on the set that
was left out. Two rules of choice are compared: the best mean over the sets, and the best minimum over the sets.
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
    """The scores of every fusion setting and of both legs on one set, as arrays of shape (measures, questions)."""

    name: str
    strata: tuple[str, ...]
    settings: Mapping[str, NDArray[np.float64]]
    legs: Mapping[str, NDArray[np.float64]]

    @property
    def better_leg(self) -> str:
        """The name of the leg with the greater mean over all measures and questions."""
        return max(self.legs, key=lambda name: float(self.legs[name].mean()))

    def advantage(self, setting: str) -> float:
        """Return the mean of a setting over all measures and questions, minus that of the better leg."""
        return float(self.settings[setting].mean() - self.legs[self.better_leg].mean())

    def against_better_leg(self, setting: str, measure: str, *, seed: int) -> Comparison:
        """Compare a setting, question by question, with the leg whose mean in this measure is greater."""
        row = MEASURES.index(measure)
        leg = max(self.legs.values(), key=lambda one: float(one[row].mean()))
        return compare(leg[row].tolist(), self.settings[setting][row].tolist(), seed=seed)


@dataclass(frozen=True, slots=True)
class Fold:
    """The setting that was chosen without the set `left_out`, and its gains over the better leg on that set.

    `regret` is how much worse it does on that set than the setting that is best there.
    """

    left_out: str
    rule: Rule
    chosen: str
    gains: Mapping[str, Comparison]
    regret: float


def score_set(name: str, evidence: Sequence[Evidence], settings: Mapping[str, Setting]) -> SetScores:
    """Score every setting and both legs on one set."""
    ranked = {one: [setting.rank(found, measures.DEPTH) for found in evidence] for one, setting in settings.items()}
    legs = {"lexical": [found.lexical[: measures.DEPTH] for found in evidence]}
    legs["dense"] = [found.dense[: measures.DEPTH] for found in evidence]
    strata = tuple(found.query.stratum for found in evidence)
    return SetScores(
        name,
        strata,
        {one: score_rankings(rankings, evidence) for one, rankings in ranked.items()},
        {one: score_rankings(rankings, evidence) for one, rankings in legs.items()},
    )


def score_rankings(rankings: Sequence[Sequence[int]], evidence: Sequence[Evidence]) -> NDArray[np.float64]:
    """Return recall@10 and nDCG@10 of the ranking for each question, shape (2, questions)."""
    scores = [measures.score(one, found.query.relevant).named() for one, found in zip(rankings, evidence, strict=True)]
    return np.array([[one[measure] for one in scores] for measure in MEASURES])


def cross_validate(sets: Sequence[SetScores], *, seed: int) -> list[Fold]:
    """Return a fold for each set left out, under each of the two rules of choice."""
    folds = []
    for rule in RULES:
        for held_out in sets:
            chosen = choose([one for one in sets if one is not held_out], rule)
            gains = {measure: held_out.against_better_leg(chosen, measure, seed=seed) for measure in MEASURES}
            best = max(held_out.advantage(setting) for setting in held_out.settings)
            folds.append(Fold(held_out.name, rule, chosen, gains, best - held_out.advantage(chosen)))
    return folds


def choose(sets: Sequence[SetScores], rule: Rule) -> str:
    """Return the name of the setting whose advantage on these sets has the best mean or minimum, as the rule says."""
    summarise = np.mean if rule == "mean" else np.min
    return max(sets[0].settings, key=lambda setting: float(summarise([one.advantage(setting) for one in sets])))
