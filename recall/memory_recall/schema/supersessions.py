"""The journal of `memory curate` as the database's rules see it: a mark ends when one of its texts is gone.

An entry marks one memory as superseded by another, and has the keyed hashes of both texts. Triggers end the mark and
delete the hashes when one of the texts changes, or its row becomes sensitive or is deleted. A sweep does so where no
trigger has seen it.

Where the memory API has its table of links beside the memories, a mark may have added a link to it. A trigger leaves
this link, because no edit of a memory may depend on a table that is not ours. The sweep drops it, or whoever next
applies or undoes something.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from memory_recall.postgres.connection import AnyConnection, Connection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.ddl import literal
from memory_recall.schema.table import MemoryTable

SUPERSESSIONS = "memory_supersessions"
_PAGE = 250  # entries that one statement of a sweep looks at
ENDED = "text_hash = '', successor_hash = '', undone_at = clock_timestamp()"
"""What is set in an entry whose mark ends; in a transaction that began before the mark was made, now() is too early."""
LINKS = "memory_links"
"""The memory API's table of links between memories, which some tables of memories have beside them."""
_LINK_COLUMNS = {"id", "user_id", "src_id", "dst_id", "link_type"}


def end_marks(table: MemoryTable, chosen: str) -> str:
    """Return PL/pgSQL that ends the marks of the chosen entries `s` of the journal and deletes their hashes.

    An entry that another session has locked is left to the next sweep. Nothing is done without the journal.
    """
    journal = table.own(SUPERSESSIONS)
    locked = f"SELECT s.step FROM {journal} s WHERE s.undone_at IS NULL AND ({chosen}) FOR UPDATE SKIP LOCKED"
    update = f"UPDATE {journal} SET {ENDED} WHERE step IN ({locked});"
    return f"IF to_regclass({literal(journal)}) IS NOT NULL THEN {update} END IF;"


async def sweep_page(connection: Connection, table: MemoryTable, after: int | None = None) -> int | None:
    """End the marks of some entries whose texts are not both those of present rows.

    They are the entries after the step `after`, or the first ones if it is None. Return the step after which the next
    page begins, or None after the last page. An entry that another session has locked is left.
    """
    journal = table.own(SUPERSESSIONS)
    with translated("sweeping the journal"):
        last: int | None = await connection.fetchval(
            f"""
WITH page AS MATERIALIZED (
  SELECT * FROM {journal} WHERE step > $1 AND undone_at IS NULL ORDER BY step LIMIT {_PAGE}
), void AS (
  SELECT s.step FROM {journal} s JOIN page p ON p.step = s.step
   WHERE s.undone_at IS NULL
     AND {void(table, "p")}
     FOR UPDATE OF s SKIP LOCKED
), swept AS (
  UPDATE {journal} SET {ENDED} WHERE step IN (SELECT step FROM void)
)
SELECT max(step) FROM page""",
            after or 0,
        )
    return last


def void(table: MemoryTable, entry: str, hashed: str | None = None) -> str:
    """Return the condition that one of the texts of an entry is not that of a row which is not sensitive or deleted.

    `hashed` is SQL for the hash of the text of a row `m`, by default the table's own.
    """
    memory = table.row("m")
    hashed = hashed or f"{table.own('memory_index_text_hash')}({memory.content})"
    stands = (
        f"EXISTS (SELECT FROM {table.qualified} m WHERE {memory.id} = {entry}.{key} AND {table.shareable('m')} "
        f"AND {hashed} = {entry}.{text_hash})"
        for key, text_hash in (("id", "text_hash"), ("superseded_by", "successor_hash"))
    )
    return f"NOT ({' AND '.join(stands)})"


async def has_links(connection: AnyConnection, table: MemoryTable) -> bool:
    """Return whether the memory API's table of links lies beside the table of memories and refers to it.

    That API's keys are integers.
    """
    if not table.key.is_integer:
        return False
    with translated("looking for the table of links"):
        columns = await connection.fetchval(
            "SELECT array_agg(a.attname::text) FROM pg_attribute a WHERE a.attrelid = to_regclass($1)::oid"
            " AND a.attnum > 0 AND EXISTS (SELECT FROM pg_constraint WHERE contype = 'f' AND conrelid = a.attrelid"
            " AND confrelid = to_regclass($2)::oid)",
            table.in_schema(LINKS),
            table.qualified,
        )
    return set(columns or ()) >= _LINK_COLUMNS


async def may_drop_links(connection: AnyConnection, table: MemoryTable) -> bool:
    """Return whether there is a table of links and the role may delete from it; a worker's own role may not."""
    if not await has_links(connection, table):
        return False
    with translated("looking at the rights on the table of links"):
        allowed: bool = await connection.fetchval(
            "SELECT has_table_privilege($1, 'DELETE') AND has_table_privilege($1, 'SELECT')"
            " AND has_table_privilege($2, 'UPDATE')",
            table.in_schema(LINKS),
            table.own(SUPERSESSIONS),
        )
    return allowed


async def drop_ended_links(connection: AnyConnection, table: MemoryTable) -> None:
    """Delete the links that were added with marks which have ended by now. There must be a table of links."""
    with translated("deleting links of marks that have ended"):
        await connection.execute(
            f"""
WITH ended AS (
  SELECT step, link_id FROM {table.own(SUPERSESSIONS)} WHERE undone_at IS NOT NULL AND link_id IS NOT NULL FOR UPDATE
), dropped AS (
  DELETE FROM {table.in_schema(LINKS)} WHERE id IN (SELECT link_id FROM ended) AND link_type = 'supersedes'
)
UPDATE {table.own(SUPERSESSIONS)} SET link_id = NULL WHERE step IN (SELECT step FROM ended)"""
        )
