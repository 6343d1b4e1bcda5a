"""Reads a few texts with the vectors that are stored of them."""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from dataclasses import dataclass

from memory_recall.indexing.queue_sql import PendingRow
from memory_recall.postgres.connection import Connection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.table import MemoryTable, VectorColumn


@dataclass(frozen=True, slots=True)
class StoredVector:
    """A row that is neither sensitive nor deleted, with its text, and its vector."""

    row: PendingRow
    vector: list[float]


async def read_stored_vectors(
    connection: Connection, table: MemoryTable, column: VectorColumn, longest: int, limit: int
) -> list[StoredVector]:
    """Read some rows with their vectors of a column: at most `limit`, with texts of at most `longest` characters."""
    row, vector = table.row("m"), f"m.{table.vector_name(column)}"
    content = row.content
    with translated("reading stored vectors"):
        rows = await connection.fetch(
            f"SELECT {table.key.shown(row.id)} AS id, {content} AS content, {vector}::real[] AS vector, "
            f"{table.own('memory_index_text_hash')}({content}) AS hash FROM {table.qualified} m "
            f"WHERE {vector} IS NOT NULL AND {table.shareable('m')} AND btrim({content}) <> '' "
            f"AND char_length({content}) <= $1 LIMIT $2",
            longest,
            limit,
        )
    return [StoredVector(PendingRow(one["id"], one["content"], one["hash"]), one["vector"]) for one in rows]
