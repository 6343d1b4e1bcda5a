"""Executes a recall's SQL statement, or its parts on two connections, and measures the time of its legs on request.

A replica may not know yet that a memory has become sensitive, was deleted, or belongs to another user. Therefore the
memories that a replica has found are read again on the primary, and what the answer shows of them is what the primary
says.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import asyncpg

from memory_recall.errors import DatabaseRejected, ReplicaRefused
from memory_recall.postgres.connection import AnyConnection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.models_sql import RecordedModel
from memory_recall.search.result import Degraded
from memory_recall.search.sql import parallel
from memory_recall.search.sql.parallel import DenseRows, LexicalRows
from memory_recall.search.sql.plan import RecallPlan
from memory_recall.search.sql.statement import Statement, present_statement, statement

_LEGS = ("dense", "lexical")


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows that a recall's statement returned, the statement, and why a requested dense leg took no part.

    `outdated` is true if Postgres refused a statement. The catalog must then be read again, because it has changed.
    """

    rows: Sequence[Any]
    reason: Degraded | None
    sent: Statement
    outdated: bool = False

    @property
    def active(self) -> RecordedModel | None:
        """The active model according to the database, or None if the database records none."""
        active = self.rows[0]["active"]
        return RecordedModel.from_row(json.loads(active)) if active else None

    @property
    def found(self) -> list[Mapping[str, Any]]:
        """The rows of memories, best first."""
        return [row for row in self.rows if row["id"] is not None]

    @property
    def from_replica(self) -> bool:
        """Whether a replica has answered, so that the memories may have changed without its knowledge."""
        return bool(self.rows[0]["in_recovery"])


async def execute(connection: AnyConnection, plan: RecallPlan) -> Answer:
    """Execute the statement of a plan, or a lexical statement if the dense leg cannot take part.

    The lexical statement is executed if Postgres refuses the plan's statement, or if the query's mode is dense and
    another model has become active. A hybrid statement already contains the lexical order.

    Raises:
        DatabaseUnreachable: the connection failed.
        DatabaseRejected: Postgres refused even the lexical statement.
    """
    if plan.dense is not None:
        answer = await _tried(connection, plan, statement)
        # A hybrid statement has answered with the lexical order already.
        if answer is not None and (answer.reason is None or plan.query.mode == "hybrid"):
            return answer
        plan = plan.without_dense(Degraded.DENSE_FAILED if answer is None else Degraded.MODEL_MISMATCH)
    sent = statement(plan)
    rows = await _fetch(connection, sent, plan)
    return Answer(rows, plan.refusal, sent, outdated=plan.refusal is Degraded.DENSE_FAILED)


async def execute_parallel(connections: tuple[AnyConnection, AnyConnection], plan: RecallPlan) -> Answer:
    """Execute the statements of both legs at the same time, then the statement of their fusion.

    If Postgres refuses one of the three statements, a lexical statement answers the recall alone. Only the plan of the
    dense leg depends on whose memories are searched, so that Postgres may keep those of the other statements.

    Raises:
        DatabaseUnreachable: either connection failed.
    """
    first, second = connections
    kept = replace(plan, keeps_plans=False)
    try:
        async with asyncio.TaskGroup() as legs:
            dense_task = legs.create_task(_accepted(first, parallel.dense_statement(plan), plan))
            lexical_task = legs.create_task(_accepted(second, parallel.lexical_statement(plan), kept))
    except ExceptionGroup as group:  # the other leg has ended by now, so that both connections can go back
        raise group.exceptions[0] from None
    dense, lexical = dense_task.result(), lexical_task.result()
    if dense is not None and lexical is not None:
        found = DenseRows(*dense[0]), LexicalRows(*lexical[0])
        answer = await _tried(first, kept, lambda tried: parallel.fusion_statement(tried, *found))
        if answer is not None:
            return answer
    return await execute(first, plan.without_dense(Degraded.DENSE_FAILED))


