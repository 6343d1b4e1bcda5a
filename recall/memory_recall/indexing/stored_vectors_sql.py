"""Reads a few texts with the vectors that are stored of them."""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from dataclasses import dataclass

from memory_recall.postgres.connection import Connection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.table import MemoryTable, VectorColumn


@dataclass(frozen=True, slots=True)
class StoredVector:
    """A text that is neither sensitive nor deleted, and its vector."""

    text: str
    vector: list[float]


async def read_stored_vectors(
    connection: Connection, table: MemoryTable, column: VectorColumn, longest: int, limit: int
) -> list[StoredVector]:
    """Read some texts with their vectors of a column: at most `limit`, each of at most `longest` characters."""
    content, vector = table.row("m").content, f"m.{table.vector_name(column)}"
    with translated("reading stored vectors"):
        rows = await connection.fetch(
            f"SELECT {content} AS content, {vector}::real[] AS vector FROM {table.qualified} m "
            f"WHERE {vector} IS NOT NULL AND {table.shareable('m')} AND btrim({content}) <> '' "
            f"AND char_length({content}) <= $1 LIMIT $2",
            longest,
            limit,
        )
    return [StoredVector(row["content"], row["vector"]) for row in rows]
