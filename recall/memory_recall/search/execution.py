"""Sends a recall's statement, or its parts on two connections, and says why meaning took no part if it did not."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from memory_recall.embedding.following import ActiveSeen
from memory_recall.errors import DatabaseRejected
from memory_recall.postgres.connection import AnyConnection
from memory_recall.postgres.driver_errors import translated
from memory_recall.search.jit import uncompiled
from memory_recall.search.query import Degraded
from memory_recall.search.readiness import Readiness
from memory_recall.search.sql import parallel as parts
from memory_recall.search.sql.parallel import FoundByMeaning, FoundByWords, Statement
from memory_recall.search.sql.statement import DenseQuery, RecallQuery, statement


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of the recall statement, and how they came about."""

    rows: Sequence[Any]
    reason: Degraded | None
    sent: Statement
    legs: Mapping[str, float] = field(default_factory=dict)

    @property
    def active(self) -> ActiveSeen | None:
        """Which model the database says is active."""
        first = self.rows[0]
        return ActiveSeen(first["active"], first["active_digest"], first["active_url"]) if first["active"] else None


async def ask(
    connection: AnyConnection, plan: RecallQuery, readiness: Readiness, dense: DenseQuery | Degraded | None
) -> Answer:
    """One statement; another one, by words alone, only where that was refused or had no words to fall back on."""
    if isinstance(dense, DenseQuery):
        sent = statement(replace(plan, dense=dense), readiness.table)
        try:
            rows = await _fetch(connection, sent, readiness)
        except DatabaseRejected:
            dense = Degraded.DENSE_FAILED
        else:
            if rows[0]["open"]:
                return Answer(rows, None, sent)
            if plan.legs == "both":  # the statement has answered with the lexical order already
                return Answer(rows, Degraded.MODEL_MISMATCH, sent)
            dense = Degraded.MODEL_MISMATCH
    sent = statement(replace(plan, legs="lexical"), readiness.table)
    return Answer(await _fetch(connection, sent, readiness), dense, sent)


async def ask_both_at_once(
    connections: tuple[AnyConnection, AnyConnection], plan: RecallQuery, readiness: Readiness, dense: DenseQuery
) -> Answer:
    """Both legs side by side, then their fusion; by words alone where the dense leg is refused.

    Raises:
        DatabaseUnreachable: either connection failed.
    """
    first, second = connections
    whole, table = replace(plan, dense=dense), readiness.table
    try:
        async with asyncio.TaskGroup() as legs:
            meaning = legs.create_task(_accepted(first, parts.by_meaning(whole, table), readiness))
            words = legs.create_task(_accepted(second, parts.by_words(whole, table), readiness))
    except ExceptionGroup as group:  # the other leg has ended by now, so that both connections can go back
        raise group.exceptions[0] from None
    nearest, matching = meaning.result(), words.result()
    if nearest is not None and matching is not None:
        found = FoundByMeaning(*nearest[0]), FoundByWords(*matching[0])
        sent = parts.together(whole, table, *found)
        rows = await _accepted(first, sent, readiness)
        if rows is not None:
            return Answer(rows, None if rows[0]["open"] else Degraded.MODEL_MISMATCH, sent)
    return await ask(first, plan, readiness, Degraded.DENSE_FAILED)


async def _accepted(connection: AnyConnection, sent: Statement, readiness: Readiness) -> Sequence[Any] | None:
    """None where Postgres refuses the statement, as when the column of vectors is gone."""
    try:
        return await _fetch(connection, sent, readiness)
    except DatabaseRejected:
        return None


async def _fetch(connection: AnyConnection, sent: Statement, readiness: Readiness) -> Sequence[Any]:
    sql, arguments = sent
    with translated("recalling"):
        async with uncompiled(connection, compiles=readiness.compiles):
            rows: Sequence[Any] = await connection.fetch(sql, *arguments)
    return rows
