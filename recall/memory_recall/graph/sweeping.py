"""Removes, page by page, the links of memories that are sensitive or deleted.

The rules of the graph remove them with the change. But a transaction that is isolated by a snapshot does not see the
links that were inserted after the snapshot, and where the graph is paused there is no queue by which a worker would
find them.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from memory_recall.postgres.connection import AnyConnection
from memory_recall.postgres.driver_errors import translated
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


async def sweep_links(connection: AnyConnection, table: MemoryTable, after: int) -> int | None:
    """Delete the links of some memories that are sensitive or deleted: those with ids above `after`, in their order.

    Return the id after which the next page begins, or None after the last page.
    """
    with translated("sweeping the concept graph"):
        last: int | None = await connection.fetchval(
            f"""
WITH page AS MATERIALIZED (
  SELECT m.id FROM {table.qualified} m WHERE m.id > $1::bigint AND (NOT {table.shareable("m")})
   ORDER BY m.id LIMIT {_PAGE}
), swept AS (
  DELETE FROM {table.own(CONCEPTS)} WHERE memory_id = ANY (ARRAY(SELECT id FROM page))
)
SELECT max(id) FROM page""",
            after,
        )
    return last
