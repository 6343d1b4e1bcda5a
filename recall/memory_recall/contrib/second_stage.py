"""A recall with a second stage: a reranker orders the first results anew, if it answers in time.

A reranker reads the query and a memory's text together, which takes too long for more than the first few results. The
texts of sensitive memories are never sent to it, so these memories keep their places, and the others are ordered among
themselves. Whatever goes wrong, the recall has the order of its fusion, and its result says why.

After a failure or a time-out, recalls are not reranked for a few seconds. Otherwise a reranker that is too slow would
delay every recall for nothing. One that a recall has too little time left for is not asked, and does not fail by that.
"""

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from memory_recall.errors import EmbedderRejected, EmbedderUnauthorized, InvalidInput, ModelMismatch
from memory_recall.schema.columns.keys import MemoryId
from memory_recall.search.fusion import SortBy
from memory_recall.search.query import MAX_LIMIT, RecallQuery
from memory_recall.search.recall import Recall, Recalled, Request, WrappingRecall
from memory_recall.search.relevance import least_relevance_of
from memory_recall.search.result import RecalledMemory, RecallResult, Reranking

Memories = Sequence[RecalledMemory]

RERANKING_SECONDS = 0.5
DEPTH = 30
_MOST_DEPTH = 100
_PAUSE_SECONDS = 5.0
_ANSWER_SECONDS = 0.05  # of the recall's time budget, which are left for the answer
_LEAST_SHARE = 0.5  # of its budget that a reranker is given; with less it is not asked
_MOST_CHARACTERS = 4096  # of the query and of each text; a reranker reads some 512 tokens
_REASONS = (
    (EmbedderUnauthorized, Reranking.UNAUTHORIZED),
    (EmbedderRejected, Reranking.REFUSED),
    (ModelMismatch, Reranking.REFUSED),  # there is no reranker at that address
    (TimeoutError, Reranking.TIMEOUT),
)


class Reranker(Protocol):
    """A reranker, such as `EmbedderClient`.

    Its optional attribute `hosted` (a bool) says whether texts leave the cluster; if so, it gets no sensitive query.
    """

    async def rerank(self, query: str, texts: Sequence[str], /) -> Sequence[float]:
        """Return the score of each text, in the order of the texts; a higher score is better."""
        ...


