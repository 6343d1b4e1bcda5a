"""Makes the SQL statements that draw and read memories which are neither sensitive nor deleted."""
# ruff: noqa: S608  (statements are put together from quoted identifiers; values are bound)

from memory_recall.schema.columns.moments import moment
from memory_recall.schema.columns.owners import owned_by
from memory_recall.schema.table import MemoryTable

DATABASE_NAME = "SELECT current_database()::text"

_SHOWN = ("category", "tags")


def draw_statement(table: MemoryTable, *, of_user: bool) -> str:
    """Return the statement that draws memories with text: $1 how many, $2 the seed, $3 ids to leave out.

    The order is that of a hash of the seed and the id, so the same seed draws the same memories of the same table. If
    `of_user` is set, only the memories of the user $4 are drawn from.
    """
    owned = f" AND {owned_by(table, 'm', '$4')}" if of_user else ""
    row, key = table.row("m"), table.key
    return (
        f"SELECT {key.shown(row.id)} AS id FROM {table.qualified} m "
        f"WHERE {table.shareable('m')} AND btrim({row.content}) <> '' "
        f"AND NOT {row.id} = ANY($3::{key.stored}[]){owned} "
        f"ORDER BY sha256(convert_to($2::text || ':' || {row.id}::text, 'UTF8')), {row.id} LIMIT $1"
    )


def read_statement(table: MemoryTable, *, of_user: bool) -> str:
    """Return the statement that reads the memory with the id $1, or nothing if it is sensitive or deleted.

    If `of_user` is set, it reads nothing either if the memory does not belong to the user $2.
    """
    row = table.row("m")
    shown = "".join(f", {row.optional(name)} AS {name}" for name in _SHOWN)
    owned = f" AND {owned_by(table, 'm', '$2')}" if of_user else ""
    return (
        f"SELECT {row.content} AS content{shown}, {moment(table, 'created_at')} AS created_at FROM {table.qualified} m "
        f"WHERE {row.id} = $1 AND {table.shareable('m')}{owned}"
    )


def existing_statement(table: MemoryTable) -> str:
    """Return the statement that counts the memories with the ids $1, those that may not be shown among them."""
    return f"SELECT count(*) FROM {table.qualified} m WHERE {table.row('m').id} = ANY($1::{table.key.stored}[])"
