"""SQL that the Postgres and SQLite recalls share: a memory's columns, the mask of sensitive text, a blended score."""

from collections.abc import Callable, Mapping

from memory_recall.search.fusion import SortBy
from memory_recall.search.result import MEMORY_FIELDS

MOMENT_FIELDS = ("created_at", "updated_at")
_BLEND = (0.7, 0.3)  # the memory API's weights of lexical rank and importance
_BLEND_BY_IMPORTANCE = (0.4, 0.6)


def memory_columns(
    column: Callable[[str], str], *, sensitive: str, owner: str, score: str, written: Mapping[str, str] | None = None
) -> str:
    """Return the select list of `MEMORY_FIELDS` for a row; the content of a sensitive row is masked.

    `column` returns the SQL of a column of the row by our name for it, or NULL if the table has no such column.
    `written` is SQL for fields that are not simply their column.
    """
    mask = f"'[SENSITIVE - use secret_get(id=' || {column('id')} || ')]'"
    computed = {
        "content": f"CASE WHEN {sensitive} THEN {mask} ELSE coalesce({column('content')}, '') END",
        "is_sensitive": sensitive,
        "rank": score,
        "owner": owner,
        **(written or {}),
    }
    return ", ".join(f"{computed.get(name) or column(name)} AS {name}" for name in MEMORY_FIELDS)


def blended(lexical_rank: str, sort_by: SortBy, importance: str) -> str:
    """Return SQL for a weighted sum of a row's lexical rank and importance, as the memory server orders rows.

    `importance` is SQL for a number from 0 to 1, such as `bounded` returns.
    """
    of_rank, of_importance = _BLEND_BY_IMPORTANCE if sort_by is SortBy.IMPORTANCE else _BLEND
    return f"({lexical_rank} * {of_rank} + {importance} * {of_importance})"


def bounded(importance: str) -> str:
    """Return SQL of Postgres for the importance by which a row is ordered, from 0 to 1.

    Whoever writes a row chooses its importance. One that is greater, infinite or no number would put the row before all
    others of everybody, and one that is too large for a `float8` would end their recalls with an error.
    """
    return f"least(greatest(coalesce({importance}, 0), 0), 1)::float8"


def quoted_lexeme(lexeme: str) -> str:
    """Return SQL for a quoted lexeme of a tsquery; without quotes, Postgres would split compound words.

    The SQL means the same with both values of `standard_conforming_strings`, even if the lexeme has a backslash.
    """
    return rf"""'''' || replace(replace({lexeme}, E'\\', E'\\\\'), '''', '''''') || ''''"""
