"""Holds back the memories of a page that are less relevant than their query demands."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memory_recall.search.relevance import SCALE_FIELDS, RelevanceBasis, RelevanceScale, least_relevance_of
from memory_recall.search.sql.execution import Answer
from memory_recall.search.sql.plan import RecallPlan

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class RelevantRows:
    """The rows of a page that are relevant enough, each with its `relevance`, and how many are held back."""

    rows: Rows
    basis: RelevanceBasis
    scale: RelevanceScale | None = None
    held_back: int = 0


def relevant_rows(plan: RecallPlan, answer: Answer, found: Rows) -> RelevantRows:
    """Return those of the found rows that are as relevant as the query demands.

    Nothing is held back, and no row has a relevance, if the query demands nothing or relevance is not known.
    """
    least = least_relevance_of(plan.query.least_relevance)
    if least is None:
        return RelevantRows(found, RelevanceBasis.NOT_ASKED)
    if not plan.computes_relevance:
        return RelevantRows(found, RelevanceBasis.NO_WORD_SCORES)
    meaning = plan.dense is not None and answer.reason is None
    usual = answer.active.usual_cosine if meaning and answer.active is not None else None
    if meaning and usual is None:
        return RelevantRows(found, RelevanceBasis.NOT_FOUND_YET)
    scale = RelevanceScale(**{name: answer.rows[0][name] for name in SCALE_FIELDS}, usual_cosine=usual)
    rated = [{**row, "relevance": scale.relevance_of(row)} for row in found]
    kept = [row for row in rated if scale.suffices(row, least)]
    basis = RelevanceBasis.MEANING_AND_WORDS if meaning else RelevanceBasis.WORDS
    return RelevantRows(kept, basis, scale, len(rated) - len(kept))
