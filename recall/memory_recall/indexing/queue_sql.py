"""The queue of pending rows: read a page of it, write vectors back.

There is no queue table: a row without a vector that may have one is the entry. What makes this safe is the guard of
the write back, one statement for a batch: a vector is stored only where the text still has the hash that was
embedded, the row is still neither sensitive nor deleted, and the model is still the active one.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from memory_recall.errors import LockNotAvailable
from memory_recall.indexing.halfvec import encode_halfvecs
from memory_recall.postgres.connection import Connection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.table import ACTIVE, MemoryTable, VectorColumn

# Quarantined, or delayed. A delay beyond any that is ever given was written by a clock that has been set back since.
_NOT_YET = "(f.next_attempt = 'infinity' OR f.next_attempt BETWEEN now() AND now() + interval '10 minutes')"
_SHARE = "mod(m.id::bigint, $2::bigint) = $1::bigint"
_FOLLOWING = "m.id > $3::bigint"


@dataclass(frozen=True, slots=True)
class PendingRow:
    """A row to embed; its text stays out of every representation."""

    id: int
    text: str = field(repr=False)
    text_hash: str


@dataclass(frozen=True, slots=True)
class Partition:
    """The share of one worker: the rows whose id modulo `count` is `index`."""

    index: int = 0
    count: int = 1


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows that are due, and the id after which the next page begins; None after the last page."""

    rows: list[PendingRow]
    last: int | None


class PendingQueue:
    """Reads and finishes pending rows of one table for one model.

    Without the partial index over the pending rows (`indexed` false) a page is looked for among so many rows of any
    kind, along the primary key, instead of so many pending ones.
    """

    def __init__(
        self, table: MemoryTable, model_id: int, column: VectorColumn = ACTIVE, *, indexed: bool = True
    ) -> None:
        self._table = table
        self._model_id = model_id
        pending, vector = table.pending("m", column.name), column.name
        failures, text_hash = table.own(column.failures), table.own("memory_index_text_hash")
        self._page = _page_statement(table, column) if indexed else _sweep_statement(table, column)
        self._delayed = (
            f"SELECT min(CASE WHEN {_NOT_YET} THEN extract(epoch FROM f.next_attempt - now()) ELSE 0 END)::float8 "
            f"FROM {failures} f "
            f"JOIN {table.qualified} m ON m.id = f.id WHERE {pending} AND {_SHARE} "
            f"AND f.text_hash = {text_hash}(m.content) AND f.next_attempt < 'infinity'"
        )
        self._count = f"SELECT count(*) FROM {table.qualified} m WHERE {pending} AND {_SHARE}"
        still_wanted = (
            f"{text_hash}(m.content) = v.hash AND {table.shareable('m')} "
            f"AND EXISTS (SELECT FROM {table.own('memory_index_state')} s WHERE s.{column.role} = $4)"
        )
        values = f"unnest($1::bigint[], $2::text[], $3::{table.vector_type()}[]) AS v(id, hash, embedding)"
        self._write = (
            f"WITH stored AS (UPDATE {table.qualified} m SET {vector} = v.embedding FROM {values} "
            f"WHERE m.id = v.id AND m.{vector} IS NULL AND {still_wanted} RETURNING m.id) "
            f"SELECT count(*) FROM stored"
        )
        self._done = (
            f"SELECT count(*) FROM {table.qualified} m JOIN unnest($1::bigint[], $2::text[]) AS v(id, hash) "
            f"ON v.id = m.id WHERE m.{vector} IS NOT NULL AND {text_hash}(m.content) = v.hash"
        )

    async def page(self, connection: Connection, after: int, partition: Partition, limit: int) -> Page:
        """The next rows that are due, in the order of their ids; none where the column is another model's by now."""
        with translated("reading pending rows"):
            rows = await connection.fetch(self._page, partition.index, partition.count, after, limit, self._model_id)
        due = [PendingRow(row["id"], row["content"], row["hash"]) for row in rows if row["content"] is not None]
        return Page(due, rows[-1]["id"] if rows else None)

    async def count(self, connection: Connection, partition: Partition) -> int:
        """How many rows have no vector yet, delayed and quarantined ones included."""
        with translated("counting pending rows"):
            found: int = await connection.fetchval(self._count, partition.index, partition.count)
        return found

    async def seconds_until_due(self, connection: Connection, partition: Partition) -> float | None:
        """When the first delayed row may be tried again, by the database's clock; None when no row is delayed."""
        with translated("reading delayed rows"):
            seconds: float | None = await connection.fetchval(self._delayed, partition.index, partition.count)
        return seconds

    async def write(self, connection: Connection, rows: Sequence[PendingRow], vectors: npt.NDArray[np.float32]) -> int:
        """Store vectors; returns how many rows have theirs now, the others have changed and keep none.

        A row that is held by a long transaction of somebody else must not hold up the rows beside it, so after a lock
        timeout the batch is halved, and a single such row is left for a later pass. Repeating a write whose
        confirmation was lost with the connection counts what the first attempt stored.
        """
        ids, hashes = [row.id for row in rows], [row.text_hash for row in rows]
        try:
            with translated("writing vectors"):
                stored: int = await connection.fetchval(
                    self._write, ids, hashes, encode_halfvecs(vectors), self._model_id
                )
                if stored < len(rows):
                    stored = await connection.fetchval(self._done, ids, hashes)
        except LockNotAvailable:
            if len(rows) == 1:
                return 0
            middle = len(rows) // 2
            first = await self.write(connection, rows[:middle], vectors[:middle])
            return first + await self.write(connection, rows[middle:], vectors[middle:])
        return stored


def _due(table: MemoryTable, column: VectorColumn) -> str:
    # Between two statements a flip may have exchanged the columns: what this one lacks then is another model's.
    return (
        f"EXISTS (SELECT FROM {table.own('memory_index_state')} s WHERE s.{column.role} = $5::integer) "
        f"AND {table.pending('m', column.name)} AND {_SHARE} "
        f"AND NOT EXISTS (SELECT FROM {table.own(column.failures)} f WHERE f.id = m.id "
        f"AND f.text_hash = {table.own('memory_index_text_hash')}(m.content) AND {_NOT_YET})"
    )


def _page_statement(table: MemoryTable, column: VectorColumn) -> str:
    return (
        f"SELECT m.id, m.content, {table.own('memory_index_text_hash')}(m.content) AS hash FROM {table.qualified} m "
        f"WHERE {_due(table, column)} AND {_FOLLOWING} ORDER BY m.id LIMIT $4::bigint"
    )


def _sweep_statement(table: MemoryTable, column: VectorColumn) -> str:
    # The due rows are picked from a fixed stretch: a plan for all of them would sort the table for every page.
    return (
        f"SELECT m.id, d.content, {table.own('memory_index_text_hash')}(d.content) AS hash "
        f"FROM (SELECT * FROM {table.qualified} m WHERE {_FOLLOWING} ORDER BY m.id LIMIT $4::bigint) m "
        f"LEFT JOIN LATERAL (SELECT m.content WHERE {_due(table, column)}) d ON true ORDER BY m.id"
    )
