"""Decides which pairs are restatements, and proposes what to do with the older memory of each.

A pair's score is a logistic function of its features. The weights were fitted to the restatements of 27 people's notes,
those of examples/homelab among them (ADR 34). `make bench-curation` judges such a fit on chains that it was not made
from.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from memory_recall.contrib.curation.features import (
    CHANGE,
    NOVELTY,
    REPETITION,
    Features,
    Frequencies,
    Pair,
    compute_features,
)
from memory_recall.schema.columns.keys import MemoryId

BIAS = -9.91
WEIGHTS: Mapping[str, float] = {
    "cosine": 1.15,
    "term_overlap": 7.65,
    "tag_overlap": 1.95,
    "shared_tags": -0.03,
    "rarest_term": 3.51,
    "lead_over_older": 1.44,
    "lead_over_newer": 0.92,
    "cue": 0.82,
    "newer_words": 1.04,
}
THRESHOLD = 0.5
_WORTH_SHOWING = 0.25  # below it, a pair is not even shown as one that stays as it is
_NOTHING_NEW = 0.8  # share of the newer memory's words, by their weights, that the older one has


class Action(StrEnum):
    """What a newer memory is to an older one.

    ADD: another memory, and both stay. UPDATE: it says the older one again, with more. SUPERSEDE: the older one is no
    longer true. NOOP: it says the older one again, with nothing more, and both stay.
    """

    ADD = "ADD"
    UPDATE = "UPDATE"
    SUPERSEDE = "SUPERSEDE"
    NOOP = "NOOP"


APPLIED = (Action.UPDATE, Action.SUPERSEDE)
"""The actions by which the newer memory supersedes the older one."""


class Decider(StrEnum):
    """Whose score a proposal is made by: the rules' alone, or a language model's and the rules' together."""

    RULES = "rules"
    MODEL = "model"


@dataclass(frozen=True, slots=True)
class Judgement:
    """A pair with its score (0 to 1), what is proposed for it, and by whose score."""

    pair: Pair
    score: float
    action: Action
    decided_by: Decider = Decider.RULES


def score(features: Features) -> float:
    """Return how likely a pair with these features is a restatement, from 0 to 1."""
    logit = BIAS + sum(weight * getattr(features, name) for name, weight in WEIGHTS.items())
    return 1 / (1 + math.exp(-logit))


def judge(pairs: Sequence[Pair], frequencies: Frequencies, *, threshold: float = THRESHOLD) -> list[Judgement]:
    """Return what is proposed for the pairs that are worth showing, best first.

    Of the pairs of one older memory that reach the threshold, the best one is proposed: a memory has one successor.
    """
    return choose(pairs, score_all(pairs, frequencies), frequencies, threshold=threshold)


def score_all(pairs: Sequence[Pair], frequencies: Frequencies) -> list[float]:
    """Return how likely each of the pairs that were found together is a restatement, from 0 to 1."""
    return [score(features) for features in compute_features(pairs, frequencies)]


def choose(
    pairs: Sequence[Pair], scores: Sequence[float], frequencies: Frequencies, *, threshold: float
) -> list[Judgement]:
    """Return what is proposed for pairs with these scores, as `judge` does."""
    ordered = sorted(zip(scores, pairs, strict=True), key=lambda one: (-one[0], one[1].newer.id, one[1].older.id))
    judged: list[Judgement] = []
    succeeded: set[MemoryId] = set()
    for value, pair in ordered:
        if value >= threshold and pair.older.id not in succeeded:
            succeeded.add(pair.older.id)
            judged.append(Judgement(pair, value, kind(pair, frequencies)))
        elif threshold > value >= threshold * _WORTH_SHOWING:
            judged.append(Judgement(pair, value, Action.ADD))
    return judged


def kind(pair: Pair, frequencies: Frequencies) -> Action:
    """Return which of UPDATE, SUPERSEDE and NOOP fits a pair that is a restatement, by the words of the newer text."""
    newer = pair.newer.content
    if not REPETITION.search(newer) and (CHANGE.search(newer) or NOVELTY.search(newer)):
        return Action.SUPERSEDE
    weights = {term: frequencies.term_weight(term) for term in pair.newer.terms}
    known = sum(weight for term, weight in weights.items() if term in pair.older.terms)
    return Action.NOOP if known >= _NOTHING_NEW * sum(weights.values()) else Action.UPDATE
