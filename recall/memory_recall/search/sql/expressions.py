"""SQL that the Postgres and SQLite recalls share: a memory's columns, the mask of sensitive text, a blended score."""

from collections.abc import Container, Mapping

from memory_recall.search.fusion import SortBy
from memory_recall.search.result import MEMORY_FIELDS

_MASK = "'[SENSITIVE - use secret_get(id=' || m.id || ')]'"
MOMENT_FIELDS = ("created_at", "updated_at")
_BLEND = (0.7, 0.3)  # the memory API's weights of lexical rank and importance
_BLEND_BY_IMPORTANCE = (0.4, 0.6)


def memory_columns(
    columns: Container[str], *, sensitive: str, owner: str, score: str, moments: Mapping[str, str] | None = None
) -> str:
    """Return the select list of `MEMORY_FIELDS` for the row `m`; the content of a sensitive row is masked.

    `columns` are the columns of the table; a field that is missing in them is selected as NULL. `moments` is SQL for
    times that are not simply the column of their name.
    """
    computed = {
        "content": f"CASE WHEN {sensitive} THEN {_MASK} ELSE coalesce(m.content, '') END",
        "is_sensitive": sensitive,
        "rank": score,
        "owner": owner,
        **(moments or {}),
    }
    return ", ".join(f"{computed.get(name) or optional(columns, name)} AS {name}" for name in MEMORY_FIELDS)


def optional(columns: Container[str], name: str) -> str:
    """Return SQL for a column of the row `m`, or NULL if the table's `columns` do not contain it."""
    return f"m.{name}" if name in columns else "NULL"


def blended(lexical_rank: str, sort_by: SortBy, importance: str = "m.importance") -> str:
    """Return SQL for a weighted sum of a lexical rank and row `m`'s importance, as the memory server orders rows."""
    of_rank, of_importance = _BLEND_BY_IMPORTANCE if sort_by is SortBy.IMPORTANCE else _BLEND
    return f"({lexical_rank} * {of_rank} + coalesce({importance}, 0) * {of_importance})"
