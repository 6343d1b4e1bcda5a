"""Recall over Postgres, for memory servers, the command line and the evaluation alike.

A recall reads from the catalog whether a dense search is possible, and gets the vector of its query, during which it
holds no database connection. Normally the recall then executes one SQL statement that runs its legs and their fusion.
In a large table, the recall instead runs its legs at the same time on two connections, unless other recalls are
running. If the answer of the database says that another model has become active, the recall changes to this model's
embedder and tries once more, and keeps the answer that it has if that fails or takes too long. If the dense leg cannot
take part (no embedder, no extension, another model), the result has the lexical order and states the reason. Only an
invalid query or a database that cannot be searched fails it.

A replica may lag behind, and would then give away a text whose memory has just become sensitive. Therefore what a
replica has found is made a result only after it was read again on the primary, and is refused otherwise.

If no embedder answered a recall, a background task records this in the database, so that the operator starts an
embedder that it has scaled to zero.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from memory_recall.errors import MemoryIndexError, ReplicaRefused
from memory_recall.postgres.connection import AnyConnection, Pool
from memory_recall.postgres.driver_errors import translated
from memory_recall.search.cached_value import CachedValue
from memory_recall.search.fusion import default_fusion
from memory_recall.search.options import DEFAULT_OPTIONS, RecallOptions
from memory_recall.search.period import Period
from memory_recall.search.query import EmbeddedQuery, RecallQuery
from memory_recall.search.query_embedding import BudgetedQueryEmbedder, QueryEmbedder
from memory_recall.search.recall import CLEANUP_SECONDS, Recall, Recalled, Request
from memory_recall.search.relevant_rows import relevant_rows
from memory_recall.search.result import Degraded, RecallResult, Timings, memory_from
from memory_recall.search.sql.bm25 import CollectionStatistics
from memory_recall.search.sql.collection_statistics import assumed_collection, measure_collection
from memory_recall.search.sql.embedder_demand import DEMAND_SECONDS, record_demand
from memory_recall.search.sql.execution import Answer, execute, execute_parallel, measure_legs
from memory_recall.search.sql.own_columns import own_row
from memory_recall.search.sql.parallel import is_worth_splitting
from memory_recall.search.sql.plan import RecallPlan
from memory_recall.search.sql.readiness import Readiness, read_readiness
from memory_recall.search.sql.visibility import reader_of

T = TypeVar("T")

_READINESS_SECONDS = 10.0
_STATISTICS_SECONDS = 300.0
_REMEASURE_FACTOR = 4.0  # a table that has grown or shrunk by more than this is measured again at once
_MEASURING_SHARE = 0.5  # of the time budget, after which the recall goes on without what was to be measured
_ANSWER_SECONDS = 0.1  # of the time budget, which a repetition leaves for what comes after it
_UNAVAILABLE = frozenset({Degraded.EMBEDDER_FAILED, Degraded.EMBEDDER_TIMEOUT, Degraded.CIRCUIT_OPEN})


@dataclass(frozen=True, slots=True)
class Finding:
    """What the statement of a recall has found. `HybridRecall.shown` makes a result of it.

    `embedder` is the one that the query was sent to. `began` is a time of the performance counter.
    """

    plan: RecallPlan
    answer: Answer
    embedder: QueryEmbedder | None
    began: float
    embedding_seconds: float


class HybridRecall(Recall):
    """Recalls memories by a lexical and a dense leg. It is safe for concurrent use and must be closed at the end.

    `pool` (of asyncpg) and the embedder are closed by the caller. A pool that leads to replicas needs a `ReplicaRecall`
    around this recall.
    """

    def __init__(
        self, pool: Pool, embedder: QueryEmbedder | None = None, options: RecallOptions = DEFAULT_OPTIONS
    ) -> None:
        super().__init__(options, reserved=options.embedding_budget)
        self._pool = pool
        self._executing = 0
        self._embedder = BudgetedQueryEmbedder(embedder, budget=options.embedding_budget)
        self._demand: asyncio.Task[None] | None = None
        self._demand_due = 0.0  # by the monotonic clock
        self._readiness = CachedValue(
            lambda: self._read(pool, lambda connection: read_readiness(connection, options.table, options.column)),
            _READINESS_SECONDS,
        )
        self._statistics = CachedValue(self._measure, _STATISTICS_SECONDS)
        self._measured_rows = 0.0  # of the table when its statistics were measured

    async def close(self) -> None:
        """End the work in the background. The pool and the embedder stay open, since they belong to the caller."""
        if self._demand is not None:  # a process that recalls once would otherwise end before it is recorded
            await asyncio.wait({self._demand}, timeout=CLEANUP_SECONDS)
        await super().close()
        for part in (self._embedder, self._readiness, self._statistics):
            await part.close()

    @property
    def pools(self) -> tuple[Pool, ...]:
        """The pool that it was given."""
        return (self._pool,)

    async def answer(self, request: Request) -> Recalled:
        """Answer a query; an answer of a replica is refused."""
        finding = await self.find(request)
        recalled = await self.shown(finding)
        self.note_demand(finding, self._pool)
        return recalled

    async def find(self, request: Request) -> Finding:
        """Execute the statement of a recall, and once more if another model has become active meanwhile.

        Raises:
            DatabaseUnreachable, InvalidInput: as for `recall`.
        """
        query, temporal, began = request.query, self.options.temporal, time.perf_counter()
        period = temporal(query.text, query.now or datetime.now(UTC)) if temporal else None
        finding = await self._attempt(request, period, began)
        return await self._repeated(finding, request, period) if self._follow(finding) else finding

    async def shown(self, finding: Finding, read_again: Sequence[Mapping[str, Any]] | None = None) -> Recalled:
        """Make the result of a finding. `read_again` are its rows as they are on the primary, if a replica found them.

        Raises:
            ReplicaRefused: a replica found the rows, and they were not read again.
        """
        plan, found = finding.plan, read_again
        if found is None:
            if finding.answer.from_replica:
                raise ReplicaRefused(
                    "A replica answered, which may not know yet that a memory has become sensitive.",
                    "Connect to the primary (the -rw service), or wrap the recall in a ReplicaRecall, which has a pool"
                    " of it.",
                )
            found = finding.answer.found
        total = time.perf_counter() - finding.began
        timings = Timings(total * 1e3, finding.embedding_seconds * 1e3, (total - finding.embedding_seconds) * 1e3)
        if plan.query.explain:
            timings = replace(timings, legs=await self._explain(finding))
        relevant = relevant_rows(plan, finding.answer, found)
        result = RecallResult(
            tuple(memory_from(row) for row in relevant.rows),
            plan.query.mode,
            finding.answer.reason,
            timings,
            reader=reader_of(plan.query.user_id, plan.table),
            relevance_basis=relevant.basis,
            relevance_scale=relevant.scale,
            held_back=relevant.held_back,
        )
        return Recalled(result, [own_row(plan.table, row) for row in relevant.rows] if plan.own_columns else ())

    def note_demand(self, finding: Finding, primary: Pool) -> None:
        """Start a task that records that an embedder is wanted, if none answered and a connection is idle."""
        if finding.answer.reason not in _UNAVAILABLE or self._embedder.hosted or time.monotonic() < self._demand_due:
            return
        if primary.get_idle_size() > 0:
            self._demand_due = time.monotonic() + DEMAND_SECONDS
            table = finding.plan.table
            self._demand = self._tasks.start(self._read(primary, lambda connection: record_demand(connection, table)))

    async def _attempt(self, request: Request, period: Period | None, began: float) -> Finding:
        """Read from the catalog which legs can search, embed the query, and plan and execute the statement."""
        query, options = request.query, self.options
        readiness = await self._readiness.get()
        statistics = await self._known_of(readiness) if options.lexical == "bm25" and query.ranked else None
        embedder, embedding_began = self._embedder.current, time.perf_counter()
        embedded = await self._embed(query, readiness)
        embedding_seconds = time.perf_counter() - embedding_began
        model = embedded.model if isinstance(embedded, EmbeddedQuery) else None
        plan = RecallPlan(
            query=query,
            table=readiness.table,
            lexical=options.lexical,
            fusion=query.fusion or options.fusion or default_fusion(model),
            period=period,
            dense=readiness.dense_leg(embedded) if isinstance(embedded, EmbeddedQuery) else None,
            refusal=embedded if isinstance(embedded, Degraded) else None,
            has_state=readiness.has_state,
            superseding=readiness.superseding,
            concept_graph=options.concept_graph and readiness.concept_graph,
            compiles=readiness.compiles,
            keeps_plans=readiness.keeps_plans,
            statistics=statistics,
            own_columns=request.own_columns,
            further=await request.further() if request.further else None,
        )
        return Finding(plan, await self._execute(plan), embedder, began, embedding_seconds)

    async def _repeated(self, first: Finding, request: Request, period: Period | None) -> Finding:
        """Attempt a recall once more; return what was found first if the attempt fails or would take too long."""
        seconds = max(0.0, request.seconds_left - _ANSWER_SECONDS)
        try:
            again = await self._within(seconds, self._attempt(request, period, first.began))
        except MemoryIndexError:
            return first
        if again is None:
            return first
        return replace(again, embedding_seconds=first.embedding_seconds + again.embedding_seconds)

    async def _embed(self, query: RecallQuery, readiness: Readiness) -> EmbeddedQuery | Degraded | None:
        """Return the query's vector, or the reason why there is none, or None if the dense leg was not requested."""
        if query.mode == "lexical" or not query.ranked:
            return None
        if query.sensitive and query.vector is None and self._embedder.hosted:
            return Degraded.SENSITIVE_QUERY
        refusal = readiness.refusal(require_index=self.options.require_index)
        if refusal is not None:
            return refusal
        embedded = query.vector or await self._embedder.embed(query.text)
        if isinstance(embedded, EmbeddedQuery) and len(embedded.vector) != readiness.dimensions:
            self._readiness.forget()  # it may be older than a swap
            return Degraded.DIMENSION_MISMATCH
        return embedded

    async def _execute(self, plan: RecallPlan) -> Answer:
        async with self._counted(), self._borrowed(self._pool) as connection:
            if self._may_use_two_connections(plan):
                async with self._borrowed(self._pool) as second:
                    answer = await execute_parallel((connection, second), plan)
            else:
                answer = await execute(connection, plan)
        if answer.outdated:
            self._readiness.forget()  # what it knew of the schema has just proved wrong
        return answer

    def _may_use_two_connections(self, plan: RecallPlan) -> bool:
        """Return whether the legs run in parallel: in a large table, while no other recall needs the processors.

        A second connection is used only if one is idle, so that a recall that holds one connection never waits for
        another. A recall that is to be explained runs as one statement, because its legs are measured in one.
        """
        if not self.options.parallel_legs or plan.query.explain or not is_worth_splitting(plan):
            return False
        return self._executing == 1 and self._pool.get_idle_size() > 0

    def _follow(self, finding: Finding) -> bool:
        """Change to the active model's embedder if the answer came from the lexical leg alone.

        Return whether the embedder was changed, so that the recall is worth repeating.
        """
        answer = finding.answer
        if finding.plan.query.vector is not None or answer.reason is None or answer.active is None:
            return False
        followed = self._embedder.follow(answer.active, finding.embedder, answer.reason)
        if followed:
            self._readiness.forget()  # another model's vectors may have other dimensions
        return followed

    async def _explain(self, finding: Finding) -> dict[str, float]:
        sent, settings = finding.answer.sent, finding.plan.settings
        return await self._read(self._pool, lambda connection: measure_legs(connection, sent, settings))

    @asynccontextmanager
    async def _counted(self) -> AsyncIterator[None]:
        self._executing += 1
        try:
            yield
        finally:
            self._executing -= 1

    async def _read(self, pool: Pool, action: Callable[[AnyConnection], Awaitable[T]], *, share: float = 1.0) -> T:
        """Run `action` on a connection within a share of the time budget."""
        with translated("reading from the database"):
            async with asyncio.timeout(self.options.time_budget * share), self._borrowed(pool) as connection:
                return await action(connection)

    async def _measure(self) -> CollectionStatistics:
        readiness = await self._readiness.get()
        measured = await self._read(
            self._pool, lambda connection: measure_collection(connection, readiness.table), share=_MEASURING_SHARE
        )
        self._measured_rows = readiness.rows
        return measured

    async def _known_of(self, readiness: Readiness) -> CollectionStatistics:
        """Return the statistics of the table, or what is assumed of it if it could not be measured in time.

        They are measured anew at once where an import or a deletion has changed its number of rows by more than a
        factor of four. By those of an empty table, each row that contains a term of the query would be scored.

        A database that is away is noticed by the statement of the recall. `ts_rank`, which needs no statistics, takes
        seconds in a large table.
        """
        fewer, more = sorted(max(rows, 1.0) for rows in (self._measured_rows, readiness.rows))
        if more > fewer * _REMEASURE_FACTOR:
            self._statistics.forget()
        try:
            return await self._statistics.get()
        except MemoryIndexError:
            self._measured_rows = readiness.rows
            return self._statistics.assume(assumed_collection(readiness.rows))
