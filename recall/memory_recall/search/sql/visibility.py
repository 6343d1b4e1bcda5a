"""Decides whose memories a query searches, and which of these the user who asks may find.

An answer masks the content of a sensitive memory. But an answer that contains the memory reveals that the memory
contains words of the query, so its text could be guessed word by word. Therefore no leg finds a sensitive memory of
another user, and no document frequency counts it: the answer is the same as without that memory.
"""

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from memory_recall.schema.columns.owners import owned_by, owner_named, owner_value, require_owners
from memory_recall.schema.table import MemoryTable
from memory_recall.search.sql.filters import Arguments, Text
from memory_recall.search.validation import check_fields


def _named(user: object) -> object:
    """Take the id of a user as text, also from an API whose ids are integers or UUIDs."""
    if isinstance(user, (int, UUID)) and not isinstance(user, bool):
        return str(user)
    if user is None or (isinstance(user, str) and not user.strip()):
        raise PydanticCustomError("user", "Input should be a user's id, or EVERYONE for everybody's memories")
    return user


UserId = Annotated[Text, BeforeValidator(_named)]


@dataclass(frozen=True, slots=True)
class Everyone:
    """The memories of all users, as far as the user `reader` may find them.

    Sensitive memories of users other than the reader are left out. With `reader` None, all sensitive memories are left
    out. A table without a column `user_id` belongs to one user: its sensitive memories are found with `reader` None,
    and left out with a reader.

    Raises:
        InvalidInput: `reader` is not a valid id of a user.
    """

    reader: UserId | None = None

    def __post_init__(self) -> None:
        check_fields(self)


EVERYONE = Everyone()

Owner = Annotated[UserId | Everyone, BeforeValidator(_named)]
"""Whose memories are searched. None and an empty text are nobody's id and are refused."""


@dataclass(frozen=True, slots=True)
class SearchedRows:
    """Two SQL conditions on the row `m`, and the user whose memories alone are searched.

    `visible` is true for the rows that the user who asks may find; only these count in term statistics. `searched` is
    true for the visible rows of the owner whose memories are searched. In a table that is partitioned by user, a search
    in one user's memories takes its statistics from them alone, so that it reads no other partition.

    A row that a leg has found is looked up again by its id and by `searched`, each time: an id may have become that of
    several rows, and of these only the found one may be returned. In a partitioned table, Postgres then looks in one
    partition.

    `user` is SQL for the user's id, or None if the memories of several users are searched.
    """

    visible: str
    searched: str
    user: str | None = None


def row_again(table: MemoryTable, found: str, rows: SearchedRows) -> str:
    """Return a FROM item `m`: the row with the id `found`, provided that it is still one of the searched rows."""
    again = f"{table.row('m').id} = {found} AND {rows.searched}"
    return f"LATERAL (SELECT m.* FROM {table.qualified} m WHERE {again} LIMIT 1) m"  # noqa: S608  (our own expressions)


def postgres_rows(owner: str | Everyone, arguments: Arguments, table: MemoryTable) -> SearchedRows:
    """Return the conditions on visible and on searched rows for Postgres.

    Raises:
        InvalidInput: one user's memories are searched, but the table has no column `user_id`; or no value of this
            column is written like the user's id.
    """

    def own(reader: str) -> str:
        return owned_by(table, "m", arguments.placeholder(owner_named(table, reader)))

    present, public = table.present("m"), f"NOT {table.sensitive('m')}"
    if isinstance(owner, str):
        placeholder = arguments.placeholder(owner_named(table, owner))
        belongs = owned_by(table, "m", placeholder)
        seen = belongs if table.partitioned_by_user else f"({public} OR {belongs})"
        return SearchedRows(f"{present} AND {seen}", f"{present} AND {belongs}", owner_value(table, placeholder))
    visible = f"{present} AND {_findable(owner, public, own, owned='user_id' in table.columns)}"
    return SearchedRows(visible, visible)


def reader_of(owner: str | Everyone, table: MemoryTable) -> str | None:
    """Return the user who asks, written like the owners of memories, or None if nobody is named."""
    reader = owner.reader if isinstance(owner, Everyone) else owner
    return reader if reader is None or "user_id" not in table.columns else owner_named(table, reader)


def sqlite_rows(owner: str | Everyone, columns: Container[str]) -> tuple[str, list[object]]:
    """Return the condition on searched rows for SQLite, with the values of its placeholders.

    Raises:
        InvalidInput: one user's memories are searched, but the table has no column `user_id`.
    """
    values: list[object] = []

    def own(reader: str) -> str:
        values.append(reader)
        return "m.user_id = ?"

    present = "m.deleted_at IS NULL" if "deleted_at" in columns else "true"
    if isinstance(owner, str):
        require_owners(columns)
        return f"{present} AND {own(owner)}", values
    public = f"NOT {sqlite_sensitive(columns)}"
    return f"{present} AND {_findable(owner, public, own, owned='user_id' in columns)}", values


def sqlite_sensitive(columns: Container[str]) -> str:
    """Return an SQL condition for SQLite for whether the row `m` is sensitive: unless its mark is 0 or false.

    A column of SQLite holds values of any type, whatever type it is declared with, and SQLite takes the text 'true' for
    false.
    """
    if "is_sensitive" not in columns:
        return "false"
    return "(NOT coalesce(m.is_sensitive = 0 OR lower(m.is_sensitive) IN ('0', 'false'), false))"


def _findable(everyone: Everyone, public: str, own: Callable[[str], str], *, owned: bool) -> str:
    """Return an SQL condition for whether the reader may find the row `m`.

    `owned` says whether the table has a column `user_id`. `public` is the condition for a row that is not sensitive,
    and `own` makes the condition for a row that belongs to a user.
    """
    if everyone.reader is None:
        return public if owned else "true"
    return f"({public} OR {own(everyone.reader)})" if owned else public
