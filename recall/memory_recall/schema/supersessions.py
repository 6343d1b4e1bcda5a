"""The journal of `memory curate` as the database's rules see it: it keeps no hash of a text that is gone.

An entry marks one memory as superseded by another, and has the keyed hashes of both texts. Triggers delete the hashes
when one of the texts changes, or its row becomes sensitive or is deleted. A sweep deletes those that no trigger has
seen go.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from memory_recall.postgres.connection import Connection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.ddl import literal
from memory_recall.schema.table import MemoryTable

SUPERSESSIONS = "memory_supersessions"
_PAGE = 250  # entries that one statement of a sweep looks at
_FORGOTTEN = "text_hash = '', successor_hash = ''"


def forget_hashes(table: MemoryTable, chosen: str) -> str:
    """Return PL/pgSQL that deletes the hashes of the chosen entries `s` of the journal, which then have no effect.

    An entry that another session has locked is left to the next sweep. Nothing is done without the journal.
    """
    journal = table.own(SUPERSESSIONS)
    locked = f"SELECT s.step FROM {journal} s WHERE s.undone_at IS NULL AND ({chosen}) FOR UPDATE SKIP LOCKED"
    update = f"UPDATE {journal} SET {_FORGOTTEN} WHERE step IN ({locked}) AND text_hash <> '';"
    return f"IF to_regclass({literal(journal)}) IS NOT NULL THEN {update} END IF;"


async def sweep_page(connection: Connection, table: MemoryTable, after: int) -> int | None:
    """Delete the hashes of some entries, those after the step `after`, whose texts are not both those of present rows.

    Return the step after which the next page begins, or None after the last page. An entry that another session has
    locked is left.
    """
    journal = table.own(SUPERSESSIONS)
    with translated("sweeping the journal"):
        last: int | None = await connection.fetchval(
            f"""
WITH page AS MATERIALIZED (
  SELECT * FROM {journal} WHERE step > $1 AND undone_at IS NULL ORDER BY step LIMIT {_PAGE}
), void AS (
  SELECT s.step FROM {journal} s JOIN page p ON p.step = s.step
   WHERE s.undone_at IS NULL AND s.text_hash <> ''
     AND NOT ({_stands(table, "p.id", "p.text_hash")} AND {_stands(table, "p.superseded_by", "p.successor_hash")})
     FOR UPDATE OF s SKIP LOCKED
), swept AS (
  UPDATE {journal} SET {_FORGOTTEN} WHERE step IN (SELECT step FROM void)
)
SELECT max(step) FROM page""",
            after,
        )
    return last


def _stands(table: MemoryTable, key: str, text_hash: str) -> str:
    """Return the condition that there is a row with this id and text that is neither sensitive nor deleted."""
    return (
        f"EXISTS (SELECT FROM {table.qualified} m WHERE m.id = {key} AND {table.shareable('m')} "
        f"AND {table.own('memory_index_text_hash')}(m.content) = {text_hash})"
    )
