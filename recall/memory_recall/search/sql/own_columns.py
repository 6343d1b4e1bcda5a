"""A recalled memory as a row of the caller's own table, for an API that ranks or links the memories further by itself.

The names of the columns come from the catalog. In the statement each is selected under an alias that no column of a
statement has otherwise, since a table may have a column `place` or `lexical_rank` of its own. A column that is a field
of a memory as it is, such as that of the text, is selected once, as this field.
"""

from collections.abc import Mapping
from typing import Any

from memory_recall.schema.columns.moments import readable
from memory_recall.schema.table import MemoryTable, quoted
from memory_recall.search.result import EVIDENCE_FIELDS, MEMORY_FIELDS

_COMPUTED = frozenset({"is_sensitive", "rank", "owner"})  # fields of a memory that are not the column of their name
_NO_TEXT = frozenset(
    (
        "boolean", "smallint", "integer", "bigint", "real", "double precision", "numeric", "uuid", "interval",
        "date", "time without time zone", "time with time zone",
        "timestamp without time zone", "timestamp with time zone",
    )
)  # fmt: skip


def own_select_list(table: MemoryTable) -> str:
    """Return a select list of those columns of the row `m` that are not selected as fields, each after a comma.

    In a sensitive row, every column whose type can hold text is selected as NULL, because it may repeat the content.
    """
    return "".join(f", {_shown(table, name)} AS {alias}" for name, alias in _aliases(table).items())


def own_row(table: MemoryTable, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result row under the table's column names instead of aliases, with `rank` and `EVIDENCE_FIELDS`.

    A memory that the concept graph reached also has `graph_score`, one that is superseded `superseded_by`, and one
    whose relevance is known `relevance`.
    """
    fields = {column: found[name] for name, column in _fields(table).items()}
    others = {name: found[alias] for name, alias in _aliases(table).items()}
    if_known = {name: found.get(name) for name in ("graph_score", "superseded_by", "relevance")}
    known = {name: value for name, value in if_known.items() if value is not None}
    return {**fields, **others, **{name: found[name] for name in ("rank", *EVIDENCE_FIELDS)}, **known}


def _fields(table: MemoryTable) -> dict[str, str]:
    """Return the fields of a memory that are the value of a column of the table, each with the column's name.

    A value inside a column is none, nor is a text of several columns: the caller's rows have the columns themselves.
    A key of type `uuid` is a text as a field, and a UUID in the caller's rows.
    """
    fields = [name for name in MEMORY_FIELDS if name in table.columns and name not in _COMPUTED]
    if table.key.name == "uuid":
        fields.remove("id")
    return {name: column for name in fields if (column := _column(table, name)) is not None}


def _column(table: MemoryTable, name: str) -> str | None:
    """Return the column that holds nothing but the value with this name, by the user's name for it."""
    sources = table.names.of(name)
    return sources[0].column if len(sources) == 1 and not sources[0].path else None


def _aliases(table: MemoryTable) -> dict[str, str]:
    """Return the alias of each column that is neither selected as a field nor a vector or search vector."""
    fields = set(_fields(table).values())
    others = [
        name
        for name, kind in table.catalog.items()
        if name not in fields and kind.rpartition(".")[2] not in {"tsvector", "vector", "halfvec", "sparsevec"}
    ]
    return {name: f"own_{number}" for number, name in enumerate(others)}


def _shown(table: MemoryTable, name: str) -> str:
    """Return SQL for a column; in a sensitive row it is NULL if it can hold text and does not name the owner."""
    column = f"m.{quoted(name)}"
    if name == _column(table, "user_id") or table.catalog[name] in _NO_TEXT:
        return readable(column, table.catalog[name])
    return f"CASE WHEN NOT {table.sensitive('m')} THEN {column} END"
