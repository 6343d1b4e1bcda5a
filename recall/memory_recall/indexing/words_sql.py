"""Fills the search column of ours: makes the words of the rows that were there before it, some rows at a time.

The database makes the words itself, of sensitive rows too, so no text leaves it. Triggers make those of new texts.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from collections.abc import Sequence

import structlog

from memory_recall.errors import DatabaseRejected
from memory_recall.postgres.connection import Connection
from memory_recall.postgres.driver_errors import refuses_a_row, translated
from memory_recall.schema.columns.keys import MemoryId
from memory_recall.schema.columns.names import OWN_SEARCH_COLUMN
from memory_recall.schema.table import GUARDED, GUARDED_WRITER, MemoryTable

_log = structlog.get_logger("memory_recall.words")
_PAGE = 200  # rows; a statement over texts of usual length ends within a second and holds their locks no longer


async def fill_words(connection: Connection, table: MemoryTable, after: MemoryId | None = None) -> MemoryId | None:
    """Make the words of some rows that have none: those after the id `after`, or the first ones if it is None.

    Return the id after which the next page begins; None after the last page, or without a search column of ours. Rows
    that another session has locked are left without words. So are those whose update the table refuses; how many these
    are is logged.

    Raises:
        DatabaseRejected: Postgres refuses the statement for another reason than a single row.
    """
    if not table.names.has_own_search_column:
        return None
    m = table.row("m")
    following = "" if after is None else f" AND {m.id} > $1::{table.key.stored}"
    with translated("looking for texts without words"):
        rows = await connection.fetch(
            f"SELECT {table.key.shown(m.id)} AS id FROM {table.qualified} m "
            f"WHERE {m.search_vector} IS NULL{following} ORDER BY {m.id} LIMIT {_PAGE}",
            *(() if after is None else (after,)),
        )
    ids = [row["id"] for row in rows]
    if ids and (refused := await _fill(connection, table, ids)):
        _log.warning("the table refuses updates by which the words of texts are made", rows=refused)
    return ids[-1] if ids else None


async def _fill(connection: Connection, table: MemoryTable, ids: Sequence[MemoryId]) -> int:
    """Make the words of the rows with these ids, in ever smaller parts where the update of one of them is refused.

    Return how many rows the table refuses to update.
    """
    m = table.row("m")
    chosen = (
        f"SELECT {m.id} FROM {table.qualified} m WHERE {m.id} = ANY($1::{table.key.stored}[]) "
        f"AND {m.search_vector} IS NULL FOR NO KEY UPDATE SKIP LOCKED"
    )
    try:
        with translated("making the words of texts"):
            async with connection.transaction():
                await connection.execute(f"SET LOCAL {GUARDED_WRITER} = {GUARDED}")
                await connection.execute(
                    f"UPDATE {table.qualified} m SET {OWN_SEARCH_COLUMN} = {table.words(m.content)} "
                    f"WHERE {m.id} IN ({chosen})",
                    ids,
                )
    except DatabaseRejected as error:
        if not refuses_a_row(error):
            raise
        if len(ids) == 1:
            return 1
        middle = len(ids) // 2
        return await _fill(connection, table, ids[:middle]) + await _fill(connection, table, ids[middle:])
    return 0
