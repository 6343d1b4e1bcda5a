"""Nested cross-validation over labelled sets: chooses a fusion setting on some sets and measures it on another.

The outer loop leaves each set out in turn. A fusion setting is chosen on the remaining sets by its advantages, and is
then measured on the set that was left out. The advantage on a set is the setting's score minus the score of the lexical
or the dense leg alone, whichever is better on that set, since fusion is useless where one leg alone is better. Two
rules of choice are compared: the greatest mean and the greatest minimum of the advantages.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from memory_bench.harness.scoring import Scorer
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
        """The name of the leg with the greater mean score over all measures and questions."""
        return max(self.legs, key=lambda name: float(self.legs[name].mean()))

    def advantage(self, setting: str) -> float:
        """Return the mean score of a setting over all measures and questions, minus the better leg's mean score."""
        return float(self.settings[setting].mean() - self.legs[self.better_leg].mean())

    def against_better_leg(self, setting: str, measure: str, *, seed: int) -> Comparison:
        """Compare a setting, question by question, with the leg whose mean score in this measure is greater."""
        row = MEASURES.index(measure)
        leg = max(self.legs.values(), key=lambda one: float(one[row].mean()))
        return compare(leg[row].tolist(), self.settings[setting][row].tolist(), seed=seed)


@dataclass(frozen=True, slots=True)
class Fold:
    """The result for one set that was left out of the choice of a setting.

    `chosen` is the setting that was chosen on the other sets. `gains` compares the chosen setting with the better leg
    on the set `left_out`. `regret` is by how much the best setting for that set outperforms the chosen setting there.
    """

    left_out: str
    rule: Rule
    chosen: str
    gains: Mapping[str, Comparison]
    regret: float


def score_set(name: str, evidence: Sequence[Evidence], settings: Mapping[str, Setting]) -> SetScores:
    """Score every setting and both legs on one set."""
    ranked = {one: [setting.rank(found, measures.DEPTH) for found in evidence] for one, setting in settings.items()}
    scorer = Scorer([found.query for found in evidence])
    legs = {"lexical": [found.lexical[: measures.DEPTH] for found in evidence]}
    legs["dense"] = [found.dense[: measures.DEPTH] for found in evidence]
    strata = tuple(found.query.stratum for found in evidence)
    return SetScores(
        name,
        strata,
        {one: score_rankings(rankings, scorer) for one, rankings in ranked.items()},
        {one: score_rankings(rankings, scorer) for one, rankings in legs.items()},
    )


def score_rankings(rankings: Sequence[Sequence[int]], scorer: Scorer) -> NDArray[np.float64]:
    """Return recall@10 and nDCG@10 of the ranking for each question, shape (2, questions)."""
    scores = scorer.score(rankings)
    return np.array([[one[measure] for one in scores] for measure in MEASURES])


def cross_validate(sets: Sequence[SetScores], *, seed: int) -> list[Fold]:
    """Return one fold for each set and each rule of choice; the set is left out of the choice."""
    folds = []
    for rule in RULES:
        for held_out in sets:
            chosen = choose([one for one in sets if one is not held_out], rule)
            gains = {measure: held_out.against_better_leg(chosen, measure, seed=seed) for measure in MEASURES}
            best = max(held_out.advantage(setting) for setting in held_out.settings)
            folds.append(Fold(held_out.name, rule, chosen, gains, best - held_out.advantage(chosen)))
    return folds


def choose(sets: Sequence[SetScores], rule: Rule) -> str:
    """Return the name of the setting whose advantages on these sets have the greatest mean or minimum.

    `rule` says whether the mean or the minimum decides.
    """
    summarise = np.mean if rule == "mean" else np.min
    return max(sets[0].settings, key=lambda setting: float(summarise([one.advantage(setting) for one in sets])))
