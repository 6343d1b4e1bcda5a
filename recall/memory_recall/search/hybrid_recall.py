"""Recall over Postgres, for memory servers, the command line and the evaluation alike.

A recall reads from the catalog whether a dense search is possible, and gets the vector of its query, during which it
holds no database connection. Normally the recall then executes one SQL statement that runs its legs and their fusion.
In a large table, the recall instead runs its legs at the same time on two connections, unless other recalls are
running. If the answer of the database says that another model has become active, the recall changes to this model's
embedder and tries once more. If the dense leg cannot take part (no embedder, no extension, another model), the result
has the lexical order and states the reason. Only an invalid query or a database that cannot be searched fails it.

A replica may lag behind, and would then give away a text whose memory has just become sensitive. Therefore the memories
that a replica has found are read again on the primary before anything of them leaves. Without a pool of the primary, an
answer of a replica is refused.

Where the recall has a second stage, a reranker may order the first results anew, within a budget of its own. It gets no
text of a sensitive memory, and no connection is held meanwhile.

Where the recall has an expansion and the query asks for it, a language model is asked for further search words while
the query is embedded. They join the lexical leg. Without them the statement is that of a recall without expansion.

One time budget covers the whole recall, including the wait for a connection of the pool. A recall that exceeds the
budget fails at once. The work of the recall is cancelled and cleaned up in the background, since Postgres may no longer
answer. If no embedder answered a recall, a background task records this in the database, so that the operator starts an
embedder that it has scaled to zero.

Longer than 300 lines because the attempts, time budget and connections of a recall share one state.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeVar, get_args

from memory_recall.background import BackgroundTasks
from memory_recall.errors import DatabaseUnreachable, InvalidInput, ReplicaRefused
from memory_recall.postgres.connection import AnyConnection, Pool
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.table import ACTIVE, VectorColumn
from memory_recall.search.cached_value import CachedValue
from memory_recall.search.fusion import Fusion, default_fusion
from memory_recall.search.period import Period, PeriodFinder
from memory_recall.search.query import EmbeddedQuery, FurtherWords, Lexical, RecallQuery, require_query
from memory_recall.search.query_embedding import EMBEDDING_SECONDS, BudgetedQueryEmbedder, QueryEmbedder
from memory_recall.search.query_expansion import QueryExpansion
from memory_recall.search.result import Degraded, Expansion, RecallResult, Reranking, Timings, memory_from
from memory_recall.search.second_stage import SecondStage
from memory_recall.search.sql.bm25 import CollectionStatistics
from memory_recall.search.sql.collection_statistics import measure_collection
from memory_recall.search.sql.embedder_demand import DEMAND_SECONDS, record_demand
from memory_recall.search.sql.execution import Answer, execute, execute_parallel, measure_legs, read_again
from memory_recall.search.sql.own_columns import own_row
from memory_recall.search.sql.parallel import is_worth_splitting
from memory_recall.search.sql.plan import RecallPlan
from memory_recall.search.sql.readiness import Readiness, read_readiness
from memory_recall.search.sql.visibility import reader_of

T = TypeVar("T")
Rows = list[dict[str, Any]]

TIME_BUDGET_SECONDS = 2.0
_READINESS_SECONDS = 10.0
_STATISTICS_SECONDS = 300.0
_UNAVAILABLE = frozenset({Degraded.EMBEDDER_FAILED, Degraded.EMBEDDER_TIMEOUT, Degraded.CIRCUIT_OPEN})
_CLEANUP_SECONDS = 1.0  # how long a cancelled statement may take to end before its connection is cut


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The plan and the answer of one attempt at a recall, and the embedder that the query was sent to."""

    plan: RecallPlan
    answer: Answer
    embedder: QueryEmbedder | None
    embedding_seconds: float
    expansion: Expansion
    expansion_seconds: float


