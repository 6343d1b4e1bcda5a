"""Makes the SQL statements that draw and read memories which are neither sensitive nor deleted."""
# ruff: noqa: S608  (statements are put together from quoted identifiers; values are bound)

from memory_recall.errors import InvalidInput
from memory_recall.schema.table import MemoryTable

_SHOWN = ("category", "tags", "created_at")


def draw_statement(table: MemoryTable, *, of_user: bool) -> str:
    """Return the statement that draws memories with text: $1 how many, $2 the seed, $3 ids to leave out.

    The order is that of a hash of the seed and the id, so the same seed draws the same memories of the same table. If
    `of_user` is set, only the memories of the user $4 are drawn from.

    Raises:
        InvalidInput: one user's memories are wanted, but the table has no column `user_id`.
    """
    return (
        f"SELECT id FROM {table.qualified} WHERE {table.shareable()} AND btrim(content) <> '' "
        f"AND NOT id = ANY($3::bigint[]){_owned(table, 4) if of_user else ''} "
        "ORDER BY sha256(convert_to($2::text || ':' || id::text, 'UTF8')), id LIMIT $1"
    )


def read_statement(table: MemoryTable, *, of_user: bool) -> str:
    """Return the statement that reads the memory with the id $1, or nothing if it is sensitive or deleted.

    If `of_user` is set, it reads nothing either if the memory does not belong to the user $2.

    Raises:
        InvalidInput: one user's memories are wanted, but the table has no column `user_id`.
    """
    shown = "".join(f", {name}" if name in table.columns else f", NULL AS {name}" for name in _SHOWN)
    owned = _owned(table, 2) if of_user else ""
    return f"SELECT content{shown} FROM {table.qualified} WHERE id = $1 AND {table.shareable()}{owned}"


def _owned(table: MemoryTable, argument: int) -> str:
    if "user_id" not in table.columns:
        raise InvalidInput(f"The table {table.name} has no column user_id.", "Say --everyone.")
    return f" AND user_id = ${argument}"
