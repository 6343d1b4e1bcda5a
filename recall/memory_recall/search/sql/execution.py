"""Sends the SQL statement of a recall, or its parts on two connections, and measures its legs on request."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from memory_recall.errors import DatabaseRejected
from memory_recall.postgres.connection import AnyConnection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.models_sql import RecordedModel
from memory_recall.search.result import Degraded
from memory_recall.search.sql import parallel
from memory_recall.search.sql.parallel import DenseRows, LexicalRows
from memory_recall.search.sql.plan import RecallPlan
from memory_recall.search.sql.statement import Statement, statement

_LEGS = ("dense", "lexical")


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of a recall's statement, the statement, and why the dense leg took no part if it was requested."""

    rows: Sequence[Any]
    reason: Degraded | None
    sent: Statement

    @property
    def active(self) -> RecordedModel | None:
        """The active model according to the database, or None if the database records none."""
        active = self.rows[0]["active"]
        return RecordedModel.from_row(json.loads(active)) if active else None


async def execute(connection: AnyConnection, plan: RecallPlan) -> Answer:
    """Send the statement of a plan, and a lexical one if Postgres refuses it or it yields no answer.

    A statement in mode dense yields no answer if its dense leg may not take part.

    Raises:
        DatabaseUnreachable: the connection failed.
        DatabaseRejected: Postgres refused even the lexical statement.
    """
    if plan.dense is not None:
        sent = statement(plan)
        rows = await _accepted(connection, sent, plan)
        if rows is None:
            plan = plan.without_dense(Degraded.DENSE_FAILED)
        elif rows[0]["open"]:
            return Answer(rows, None, sent)
        elif plan.query.mode == "hybrid":  # the statement has answered with the lexical order already
            return Answer(rows, Degraded.MODEL_MISMATCH, sent)
        else:
            plan = plan.without_dense(Degraded.MODEL_MISMATCH)
    sent = statement(plan)
    return Answer(await _fetch(connection, sent, plan), plan.refusal, sent)


async def execute_parallel(connections: tuple[AnyConnection, AnyConnection], plan: RecallPlan) -> Answer:
    """Send the statements of both legs at once, then that of their fusion.

    If Postgres refuses one of them, the lexical statement alone is sent.

    Raises:
        DatabaseUnreachable: either connection failed.
    """
    first, second = connections
    try:
        async with asyncio.TaskGroup() as legs:
            dense_task = legs.create_task(_accepted(first, parallel.dense_statement(plan), plan))
            lexical_task = legs.create_task(_accepted(second, parallel.lexical_statement(plan), plan))
    except ExceptionGroup as group:  # the other leg has ended by now, so that both connections can go back
        raise group.exceptions[0] from None
    dense, lexical = dense_task.result(), lexical_task.result()
    if dense is not None and lexical is not None:
        sent = parallel.fusion_statement(plan, DenseRows(*dense[0]), LexicalRows(*lexical[0]))
        rows = await _accepted(first, sent, plan)
        if rows is not None:
            return Answer(rows, None if rows[0]["open"] else Degraded.MODEL_MISMATCH, sent)
    return await execute(first, plan.without_dense(Degraded.DENSE_FAILED))


async def measure_legs(connection: AnyConnection, sent: Statement, *, compiles: bool) -> dict[str, float]:
    """Run the statement again under EXPLAIN ANALYZE; return the milliseconds of each leg, of planning and of execution.

    The legs share one statement, so only the executor can tell them apart. The executor's plan is read for the times of
    the legs' CTEs and is never shown, because it contains the query.
    """
    sql, arguments = sent
    with translated("measuring the recall"):
        async with _uncompiled(connection, compiles=compiles):
            report = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", *arguments)
    explained = json.loads(report)[0]
    legs = {f"CTE {leg}": leg for leg in _LEGS}
    times = {
        legs[node["Subplan Name"]]: float(node["Actual Total Time"])
        for node in _nodes(explained["Plan"])
        if node.get("Subplan Name") in legs
    }
    return {**times, "planning": explained["Planning Time"], "execution": explained["Execution Time"]}


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _nodes(child)


async def _accepted(connection: AnyConnection, sent: Statement, plan: RecallPlan) -> Sequence[Any] | None:
    """Send a statement and return its rows, or None if Postgres refuses it, as when the vector column is gone."""
    try:
        return await _fetch(connection, sent, plan)
    except DatabaseRejected:
        return None


async def _fetch(connection: AnyConnection, sent: Statement, plan: RecallPlan) -> Sequence[Any]:
    sql, arguments = sent
    with translated("recalling"):
        async with _uncompiled(connection, compiles=plan.compiles):
            rows: Sequence[Any] = await connection.fetch(sql, *arguments)
    return rows


@asynccontextmanager
async def _uncompiled(connection: AnyConnection, *, compiles: bool) -> AsyncIterator[None]:
    """Keep Postgres from compiling the statements of the block, with a setting that also holds behind a pooler.

    A Postgres built with LLVM compiles by default each statement that it estimates to be long (`jit_above_cost`). A
    recall of more than some 300,000 rows is one; its compilation takes 290 ms, its execution 40 to 90. Postgres decides
    before a statement runs whether to compile it, so a recall's statement cannot turn that off for itself. With
    `compiles` False this does nothing, and saves three round trips.
    """
    if not compiles:
        yield
        return
    async with connection.transaction(readonly=True):
        await connection.execute("SET LOCAL jit = off")
        yield