class HybridRecall:
    """Recalls memories by a lexical and a dense leg. It is safe for concurrent use and must be closed at the end.

    `pool` (of asyncpg) and the embedder are closed by the caller, and so is `primary`, a pool of connections to the
    primary, which is needed if `pool` leads to replicas: what they find is read again there. `lexical` is "bm25", or
    "ts_rank" to rank as the memory server itself does. With `fusion` None, the default fusion of the query's model is
    used. `time_budget` (seconds) limits a whole recall, and `embedding_budget` (seconds) the embedding of its query.
    With `require_index` False, the dense leg also searches a table without an HNSW index. `observe` is called with
    every result. `temporal` finds the time that a query names. With `parallel_legs` False, every recall uses only one
    connection. With `concept_graph` False, recalls leave out the graph leg of a table that has a concept graph.
    `second_stage` reranks the first results. `expansion` finds further words for queries that ask for it; it needs the
    lexical leg "bm25", and runs beside the embedding.

    Raises:
        InvalidInput: `lexical` is unknown or has no expansion, or the budgets of embedding, expansion and reranking are
            not below `time_budget`.
    """

    def __init__(
        self,
        pool: Pool,
        embedder: QueryEmbedder | None = None,
        *,
        primary: "Pool | None" = None,
        table: str = "memories",
        lexical: Lexical = "bm25",
        fusion: Fusion | None = None,
        time_budget: float = TIME_BUDGET_SECONDS,
        embedding_budget: float = EMBEDDING_SECONDS,
        require_index: bool = True,
        column: VectorColumn = ACTIVE,
        observe: Callable[[RecallResult], None] | None = None,
        temporal: PeriodFinder | None = None,
        parallel_legs: bool = True,
        concept_graph: bool = True,
        second_stage: SecondStage | None = None,
        expansion: QueryExpansion | None = None,
    ) -> None:
        before = max(embedding_budget, expansion.budget if expansion else 0.0)
        parts = before + (second_stage.budget if second_stage else 0.0)
        if embedding_budget <= 0 or parts >= time_budget:
            raise InvalidInput(
                f"The {parts:g} s of embedding and second stage do not fit into the recall's {time_budget:g} s.",
                "Give a `time_budget` larger than the `embedding_budget` and the second stage's `budget` together.",
            )
        if expansion is not None and lexical == "ts_rank":
            raise InvalidInput(
                "The lexical leg ts_rank searches no further words.", "Use bm25, or leave out `expansion`."
            )
        if lexical not in get_args(Lexical):
            raise InvalidInput(f"There is no lexical leg {lexical!r}.", f"Use one of: {', '.join(get_args(Lexical))}.")
        self._pool = pool
        self._primary = primary
        self._lexical = lexical
        self._fusion = fusion
        self._budget = time_budget
        self._require_index = require_index
        self._observe = observe
        self._temporal = temporal
        self._parallel_legs = parallel_legs
        self._concept_graph = concept_graph
        self._second_stage = second_stage
        self._expansion = expansion
        self._executing = 0
        self._embedder = BudgetedQueryEmbedder(embedder, budget=embedding_budget)
        self._tasks = BackgroundTasks()
        self._demand: asyncio.Task[None] | None = None
        self._demand_due = 0.0  # by the monotonic clock
        self._readiness = CachedValue(
            lambda: self._read(lambda connection: read_readiness(connection, table, column)), _READINESS_SECONDS
        )
        self._statistics = CachedValue(self._measure, _STATISTICS_SECONDS)

    async def close(self) -> None:
        """End the work in the background. The pool and the embedder stay open, since they belong to the caller."""
        if self._demand is not None:  # a process that recalls once would otherwise end before it is recorded
            await asyncio.wait({self._demand}, timeout=_CLEANUP_SECONDS)
        for part in (self._tasks, self._embedder, self._readiness, self._statistics):
            await part.close()

    async def recall(self, query: RecallQuery) -> RecallResult:
        """Recall memories, best first, within the time budget.

        Raises:
            DatabaseUnreachable: the database cannot be searched, or did not answer within the time budget.
            ReplicaRefused: a replica answered, and there is no pool of the primary, or it leads to a replica as well;
                a subclass of `DatabaseUnreachable`.
            InvalidInput: `query` is no `RecallQuery`, or the table lacks the column of a filter or the column
                `user_id`.
        """
        return (await self._within_budget(query, own_columns=False))[0]

    async def recall_rows(self, query: RecallQuery) -> Rows:
        """Recall memories as rows of the caller's table, best first, for an API that ranks further by itself.

        A row maps the names of the table's columns, except vectors and search vectors, to their values. It also has the
        score of the fusion (`rank`), the fields of `Evidence` and, if the memory is superseded, `superseded_by`, which
        replace columns of the same names. In the row of a sensitive memory `content` is masked, and the values of all
        columns but category, tags, `user_id`, numbers, booleans, UUIDs and times are None. Errors are those of
        `recall`.
        """
        return (await self._within_budget(query, own_columns=True))[1]

    async def _within_budget(self, query: RecallQuery, *, own_columns: bool) -> tuple[RecallResult, Rows]:
        answering = self._tasks.start(self._answer(require_query(query), own_columns=own_columns))
        try:
            await asyncio.wait({answering}, timeout=self._budget)
        finally:
            answering.cancel()  # does nothing to a task that has ended
        if not answering.done():
            raise DatabaseUnreachable(
                f"The recall was not answered within its {self._budget:g} seconds.",
                "Check that the database answers and that the pool has connections to spare, or raise `time_budget`.",
            )
        result, rows = answering.result()
        self._note_demand(result.reason)
        if self._observe is not None:
            self._observe(result)
        return result, rows

    async def _answer(self, query: RecallQuery, *, own_columns: bool) -> tuple[RecallResult, Rows]:
        began = time.perf_counter()
        period = self._temporal(query.text, query.now or datetime.now(UTC)) if self._temporal else None
        asked = self._second_stage.widened(query) if self._second_stage else query
        expanding = self._tasks.start(self._expansion.expand(query)) if self._expansion else None
        attempt = await self._attempt(asked, period, expanding, own_columns=own_columns)
        embedding_seconds, expansion_seconds = attempt.embedding_seconds, attempt.expansion_seconds
        if self._follow(attempt):
            attempt = await self._attempt(asked, period, expanding, own_columns=own_columns)
            embedding_seconds += attempt.embedding_seconds
        found = await self._present(attempt)
        answered = time.perf_counter() - began
        reranking = Reranking.OFF
        if self._second_stage is not None:
            found, reranking = await self._second_stage.rerank(query, found, self._budget - answered)
        total = time.perf_counter() - began
        timings = Timings(
            total * 1e3,
            embedding_seconds * 1e3,
            (answered - embedding_seconds - expansion_seconds) * 1e3,
            (total - answered) * 1e3,
            expansion=expansion_seconds * 1e3,
        )
        if query.explain:
            timings = replace(timings, legs=await self._explain(attempt))
        rows = [own_row(attempt.plan.table, row) for row in found] if own_columns else []
        memories = tuple(memory_from(row) for row in found)
        reader = reader_of(query.user_id, attempt.plan.table)
        reason, expansion = attempt.answer.reason, attempt.expansion
        return RecallResult(memories, query.mode, reason, timings, reranking, expansion, reader), rows

    async def _attempt(
        self,
        query: RecallQuery,
        period: Period | None,
        expanding: asyncio.Task[FurtherWords | Expansion] | None,
        *,
        own_columns: bool,
    ) -> _Attempt:
        """Read from the catalog which legs can search, embed the query, and plan and execute the statement.

        `expanding` is the search for further words, which began before and is waited for after the embedding.
        """
        readiness = await self._readiness.get()
        statistics = await self._statistics.get() if self._lexical == "bm25" and query.ranked else None
        embedder, began = self._embedder.current, time.perf_counter()
        embedded = await self._embed(query, readiness)
        embedding_seconds = time.perf_counter() - began
        expanded = await expanding if expanding else Expansion.OFF
        expansion_seconds = time.perf_counter() - began - embedding_seconds
        model = embedded.model if isinstance(embedded, EmbeddedQuery) else None
        plan = RecallPlan(
            query=query,
            table=readiness.table,
            lexical=self._lexical,
            fusion=query.fusion or self._fusion or default_fusion(model),
            period=period,
            dense=readiness.dense_leg(embedded) if isinstance(embedded, EmbeddedQuery) else None,
            refusal=embedded if isinstance(embedded, Degraded) else None,
            has_state=readiness.has_state,
            superseding=readiness.superseding,
            concept_graph=self._concept_graph and readiness.concept_graph,
            compiles=readiness.compiles,
            statistics=statistics,
            own_columns=own_columns,
            further=expanded if isinstance(expanded, FurtherWords) else None,
        )
        outcome = expanded if isinstance(expanded, Expansion) else Expansion.DONE
        return _Attempt(plan, await self._execute(plan), embedder, embedding_seconds, outcome, expansion_seconds)

    async def _embed(self, query: RecallQuery, readiness: Readiness) -> EmbeddedQuery | Degraded | None:
        """Return the query's vector, or the reason why there is none, or None if the dense leg was not requested."""
        if query.mode == "lexical" or not query.ranked:
            return None
        if query.sensitive and query.vector is None and self._embedder.hosted:
            return Degraded.SENSITIVE_QUERY
        refusal = readiness.refusal(require_index=self._require_index)
        if refusal is not None:
            return refusal
        embedded = query.vector or await self._embedder.embed(query.text)
        if isinstance(embedded, EmbeddedQuery) and len(embedded.vector) != readiness.dimensions:
            self._readiness.forget()  # it may be older than a swap
            return Degraded.DIMENSION_MISMATCH
        return embedded

    async def _execute(self, plan: RecallPlan) -> Answer:
        async with self._counted(), self._acquire(self._pool) as connection:
            if self._may_use_two_connections(plan):
                async with self._acquire(self._pool) as second:
                    answer = await execute_parallel((connection, second), plan)
            else:
                answer = await execute(connection, plan)
        if answer.outdated:
            self._readiness.forget()  # what it knew of the schema has just proved wrong
        return answer

    async def _present(self, attempt: _Attempt) -> list[Mapping[str, Any]]:
        """Return the memories that were found; those that a replica found as they are on the primary."""
        found = attempt.answer.found
        if not attempt.answer.from_replica:
            return found
        if self._primary is None:
            raise ReplicaRefused(
                "A replica answered, which may not know yet that a memory has become sensitive.",
                "Connect to the primary (the -rw service), or give HybridRecall a pool of it as `primary`.",
            )
        if not found:
            return []
        async with self._acquire(self._primary) as connection:
            return await read_again(connection, attempt.plan, found)

    def _may_use_two_connections(self, plan: RecallPlan) -> bool:
        """Return whether the legs run in parallel: in a large table, while no other recall needs the processors.

        A second connection is used only if one is idle, so that a recall that holds one connection never waits for
        another. A recall that is to be explained runs as one statement, because its legs are measured in one.
        """
        if not self._parallel_legs or plan.query.explain or not is_worth_splitting(plan):
            return False
        return self._executing == 1 and self._pool.get_idle_size() > 0

    def _follow(self, attempt: _Attempt) -> bool:
        """Change to the active model's embedder if the answer came from the lexical leg alone.

        Return whether the embedder was changed, so that the recall is worth repeating.
        """
        answer = attempt.answer
        if attempt.plan.query.vector is not None or answer.reason is None or answer.active is None:
            return False
        followed = self._embedder.follow(answer.active, attempt.embedder, answer.reason)
        if followed:
            self._readiness.forget()  # another model's vectors may have other dimensions
        return followed

    def _note_demand(self, reason: Degraded | None) -> None:
        """Start a task that records that an embedder is wanted, if a connection to the primary is idle."""
        if reason not in _UNAVAILABLE or self._embedder.hosted or time.monotonic() < self._demand_due:
            return
        pool = self._primary or self._pool
        if pool.get_idle_size() > 0:
            self._demand_due = time.monotonic() + DEMAND_SECONDS
            self._demand = self._tasks.start(self._record_demand(pool))

    async def _record_demand(self, pool: Pool) -> None:
        table = (await self._readiness.get()).table
        await self._read(lambda connection: record_demand(connection, table), pool)

    async def _explain(self, attempt: _Attempt) -> dict[str, float]:
        sent, compiles = attempt.answer.sent, attempt.plan.compiles
        return await self._read(lambda connection: measure_legs(connection, sent, compiles=compiles))

    @asynccontextmanager
    async def _counted(self) -> AsyncIterator[None]:
        self._executing += 1
        try:
            yield
        finally:
            self._executing -= 1

    @asynccontextmanager
    async def _acquire(self, pool: Pool) -> AsyncIterator[AnyConnection]:
        """Take a connection from a pool, and return it at the end of the block.

        If the block lasts longer than the time budget and a few seconds for cleaning up, the connection is closed.
        """
        with translated("connecting to the database"):
            connection = await pool.acquire()
        cut = asyncio.get_running_loop().call_later(self._budget + _CLEANUP_SECONDS, connection.terminate)
        try:
            yield connection
        finally:
            try:
                with translated("returning a connection"):
                    await pool.release(connection)
            finally:
                cut.cancel()

    async def _read(self, action: Callable[[AnyConnection], Awaitable[T]], pool: "Pool | None" = None) -> T:
        with translated("reading from the database"):
            async with asyncio.timeout(self._budget), self._acquire(pool or self._pool) as connection:
                return await action(connection)

    async def _measure(self) -> CollectionStatistics:
        readiness = await self._readiness.get()
        return await self._read(lambda connection: measure_collection(connection, readiness.table))
