"""Which texts may leave the cluster at this very moment.

A worker reads pages of rows and sends their texts later, after an outage much later. For an embedder of our own that is
harmless, since the write back is guarded. A hosted one must not even see a text whose row has become sensitive or was
deleted meanwhile, so rows are looked up once more just before each request.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

import asyncio
from collections.abc import Sequence
from functools import partial

from memory_recall.indexing.queue_sql import PendingRow
from memory_recall.indexing.worker_session import Session
from memory_recall.postgres.connection import Connection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.revisions import require_schema


class Screen:
    """Lets through the rows that may still leave, with the text that was read."""

    def __init__(self, session: Session, table: str) -> None:
        self._session = session
        self._table = table
        self._one_at_a_time = asyncio.Lock()

    async def __call__(self, rows: Sequence[PendingRow]) -> list[PendingRow]:
        """The rows that are neither sensitive nor deleted nor edited since they were read, in their order."""
        async with self._one_at_a_time:
            allowed = await self._session.run(partial(self._allowed, rows))
        return [row for row in rows if row.id in allowed]

    async def _allowed(self, rows: Sequence[PendingRow], connection: Connection) -> set[int]:
        table = await require_schema(connection, self._table)
        text_hash = table.own("memory_index_text_hash")
        with translated("looking at rows before they leave"):
            found = await connection.fetch(
                f"SELECT m.id FROM {table.qualified} m JOIN unnest($1::bigint[], $2::text[]) AS v(id, hash) "
                f"ON v.id = m.id WHERE {table.shareable('m')} AND {text_hash}(m.content) = v.hash",
                [row.id for row in rows],
                [row.text_hash for row in rows],
            )
        return {row["id"] for row in found}
