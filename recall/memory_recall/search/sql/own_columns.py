"""A recalled memory as a row of the caller's own table, for an API that ranks or links the memories further by itself.

The names of the columns come from the catalog. In the statement each is selected under an alias that no column of a
statement has otherwise, since a table may have a column `place` or `lexical_rank` of its own.
"""

from collections.abc import Mapping
from typing import Any

from memory_recall.schema.table import ACTIVE, STANDBY, MemoryTable, quoted
from memory_recall.search.result import EVIDENCE_FIELDS, MEMORY_FIELDS

_COMPUTED = ("is_sensitive", "rank", "owner")  # fields of a memory that are not the column of their name
_NO_TEXT = frozenset(
    (
        "boolean", "smallint", "integer", "bigint", "real", "double precision", "numeric", "uuid", "interval",
        "date", "time without time zone", "time with time zone",
        "timestamp without time zone", "timestamp with time zone",
    )
)  # fmt: skip
_SHOWN = frozenset({"is_sensitive", "user_id"})  # columns of a sensitive memory that every answer of a recall tells


def own_select_list(table: MemoryTable) -> str:
    """Return a select list of those columns of the row `m` that are not in `MEMORY_FIELDS`, each after a comma.

    In a sensitive row, every column whose type can hold text is selected as NULL, because it may repeat the content.
    """
    return "".join(f", {_shown(table, name)} AS {alias}" for name, alias in _aliases(table).items())


def own_row(table: MemoryTable, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result row under the table's column names instead of aliases, with `rank` and `EVIDENCE_FIELDS`.

    A memory that the concept graph reached also has `graph_score`, and one that is superseded `superseded_by`.
    """
    fields = {name: found[name] for name in MEMORY_FIELDS if name in table.columns}
    others = {name: found[alias] for name, alias in _aliases(table).items()}
    if_known = {name: found.get(name) for name in ("graph_score", "superseded_by")}
    known = {name: value for name, value in if_known.items() if value is not None}
    return {**fields, **others, **{name: found[name] for name in ("rank", *EVIDENCE_FIELDS)}, **known}


def _aliases(table: MemoryTable) -> dict[str, str]:
    """Return the alias of each column that is neither in `MEMORY_FIELDS` nor a vector or search vector."""
    fields = {*MEMORY_FIELDS} - {*_COMPUTED}
    derived = {ACTIVE.name, STANDBY.name, *(name for name, kind in table.catalog.items() if kind == "tsvector")}
    others = [name for name in table.catalog if name not in fields | derived]
    return {name: f"own_{number}" for number, name in enumerate(others)}


def _shown(table: MemoryTable, name: str) -> str:
    column = f"m.{quoted(name)}"
    if name in _SHOWN or table.catalog[name] in _NO_TEXT:
        return column
    return f"CASE WHEN NOT {table.sensitive('m')} THEN {column} END"
