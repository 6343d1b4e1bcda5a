"""Fills the search column of ours: makes the words of the rows that were there before it, some rows at a time.

The database makes the words itself, of sensitive rows too, so no text leaves it. Triggers make those of new texts.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from memory_recall.postgres.connection import Connection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.columns.names import OWN_SEARCH_COLUMN
from memory_recall.schema.table import MemoryTable

_BATCH = 200  # rows; a statement over texts of usual length ends within a second and holds their locks no longer


async def fill_words(connection: Connection, table: MemoryTable) -> int:
    """Make the words of some rows that have none; return of how many, 0 after the last or without a column of ours.

    Rows that another session has locked are left for a later call.
    """
    if not table.names.has_own_search_column:
        return 0
    m = table.row("m")
    chosen = (
        f"SELECT {m.id} FROM {table.qualified} m WHERE {m.search_vector} IS NULL ORDER BY {m.id} LIMIT {_BATCH} "
        "FOR NO KEY UPDATE SKIP LOCKED"
    )
    with translated("making the words of texts"):
        status = await connection.execute(
            f"UPDATE {table.qualified} m SET {OWN_SEARCH_COLUMN} = {table.words(m.content)} WHERE {m.id} IN ({chosen})"
        )
    return int(status.rpartition(" ")[2])
