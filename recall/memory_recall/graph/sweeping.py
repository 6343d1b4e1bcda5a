"""Removes, page by page, the links of memories that are sensitive or deleted.

The rules of the graph remove them with the change. But a transaction that is isolated by a snapshot does not see the
links that were inserted after the snapshot, and where the graph is paused there is no queue by which a worker would
find them.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from memory_recall.postgres.connection import AnyConnection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.columns.keys import MemoryId
from memory_recall.schema.graph_relations import CONCEPTS
from memory_recall.schema.table import MemoryTable

_PAGE = 1_000  # memories that are sensitive or deleted


async def may_sweep_links(connection: AnyConnection, table: MemoryTable) -> bool:
    """Return whether there are links, in a graph that is enabled or paused, and the role may delete them."""
    with translated("looking at the concept graph"):
        allowed: bool | None = await connection.fetchval(
            "SELECT has_table_privilege(relation, 'SELECT') AND has_table_privilege(relation, 'DELETE')"
            " FROM to_regclass($1) AS relation",
            table.own(CONCEPTS),
        )
    return bool(allowed)


async def sweep_links(connection: AnyConnection, table: MemoryTable, after: MemoryId | None) -> MemoryId | None:
    """Delete the links of some memories that are sensitive or deleted, in the order of their ids.

    They are those after the id `after`, or the first ones if it is None. Return the id after which the next page
    begins, or None after the last page.
    """
    row_id = table.row("m").id
    following = "" if after is None else f" AND {row_id} > $1::{table.key.stored}"
    with translated("sweeping the concept graph"):
        last: MemoryId | None = await connection.fetchval(
            f"""
WITH page AS MATERIALIZED (
  SELECT {row_id} AS id FROM {table.qualified} m WHERE (NOT {table.shareable("m")}){following}
   ORDER BY {row_id} LIMIT {_PAGE}
), swept AS (
  DELETE FROM {table.own(CONCEPTS)} WHERE memory_id = ANY (ARRAY(SELECT id FROM page))
)
SELECT {table.key.shown("p.id")} FROM page p ORDER BY p.id DESC LIMIT 1""",
            *(() if after is None else (after,)),
        )
    return last
