"""Recall over Postgres: the one entry point that the API, the command line and the evaluation share.

A recall first gets its query's vector, holding no database connection meanwhile, then sends one statement in which both
legs and their fusion run. Whatever keeps meaning out (no embedder, no extension, another model) leaves exactly the
lexical order, with the reason in the result. Only what makes words impossible too, a database that cannot be reached,
is an error. In a large table a recall that has the database to itself runs its legs on two connections instead.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

from memory_recall.errors import InvalidInput
from memory_recall.postgres.connection import AnyConnection, Pool
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.columns import ACTIVE, VectorColumn
from memory_recall.search import execution
from memory_recall.search.cached_value import Snapshot
from memory_recall.search.collection_statistics import measure_collection
from memory_recall.search.execution import Answer
from memory_recall.search.fusion import Fusion, SortBy
from memory_recall.search.leg_timing import measure_legs
from memory_recall.search.period import Period, PeriodFinder
from memory_recall.search.query import Degraded, Mode, RecallResult, Timings, check_page, cleaned, memory_of
from memory_recall.search.query_embedding import DEFAULT_BUDGET, Embedded, QueryEmbedder, QuerySemantics
from memory_recall.search.readiness import Readiness, read_readiness
from memory_recall.search.sql.bm25 import CollectionStatistics
from memory_recall.search.sql.filters import Filters
from memory_recall.search.sql.parallel import splits
from memory_recall.search.sql.statement import DenseQuery, Legs, Lexical, RecallQuery

T = TypeVar("T")

DEFAULT_FUSION = Fusion()
_LEGS: dict[Mode, Legs] = {"hybrid": "both", "lexical": "lexical", "dense": "dense"}
_READINESS_SECONDS = 10.0
_STATISTICS_SECONDS = 300.0


class HybridRecall:
    """Recalls memories by words and by meaning. Safe for concurrent use; close it when the process ends."""

    def __init__(
        self,
        pool: Pool,
        embedder: QueryEmbedder | None = None,
        *,
        table: str = "memories",
        lexical: Lexical = "bm25",
        fusion: Fusion = DEFAULT_FUSION,
        embedding_budget: float = DEFAULT_BUDGET,
        require_index: bool = True,
        column: VectorColumn = ACTIVE,
        observe: Callable[[RecallResult], None] | None = None,
        temporal: PeriodFinder | None = None,
        parallel_legs: bool = True,
    ) -> None:
        self._pool = pool
        self._lexical: Lexical = lexical
        self._fusion = fusion
        self._require_index = require_index
        self._observe = observe
        self._temporal = temporal
        self._parallel_legs = parallel_legs
        self._under_way = 0
        self._semantics = QuerySemantics(embedder, budget=embedding_budget)
        self._readiness = Snapshot(
            lambda: self._read(lambda one: read_readiness(one, table, column)), _READINESS_SECONDS
        )
        self._statistics = Snapshot(self._measure, _STATISTICS_SECONDS)

    async def close(self) -> None:
        """End background work; the pool and the embedder belong to the caller."""
        await self._semantics.close()
        await self._readiness.close()
        await self._statistics.close()

    async def recall(
        self,
        query: str,
        *,
        limit: int = 10,
        offset: int = 0,
        sort_by: SortBy | str = SortBy.RELEVANCE,
        category: str | None = None,
        tags: Sequence[str] = (),
        user_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        mode: Mode = "hybrid",
        vector: Embedded | None = None,
        sensitive: bool = False,
        fusion: Fusion | None = None,
        explain: bool = False,
        now: datetime | None = None,
    ) -> RecallResult:
        """The memories that the query calls to mind, best first.

        `vector` spares the embedding where the caller has it already, `fusion` replaces the usual one for this recall.
        A `sensitive` query is never sent to a hosted embedder and is answered by words alone where there is no other.
        `explain` measures the legs. `now`, with a time zone, is when the query is asked, for the times that it names.

        Raises:
            DatabaseUnreachable: not even words can be searched.
            InvalidInput: the page makes no sense, or `now` has no time zone.
        """
        check_page(limit, offset)
        text = cleaned(query)
        plan = RecallQuery(
            text=text,
            legs=_LEGS[mode],
            lexical=self._lexical,
            fusion=fusion or self._fusion,
            sort_by=SortBy(sort_by),
            filters=Filters(category, tuple(tags), user_id, since, until),
            limit=limit,
            offset=offset,
            period=self._period(text, now),
        )
        result = await self._answer(plan, mode, vector, sensitive=sensitive, explain=explain)
        if self._observe is not None:
            self._observe(result)
        return result

    def _period(self, text: str, now: datetime | None) -> Period | None:
        if now is not None and now.tzinfo is None:
            raise InvalidInput("`now` has no time zone.", "Give one, such as that of the asker.")
        return self._temporal(text, now or datetime.now(UTC)) if self._temporal else None

    async def _answer(
        self, plan: RecallQuery, mode: Mode, vector: Embedded | None, *, sensitive: bool, explain: bool
    ) -> RecallResult:
        began = time.perf_counter()
        readiness = await self._readiness.get()
        asked = self._semantics.asked
        dense = await self._dense(plan, readiness, vector, sensitive=sensitive)
        embedded = time.perf_counter()
        answer = await self._ask(plan, readiness, dense, explain=explain)
        if vector is None and self._follow(answer, asked):
            self._readiness.forget()  # another model's vectors may have other dimensions
            readiness = await self._readiness.get()
            dense = await self._dense(plan, readiness, None, sensitive=sensitive)
            answer = await self._ask(plan, readiness, dense, explain=explain)
        ended = time.perf_counter()
        return RecallResult(
            memories=tuple(memory_of(row) for row in answer.rows if row["id"] is not None),
            mode=mode,
            reason=answer.reason,
            timings=Timings((ended - began) * 1e3, (embedded - began) * 1e3, (ended - embedded) * 1e3, answer.legs),
        )

    def _follow(self, answer: Answer, asked: QueryEmbedder | None) -> bool:
        """Turn to where the active model is served, if that may bring in the meaning that the answer lacks."""
        if answer.reason is None or answer.active is None:
            return False
        return self._semantics.follow(answer.active, asked, answer.reason)

    async def _dense(
        self, plan: RecallQuery, readiness: Readiness, vector: Embedded | None, *, sensitive: bool
    ) -> DenseQuery | Degraded | None:
        """What the dense leg searches by, or why it cannot take part; None where meaning was not asked for."""
        if plan.legs == "lexical" or not plan.ranked:
            return None
        if sensitive and vector is None and self._semantics.hosted:
            return Degraded.SENSITIVE_QUERY
        refusal = readiness.refusal(require_index=self._require_index)
        if refusal is not None:
            return refusal
        embedded = vector or await self._semantics.embed(plan.text)
        if isinstance(embedded, Degraded):
            return embedded
        if len(embedded.vector) != readiness.dimensions:
            self._readiness.forget()  # it may be older than a swap
            return Degraded.DIMENSION_MISMATCH
        return DenseQuery(
            embedded.vector,
            embedded.model,
            readiness.iterative_scan,
            column=readiness.column,
            names_agree=readiness.knows_swaps and readiness.column is ACTIVE,
            graph=readiness.graph,
        )

    async def _ask(
        self, plan: RecallQuery, readiness: Readiness, dense: DenseQuery | Degraded | None, *, explain: bool
    ) -> Answer:
        plan = replace(plan, has_state=readiness.has_state)
        if plan.lexical == "bm25" and plan.ranked:
            plan = replace(plan, statistics=await self._statistics.get())
        async with self._counted(), self._acquire() as connection:
            answer = None if explain else await self._ask_both_at_once(connection, plan, readiness, dense)
            if answer is None:
                answer = await execution.ask(connection, plan, readiness, dense)
            if answer.reason is Degraded.DENSE_FAILED:
                self._readiness.forget()  # what it knew of the schema has just proved wrong
            if not explain:
                return answer
            return replace(answer, legs=await measure_legs(connection, *answer.sent, compiles=readiness.compiles))

    async def _ask_both_at_once(
        self, connection: AnyConnection, plan: RecallQuery, readiness: Readiness, dense: DenseQuery | Degraded | None
    ) -> Answer | None:
        """None where one statement is to do it all, as while other recalls need the processors, too."""
        if not self._parallel_legs or not isinstance(dense, DenseQuery) or not splits(plan):
            return None
        # It never waits for one connection while it holds another.
        if self._under_way > 1 or not self._pool.get_idle_size():
            return None
        async with self._acquire() as second:
            return await execution.ask_both_at_once((connection, second), plan, readiness, dense)

    @asynccontextmanager
    async def _counted(self) -> AsyncIterator[None]:
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    @asynccontextmanager
    async def _acquire(self) -> AsyncIterator[AnyConnection]:
        with translated("connecting to the database"):
            connection = await self._pool.acquire()
        try:
            yield connection
        finally:
            with translated("returning a connection"):
                await self._pool.release(connection)

    async def _read(self, action: Callable[[AnyConnection], Awaitable[T]]) -> T:
        async with self._acquire() as connection:
            return await action(connection)

    async def _measure(self) -> CollectionStatistics:
        readiness = await self._readiness.get()
        return await self._read(lambda connection: measure_collection(connection, readiness.table))
