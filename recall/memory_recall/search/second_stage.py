"""The second stage of a recall: a reranker orders the first results anew, if it answers in time.

A reranker reads the query and a memory's text together, which takes too long for more than the first few results. The
texts of sensitive memories are never sent to it, so these memories keep their places, and the others are ordered among
themselves. Whatever goes wrong, the recall has the order of its fusion, and its result says why.

After a failure or a time-out, recalls are not reranked for a few seconds. Otherwise a reranker that is too slow would
delay every recall for nothing.
"""

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from memory_recall.errors import EmbedderRejected, EmbedderUnauthorized, InvalidInput, ModelMismatch
from memory_recall.search.fusion import SortBy
from memory_recall.search.query import MAX_LIMIT, RecallQuery
from memory_recall.search.result import Reranking

Rows = list[Mapping[str, Any]]

RERANKING_SECONDS = 0.5
DEPTH = 30
_MOST_DEPTH = 100
_PAUSE_SECONDS = 5.0
_ANSWER_SECONDS = 0.05  # of the recall's time budget, which are left for the answer
_MOST_CHARACTERS = 4096  # of the query and of each text; a reranker reads some 512 tokens
_REASONS = (
    (EmbedderUnauthorized, Reranking.UNAUTHORIZED),
    (EmbedderRejected, Reranking.REFUSED),
    (ModelMismatch, Reranking.REFUSED),  # there is no reranker at that address
    (TimeoutError, Reranking.TIMEOUT),
)


class Reranker(Protocol):
    """A reranker, such as `EmbedderClient`. One with an attribute `hosted` that is true gets no sensitive query."""

    async def rerank(self, query: str, texts: Sequence[str], /) -> Sequence[float]:
        """Return the score of each text, in the order of the texts; a higher score is better."""
        ...


class SecondStage:
    """Reranks the first `depth` results (2 to 100) of recalls by relevance, within `budget` seconds each.

    The reranker is closed by the caller.

    Raises:
        InvalidInput: `depth` or `budget` is out of range.
    """

    def __init__(self, reranker: Reranker, *, depth: int = DEPTH, budget: float = RERANKING_SECONDS) -> None:
        if not 2 <= depth <= _MOST_DEPTH or budget <= 0:
            raise InvalidInput(
                f"A second stage of {depth} results within {budget:g} s is out of range.",
                f"Give a `depth` from 2 to {_MOST_DEPTH} and a `budget` above zero.",
            )
        self.budget = budget
        self._reranker = reranker
        self._depth = depth
        self._paused_until = 0.0  # by the monotonic clock

    def widened(self, query: RecallQuery) -> RecallQuery:
        """Return the query for all results that have to be known before the page of `query` is."""
        if self._skips(query):
            return query
        return replace(query, limit=min(MAX_LIMIT, max(query.offset + query.limit, self._depth)), offset=0)

    async def rerank(self, query: RecallQuery, rows: Rows, seconds_left: float) -> tuple[Rows, Reranking]:
        """Return the page of `query`, and whether it was reranked or why not.

        `rows` are the results of the widened query, in the order of the fusion. `seconds_left` is what is left of the
        recall's time budget.
        """
        skipped = self._skips(query)
        if skipped is not None:
            return rows, skipped
        ordered, outcome = await self._ordered(query, rows, seconds_left - _ANSWER_SECONDS)
        return ordered[query.offset : query.offset + query.limit], outcome

    def _skips(self, query: RecallQuery) -> Reranking | None:
        if not query.ranked or query.sort_by is not SortBy.RELEVANCE:
            return Reranking.OTHER_ORDER
        return Reranking.BEYOND_DEPTH if query.offset >= self._depth else None

    async def _ordered(self, query: RecallQuery, rows: Rows, seconds_left: float) -> tuple[Rows, Reranking]:
        places = sendable(rows[: self._depth])
        if len(places) < 2:
            return rows, Reranking.NOTHING_TO_RERANK
        if query.sensitive and getattr(self._reranker, "hosted", False):
            return rows, Reranking.SENSITIVE_QUERY
        if time.monotonic() < self._paused_until:
            return rows, Reranking.PAUSED
        texts = [rows[place]["content"][:_MOST_CHARACTERS] for place in places]
        try:
            async with asyncio.timeout(min(self.budget, max(0.0, seconds_left))):
                scores = list(await self._reranker.rerank(query.text[:_MOST_CHARACTERS], texts))
            return reordered(rows, places, scores), Reranking.DONE
        except Exception as error:  # noqa: BLE001  (a recall never fails because a reranker of any make did)
            self._paused_until = time.monotonic() + _PAUSE_SECONDS
            return rows, next((reason for kind, reason in _REASONS if isinstance(error, kind)), Reranking.FAILED)


def sendable(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the places of the rows whose text may be sent: those of memories that are known not to be sensitive."""
    return [place for place, row in enumerate(rows) if row["is_sensitive"] is False and (row["content"] or "").strip()]


def reordered(rows: Rows, places: Sequence[int], scores: Sequence[float]) -> Rows:
    """Return the rows with those at `places` ordered by their scores, best first; the others keep their places.

    Of equal scores, the row that was first stays first. So does the newest of memories that supersede one another.

    Raises:
        ValueError: there is not one finite score for each place.
    """
    if not all(map(math.isfinite, scores)):
        raise ValueError("a score is not finite")
    newest_first = _best_to_the_newest([rows[place] for place in places], scores)
    best = sorted(zip(newest_first, places, strict=True), key=lambda scored: -scored[0])
    result = list(rows)
    for place, (_, source) in zip(places, best, strict=True):
        result[place] = rows[source]
    return result


def _best_to_the_newest(rows: Rows, scores: Sequence[float]) -> list[float]:
    """Return the scores, after the best ones of superseded memories and their successor were given to the newest ones.

    The rows are in the order of the fusion, in which newer ones of such memories stand before older ones.
    """
    families: dict[int, list[int]] = defaultdict(list)
    for place, (row, _) in enumerate(zip(rows, scores, strict=True)):
        successor = row.get("superseded_by")
        families[row["id"] if successor is None else successor].append(place)
    result = list(scores)
    for family in families.values():
        for place, score in zip(family, sorted((scores[one] for one in family), reverse=True), strict=True):
            result[place] = score
    return result
