"""The relevance of a recalled memory: how likely it answers the query at all, comparable between tables.

The scores of a fusion order the memories of one recall, and say nothing about whether any of them fits. Relevance is a
logistic function of two numbers that the recall's statement has anyway. Each is a quarter the memory's own and three
quarters that of the best memory of the recall, since a query to which one memory fits often has several that do:

- the cosine, as its way from the table's usual cosine to 1. The usual cosine, which a worker finds without labels, is
  that of the nearest memory to prompts to which none fits.
- the BM25 score, as a share of the score of a memory of mean length with every word of the query.

Where the dense leg took no part, and for a memory without a vector, such as a sensitive one, words alone decide. They
tell less, so that more has to be let through.

Relevance is calibrated with all-MiniLM-L6-v2, for as many relevant memories as there are memories that a prompt without
an answer recalls. With other models it is lower than it should be. ADR 41 says how the weights were found, what they
keep and what they hold back.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Literal

from memory_recall.errors import InvalidInput

Level = Literal["everything", "likely", "certain"]

_OWN_SHARE = 0.25
_INTERCEPT, _CLOSENESS_WEIGHT, _WORDS_WEIGHT = -5.803, 19.336, 4.152
_WORDS_ALONE_INTERCEPT, _WORDS_ALONE_WEIGHT = -4.584, 9.27


class RelevanceBasis(StrEnum):
    """What the relevance of a recall's memories was computed from, or the reason why it was not."""

    NOT_ASKED = "NotAskedFor"
    MEANING_AND_WORDS = "MeaningAndWords"
    WORDS = "WordsAlone"
    NOT_FOUND_YET = "UsualCosineNotFoundYet"
    NO_WORD_SCORES = "NoWordScores"

    @property
    def known(self) -> bool:
        """Whether relevance was computed."""
        return self in {RelevanceBasis.MEANING_AND_WORDS, RelevanceBasis.WORDS}


UNKNOWN_RELEVANCE: Mapping[RelevanceBasis, str] = {
    RelevanceBasis.NOT_FOUND_YET: "the usual cosine of this table is not found yet; backfill and sync find it",
    RelevanceBasis.NO_WORD_SCORES: "relevance is only known of hybrid and lexical recalls that are ordered by score",
}
"""Why relevance is not known although it was asked for, to be shown to a person."""


@dataclass(frozen=True, slots=True)
class LeastRelevance:
    """The least relevance (0 to 1) of a memory that is returned, by meaning and words, and by words alone."""

    by_meaning: float
    by_words: float

    def met_by(self, relevance: float, *, by_words: bool) -> bool:
        """Return whether a memory of this relevance is returned; `by_words` says whether words alone decided it."""
        return relevance >= (self.by_words if by_words else self.by_meaning)


LEVELS: Mapping[Level, LeastRelevance | None] = {
    "everything": None,
    "likely": LeastRelevance(0.15, 0.1),
    "certain": LeastRelevance(0.8, 0.8),
}
"""The named levels; with `everything` no relevance is computed. `likely` keeps about as much on either basis."""


@dataclass(frozen=True, slots=True)
class RelevanceScale:
    """What the relevance of a recall's memories is measured by.

    These are the best cosine and the best BM25 score that the recall has seen, the BM25 score of a memory of mean
    length with every word of the query, and the table's usual cosine (below 1), which is None until it is found. The
    cosines are None if the dense leg took no part.
    """

    most_dense: float | None
    most_lexical: float | None
    max_lexical_score: float | None
    usual_cosine: float | None = None

    def relevance_of(self, row: Mapping[str, Any]) -> float:
        """Return the relevance, from 0 to 1, of a row with `dense_score` and `lexical_score`.

        Words alone decide if the row or the recall has no cosine.
        """
        closeness, words = self.closeness_of(row), self.words_of(row)
        if closeness is None:
            return _logistic(_WORDS_ALONE_INTERCEPT + _WORDS_ALONE_WEIGHT * words)
        return _logistic(_INTERCEPT + _CLOSENESS_WEIGHT * closeness + _WORDS_WEIGHT * words)

    def closeness_of(self, row: Mapping[str, Any]) -> float | None:
        """Return how far the cosines are on the way from the usual cosine to 1; None if the row or the recall has none.

        It is below 0 for what is farther than the nearest memory usually is.
        """
        if row["dense_score"] is None or self.most_dense is None or self.usual_cosine is None:
            return None
        cosine: float = _blend(row["dense_score"], self.most_dense)
        return (cosine - self.usual_cosine) / (1.0 - self.usual_cosine)

    def words_of(self, row: Mapping[str, Any]) -> float:
        """Return the BM25 scores as a share of that of a memory of mean length with every word of the query."""
        words = _blend(row["lexical_score"] or 0.0, self.most_lexical or 0.0)
        return words / self.max_lexical_score if self.max_lexical_score else 0.0

    def suffices(self, row: Mapping[str, Any], least: LeastRelevance) -> bool:
        """Return whether a row is relevant enough. It has `dense_score` and `relevance`, as this scale computed it."""
        return least.met_by(row["relevance"], by_words=self.by_words(row["dense_score"]))

    def by_words(self, dense_score: float | None) -> bool:
        """Return whether words alone decide the relevance of a row, since it or the recall has no cosine."""
        return dense_score is None or self.most_dense is None or self.usual_cosine is None


SCALE_FIELDS = tuple(one.name for one in fields(RelevanceScale) if one.name != "usual_cosine")
"""What the statement of a recall adds to each row, if relevance is asked for; the gate has the usual cosine."""


def least_relevance_named(level: str) -> Level | float:
    """Return a level, or a number from 0 to 1, that is written as a text.

    Raises:
        InvalidInput: it is neither.
    """
    named: dict[str, Level] = {name: name for name in LEVELS}
    if level in named:
        return named[level]
    try:
        number = float(level)
    except ValueError:
        number = math.nan
    if not 0 <= number <= 1:
        raise InvalidInput(
            f"{level[:40]!r} is no least relevance.", f"Give {', '.join(LEVELS)}, or a number from 0 to 1."
        )
    return number


def least_relevance_of(level: Level | float) -> LeastRelevance | None:
    """Return what a level or a number from 0 to 1 demands, or None if it demands no relevance."""
    return LEVELS[level] if isinstance(level, str) else LeastRelevance(level, level)


def _blend(own: float, best: float) -> float:
    return _OWN_SHARE * own + (1.0 - _OWN_SHARE) * best


def _logistic(log_odds: float) -> float:
    return 0.5 + 0.5 * math.tanh(log_odds / 2.0)  # where exp() would overflow
