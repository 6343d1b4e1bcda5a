"""Makes the SQL statements that draw and read memories which are neither sensitive nor deleted."""
# ruff: noqa: S608  (statements are put together from quoted identifiers; values are bound)

from memory_recall.schema.columns.owners import owned_by
from memory_recall.schema.table import MemoryTable

_SHOWN = ("category", "tags", "created_at")


def draw_statement(table: MemoryTable, *, of_user: bool) -> str:
    """Return the statement that draws memories with text: $1 how many, $2 the seed, $3 ids to leave out.

    The order is that of a hash of the seed and the id, so the same seed draws the same memories of the same table. If
    `of_user` is set, only the memories of the user $4 are drawn from.
    """
    owned = f" AND {owned_by(table, 'm', '$4')}" if of_user else ""
    return (
        f"SELECT id FROM {table.qualified} m WHERE {table.shareable('m')} AND btrim(content) <> '' "
        f"AND NOT id = ANY($3::bigint[]){owned} "
        "ORDER BY sha256(convert_to($2::text || ':' || id::text, 'UTF8')), id LIMIT $1"
    )


def read_statement(table: MemoryTable, *, of_user: bool) -> str:
    """Return the statement that reads the memory with the id $1, or nothing if it is sensitive or deleted.

    If `of_user` is set, it reads nothing either if the memory does not belong to the user $2.
    """
    shown = "".join(f", {name}" if name in table.columns else f", NULL AS {name}" for name in _SHOWN)
    owned = f" AND {owned_by(table, 'm', '$2')}" if of_user else ""
    return f"SELECT content{shown} FROM {table.qualified} m WHERE id = $1 AND {table.shareable('m')}{owned}"
