"""Reads a few texts with the vectors that are stored of them."""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from dataclasses import dataclass

from memory_recall.indexing.queue_sql import PendingRow, beginning
from memory_recall.postgres.connection import Connection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.table import MemoryTable, VectorColumn

_SAMPLE = 1000  # rows, so that the texts of a large table are not all read


@dataclass(frozen=True, slots=True)
class StoredVector:
    """A row that is neither sensitive nor deleted, with its text, and its vector."""

    row: PendingRow
    vector: list[float]


async def read_stored_vectors(
    connection: Connection, table: MemoryTable, column: VectorColumn, limit: int
) -> list[StoredVector]:
    """Read, of 1,000 arbitrary rows with a vector in the column, the `limit` with the shortest texts, these first."""
    row, vector = table.row("m"), f"m.{table.vector_name(column)}"
    with translated("reading stored vectors"):
        records = await connection.fetch(
            f"SELECT {table.key.shown('s.key')} AS id, {beginning('s.content')} AS content, s.vector::real[] AS vector,"
            f" {table.own('memory_index_text_hash')}(s.content) AS hash "
            f"FROM (SELECT {row.id} AS key, {row.content} AS content, {vector} AS vector FROM {table.qualified} m "
            f"WHERE {vector} IS NOT NULL AND {table.shareable('m')} AND btrim({row.content}) <> '' LIMIT {_SAMPLE}) s "
            "ORDER BY octet_length(s.content) LIMIT $1",
            limit,
        )
    return [StoredVector(PendingRow.read(record), record["vector"]) for record in records]
