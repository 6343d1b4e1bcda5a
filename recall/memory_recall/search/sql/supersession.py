"""SQL for memories that others supersede, according to the journal of `memory curate`.

Without an entry in the journal the recall statement stays as it is. With entries, a memory that supersedes others takes
the best of their scores and its own, and a superseded memory stands behind it. A superseded memory therefore keeps its
score, and a question in the words of the older memory still finds the newer one.

An entry counts only while it is true of the present rows: both texts are those that were compared, both memories have
one owner, and neither is sensitive or deleted.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from memory_recall.postgres.connection import AnyConnection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.rules.expected import TEXT_HASH
from memory_recall.schema.supersessions import SUPERSESSIONS
from memory_recall.schema.table import MemoryTable

LONGEST_CHAIN = 16  # memories that supersede one another, one after the other
NEWEST_FIRST = "coalesce(successor, id), coalesce(hops, 0)"
"""The order among memories of one score."""
SUPERSEDED = """PARTITION BY coalesce(successor, id) ORDER BY coalesce(hops, 0) DESC
                     RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW EXCLUDE GROUP"""
"""A window of the memories that the present one supersedes."""


async def any_superseded(connection: AnyConnection, table: MemoryTable) -> bool:
    """Return whether the journal exists, the role may read it and compare texts with it, and it has a valid entry."""
    journal, text_hash = table.own(SUPERSESSIONS), f"{table.own(TEXT_HASH)}(text)"
    with translated("looking for superseded memories"):
        readable = await connection.fetchval(
            "SELECT has_table_privilege(to_regclass($1), 'SELECT') AND"
            " has_function_privilege(to_regprocedure($2), 'EXECUTE')",
            journal,
            text_hash,
        )
        if not readable:
            return False
        found: bool = await connection.fetchval(f"SELECT EXISTS (SELECT FROM {journal} WHERE undone_at IS NULL)")
    return found


def successors(table: MemoryTable, user: str | None, *, name: str = "successors", rows: str = "joined") -> str:
    """Return a CTE `name` with the columns id, successor and hops, for the superseded ones among the rows of `rows`.

    `successor` is the newest memory of the chain, and `hops` is the number of entries from the row to it. `user` is the
    SQL of a user's id. If it is not None, only that user's memories are looked up.
    """
    hashed, old, new, owner = table.own(TEXT_HASH), table.row("o"), table.row("n"), ""
    if "user_id" in table.columns:
        owners = old.column("user_id"), new.column("user_id")
        owner = f"\n                              AND {owners[0]} = {owners[1]}"
        if user is not None:
            owner += "".join(f" AND {one} = {user}" for one in owners)
    return f"""
{name} AS MATERIALIZED (
  WITH RECURSIVE chain AS (
    SELECT id, id::{table.key.stored} AS successor, 0 AS hops FROM {rows}
     UNION ALL
    SELECT c.id, s.superseded_by, c.hops + 1
      FROM chain c
      JOIN {table.own(SUPERSESSIONS)} s ON s.id = c.successor AND s.undone_at IS NULL
      JOIN {table.qualified} o ON {old.id} = s.id AND {table.shareable("o")} AND {hashed}({old.content}) = s.text_hash
      JOIN {table.qualified} n ON {new.id} = s.superseded_by AND {table.shareable("n")}
                              AND {hashed}({new.content}) = s.successor_hash{owner}
     WHERE c.hops < {LONGEST_CHAIN}
  )
  SELECT DISTINCT ON (id) id, successor, hops FROM chain WHERE hops > 0 ORDER BY id, hops DESC
)"""


def newest_first(scored: str) -> str:
    """Return a FROM item with the column `score`, in which no memory scores below one that it supersedes.

    `scored` is the FROM item of the rows that are called `scored`, with their own scores in `own_score`.
    """
    return f"""(SELECT *, greatest(own_score, max(own_score) OVER ({SUPERSEDED})) AS score
            FROM {scored}) newest"""