class SecondStage(WrappingRecall):
    """Reranks the first `depth` results (2 to 100) of recalls by relevance, within `budget` seconds each.

    The reranker is closed by the caller. No connection is held while it works.

    Raises:
        InvalidInput: `depth` or `budget` is out of range, or the budgets do not fit into the recall's.
    """

    def __init__(
        self, recall: Recall, reranker: Reranker, *, depth: int = DEPTH, budget: float = RERANKING_SECONDS
    ) -> None:
        if not 2 <= depth <= _MOST_DEPTH or budget <= 0:
            raise InvalidInput(
                f"A second stage of {depth} results within {budget:g} s is out of range.",
                f"Give a `depth` from 2 to {_MOST_DEPTH} and a `budget` above zero.",
            )
        super().__init__(recall, recall.reserved + budget)
        self._budget = budget
        self._reranker = reranker
        self._depth = depth
        self._paused_until = 0.0  # by the monotonic clock

    async def answer(self, request: Request) -> Recalled:
        """Answer a query with the page of the reranked results, and say whether they were reranked or why not."""
        query = request.query
        skipped = self._skips(query)
        if skipped is not None:
            recalled = await self._inner.answer(request)
            return replace(recalled, result=replace(recalled.result, reranking=skipped))
        # All results that have to be known before the page of the query is. A least relevance of 0 has the inner recall
        # compute relevance without holding anything back.
        widened = replace(
            query,
            limit=min(MAX_LIMIT, max(query.offset + query.limit, self._depth)),
            offset=0,
            least_relevance="everything" if query.least_relevance == "everything" else 0.0,
        )
        recalled = await self._inner.answer(replace(request, query=widened))
        began, found = time.perf_counter(), recalled.result
        order, outcome = await self._ordered(query, found.memories, request.seconds_left - _ANSWER_SECONDS)
        milliseconds = (time.perf_counter() - began) * 1e3
        page = order[query.offset : query.offset + query.limit]
        kept = [place for place in page if _is_relevant(found, place, query)]
        timings = replace(found.timings, total=found.timings.total + milliseconds, reranking=milliseconds)
        memories = tuple(found.memories[place] for place in kept)
        result = replace(found, memories=memories, timings=timings, reranking=outcome, held_back=len(page) - len(kept))
        return Recalled(result, [recalled.rows[place] for place in kept] if request.own_columns else ())

    def _skips(self, query: RecallQuery) -> Reranking | None:
        if not query.ranked or query.sort_by is not SortBy.RELEVANCE:
            return Reranking.OTHER_ORDER
        return Reranking.BEYOND_DEPTH if query.offset >= self._depth else None

    async def _ordered(
        self, query: RecallQuery, memories: Memories, seconds_left: float
    ) -> tuple[Sequence[int], Reranking]:
        """Return the places of the memories in their new order, and whether it is new or why not."""
        fused = range(len(memories))
        places = sendable(memories[: self._depth])
        if len(places) < 2:
            return fused, Reranking.NOTHING_TO_RERANK
        if query.sensitive and getattr(self._reranker, "hosted", False):
            return fused, Reranking.SENSITIVE_QUERY
        if time.monotonic() < self._paused_until:
            return fused, Reranking.PAUSED
        if seconds_left < self._budget * _LEAST_SHARE:
            return fused, Reranking.TIMEOUT
        texts = [memories[place].content[:_MOST_CHARACTERS] for place in places]
        try:
            async with asyncio.timeout(min(self._budget, seconds_left)):
                scores = list(await self._reranker.rerank(query.text[:_MOST_CHARACTERS], texts))
            return reordered(memories, places, scores), Reranking.DONE
        except Exception as error:  # noqa: BLE001  (a recall never fails because a reranker of any vendor did)
            of_this_recall = isinstance(error, TimeoutError) and seconds_left < self._budget
            if not of_this_recall and not isinstance(error, EmbedderRejected):
                self._paused_until = time.monotonic() + _PAUSE_SECONDS
            return fused, next((reason for kind, reason in _REASONS if isinstance(error, kind)), Reranking.FAILED)


def _is_relevant(found: RecallResult, place: int, query: RecallQuery) -> bool:
    """Return False only if the relevance of a memory is known and below what the query demands."""
    least, scale, memory = least_relevance_of(query.least_relevance), found.relevance_scale, found.memories[place]
    if least is None or scale is None or memory.relevance is None:
        return True
    return least.met_by(memory.relevance, by_words=scale.by_words(memory.evidence.dense_score))


def sendable(memories: Memories) -> list[int]:
    """Return the places of the memories whose text may be sent: those that are known not to be sensitive."""
    return [
        place
        for place, memory in enumerate(memories)
        if memory.is_sensitive is False and (memory.content or "").strip()
    ]


def reordered(memories: Memories, places: Sequence[int], scores: Sequence[float]) -> list[int]:
    """Return the places of the memories after those at `places` were ordered by their scores, best first.

    The others keep their places. Of equal scores, the memory that was first stays first. So does the newest of memories
    that supersede one another.

    Raises:
        ValueError: there is not one finite score for each place.
    """
    if not all(map(math.isfinite, scores)):
        raise ValueError("a score is not finite")
    newest_first = _best_to_the_newest([memories[place] for place in places], scores)
    best = sorted(zip(newest_first, places, strict=True), key=lambda scored: -scored[0])
    order = list(range(len(memories)))
    for place, (_, source) in zip(places, best, strict=True):
        order[place] = source
    return order


def _best_to_the_newest(memories: Memories, scores: Sequence[float]) -> list[float]:
    """Return the scores, after the best ones of superseded memories and their successor were given to the newest ones.

    The memories are in the order of the fusion, in which newer ones of such memories stand before older ones.
    """
    families: dict[MemoryId, list[int]] = defaultdict(list)
    for place, (memory, _) in enumerate(zip(memories, scores, strict=True)):
        families[memory.id if memory.superseded_by is None else memory.superseded_by].append(place)
    result = list(scores)
    for family in families.values():
        for place, score in zip(family, sorted((scores[one] for one in family), reverse=True), strict=True):
            result[place] = score
    return result
