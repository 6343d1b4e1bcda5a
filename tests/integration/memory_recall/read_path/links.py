"""A concept graph whose links a test chooses."""

from collections.abc import Mapping
from typing import Any

from memory_recall.graph import enable
from memory_recall.postgres.connection import DsnText
from memory_recall.schema.table import describe
from memory_recall.schema.table_locks import Work, locked_session


async def enable_graph(dsn: str, table: str = "memories") -> None:
    """Enable the concept graph of the table, and call it filled."""
    async with locked_session(DsnText(dsn), table, 20, Work.CHANGE) as connection:
        await enable(connection, await describe(connection, table))
        await connection.execute("UPDATE memory_graph SET filled_at = now()")


async def link(pool: Any, concepts: Mapping[int, str]) -> None:
    """Give memories concepts, several ones separated by spaces."""
    await pool.executemany(
        "INSERT INTO memory_concepts SELECT id, memory_index_concept(user_id, name)"
        " FROM memories, unnest(string_to_array($2, ' ')) AS name WHERE id = $1",
        list(concepts.items()),
    )
