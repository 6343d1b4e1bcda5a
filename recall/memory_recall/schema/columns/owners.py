"""Converts owners between the texts by which callers name them and the values of the column `user_id`.

Everywhere else in this package an owner is a text, whatever the type of the column: that of a query, of an answer, of a
line of an export. In SQL a text is bound and cast to the column's type, not the column to text, so that an index on the
column is used.
"""

import re
from collections.abc import Container
from uuid import UUID

from memory_recall.errors import InvalidInput
from memory_recall.schema.table import MemoryTable

_LARGEST = {"smallint": 2**15, "integer": 2**31, "bigint": 2**63}
_NUMBER = re.compile("-?[0-9]{1,19}")


def owner_named(table: MemoryTable, name: str) -> str:
    """Return an owner's name as the database writes it: `7` for `007` if owners are integers.

    Raises:
        InvalidInput: the table does not say whose a memory is, or no value of its column is written like this.
    """
    require_owners(table.columns)
    written = _written(name, table.columns["user_id"])
    if written is None:
        raise InvalidInput(
            f"`user_id` cannot be used: it should be of the type {table.columns['user_id']}.",
            "Give the owner as the table's column user_id has it.",
        )
    return written


def require_owners(columns: Container[str]) -> None:
    """Refuse to look for one user's memories in a table with these columns.

    Raises:
        InvalidInput: the table does not say whose a memory is.
    """
    if "user_id" not in columns:
        raise InvalidInput(
            "The table of memories has no column user_id, so it does not say whose a memory is.",
            "Search everybody's memories (EVERYONE, or --everyone).",
        )


def _written(name: str, kind: str) -> str | None:
    if kind == "uuid":
        try:
            return str(UUID(name))
        except ValueError:
            return None
    if kind in _LARGEST:
        number = int(name) if _NUMBER.fullmatch(name) else None
        return None if number is None or not -_LARGEST[kind] <= number < _LARGEST[kind] else str(number)
    return name


def owner_text(table: MemoryTable, row: str) -> str:
    """Return SQL for the owner of a row as text; NULL if the table does not say whose a memory is."""
    return f"{table.row(row).optional('user_id')}::text"


def owner_value(table: MemoryTable, text: str) -> str:
    """Return SQL for the value of the column that belongs to an owner's name; `text` is SQL, such as a placeholder."""
    return f"{text}::text::{table.columns['user_id']}"


def owned_by(table: MemoryTable, row: str, text: str) -> str:
    """Return an SQL condition for a row of one owner; `text` is SQL for the name, such as a placeholder."""
    return f"{table.row(row).column('user_id')} = {owner_value(table, text)}"


def absent_owner(table: MemoryTable) -> str:
    """Return SQL for the owner of an imported memory that names none: nobody, unless owners are texts."""
    return "NULL" if table.columns["user_id"] in {"uuid", *_LARGEST} else "'default'"