async def read_again(
    primary: AnyConnection, plan: RecallPlan, found: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Return the rows `found` on a replica, in their order, with the values that they have on the primary.

    Rows that the query may not find any more are left out: deleted rows, rows that a filter excludes, and rows that the
    user who asks may not find. What the legs found (ranks, scores and `superseded_by`) stays as it is.

    Raises:
        DatabaseUnreachable: the connection failed.
        ReplicaRefused: the connection leads to a replica.
        DatabaseRejected: Postgres refused the statement.
    """
    sql, arguments = present_statement(plan, found)
    with translated("reading recalled memories on the primary"):
        rows = await primary.fetch(sql, *arguments)
    if rows[0]["in_recovery"]:
        raise ReplicaRefused(
            "The pool of the primary leads to a replica.",
            "Connect the pool that ReplicaRecall has as `primary` to the primary (the -rw service).",
        )
    present = {row["id"]: row for row in rows}
    return [{**row, **present[row["id"]]} for row in found if row["id"] in present]


async def measure_legs(connection: AnyConnection, sent: Statement, settings: Mapping[str, str]) -> dict[str, float]:
    """Run the statement again under EXPLAIN ANALYZE; return the milliseconds of each leg, of planning and of execution.

    The legs share one statement, so their times can be read only from the plan that EXPLAIN returns. This plan is never
    shown, because it contains the query. `settings` are those of the recall's plan.
    """
    sql, arguments = sent
    with translated("measuring the recall"):
        async with _with_settings(connection, settings):
            report = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", *arguments)
    explained = json.loads(report)[0]
    parts = {node["Subplan Name"]: node for node in _nodes(explained["Plan"]) if "Subplan Name" in node}
    times = {leg: float(parts[f"CTE {leg}"]["Actual Total Time"]) for leg in _LEGS if f"CTE {leg}" in parts}
    if "CTE graph" in parts:  # Postgres computes the order that it starts from when the leg first reads it
        times["graph"] = float(parts["CTE graph"]["Actual Total Time"] - parts["CTE starts"]["Actual Startup Time"])
    return {**times, "planning": explained["Planning Time"], "execution": explained["Execution Time"]}


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _nodes(child)


async def _tried(
    connection: AnyConnection, plan: RecallPlan, written: Callable[[RecallPlan], Statement]
) -> Answer | None:
    """Execute the statement that `written` makes of the plan, and return None if Postgres refuses it.

    A refused statement with the graph leg is executed once more without it, since the graph's tables may just have been
    dropped.
    """
    for tried in (plan, plan.without_graph()) if plan.has_graph_leg else (plan,):
        sent = written(tried)
        rows = await _accepted(connection, sent, tried)
        if rows is not None:
            reason = None if rows[0]["open"] else Degraded.MODEL_MISMATCH
            return Answer(rows, reason, sent, outdated=tried is not plan)
    return None


async def _accepted(connection: AnyConnection, sent: Statement, plan: RecallPlan) -> Sequence[Any] | None:
    """Execute a statement and return its rows, or None if Postgres refuses it, as when the vector column is gone."""
    try:
        return await _fetch(connection, sent, plan)
    except DatabaseRejected:
        return None


async def _fetch(connection: AnyConnection, sent: Statement, plan: RecallPlan) -> Sequence[Any]:
    """Execute a statement, again if a column has another type than when the statement was prepared.

    The driver forgets such a statement, but repeats it by itself only where there is no transaction.
    """
    with translated("recalling"):
        try:
            return await _fetched(connection, sent, plan)
        except asyncpg.InvalidCachedStatementError:
            return await _fetched(connection, sent, plan)


async def _fetched(connection: AnyConnection, sent: Statement, plan: RecallPlan) -> Sequence[Any]:
    sql, arguments = sent
    async with _with_settings(connection, plan.settings):
        rows: Sequence[Any] = await connection.fetch(sql, *arguments)
    return rows


@asynccontextmanager
async def _with_settings(connection: AnyConnection, settings: Mapping[str, str]) -> AsyncIterator[None]:
    """Set run-time parameters of Postgres within the block, in a way that also works behind a pooler.

    They are those by which Postgres plans a statement and decides whether to compile it, which it does before it
    executes the statement. So the statement cannot set them for itself.

    A Postgres built with LLVM compiles by default each statement whose estimated cost exceeds `jit_above_cost`, and so
    does each recall from more than some 300,000 rows. Compiling takes 290 ms, but executing only 40 to 90 ms. Where
    there is nothing to set, three round trips are saved.
    """
    if not settings:
        yield
        return
    async with connection.transaction(readonly=True):
        await connection.execute("; ".join(f"SET LOCAL {name} = {value}" for name, value in settings.items()))
        yield
