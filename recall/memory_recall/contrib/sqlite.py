"""Recall over a local SQLite file, without Postgres, embedder or network.

A search by FTS5 finds the rows that contain every term of the query or, if there are none, the rows that contain any
term. The rows are ordered by FTS5's score blended with importance. If FTS5 cannot parse the query, the search finds the
rows that contain the whole query as a substring.
"""
# ruff: noqa: S608  (statements are put together from our own expressions; values are bound)

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from memory_recall.errors import InvalidInput
from memory_recall.search.fusion import SortBy
from memory_recall.search.query import RecallQuery, require_query
from memory_recall.search.result import RecalledMemory, RecallResult, Timings, memory_from
from memory_recall.search.sql.expressions import blended, memory_columns
from memory_recall.search.sql.filters import sqlite_conditions
from memory_recall.search.sql.visibility import Everyone, sqlite_rows, sqlite_sensitive
from memory_recall.search.token_budget import only, places_that_fit

_TABLES = ("memories", "memories_fts")
_IMPORTANCE = "min(max(coalesce(m.importance, 0), 0), 1)"


@contextmanager
def opened_sqlite(file: Path) -> Iterator["SqliteRecall"]:
    """Open a SQLite file for recalls without the right to write to it, and close it when the block ends.

    Raises:
        InvalidInput: there is no such file, it is no SQLite database, or it lacks one of the two tables.
    """
    if not file.is_file():
        raise InvalidInput(f"There is no file {file}.", "Name the SQLite file of the memories.")
    try:
        connection = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)
        with closing(connection):
            found = {str(row[0]) for row in connection.execute("SELECT name FROM sqlite_master")}
            missing = [name for name in _TABLES if name not in found]
            if missing:
                raise InvalidInput(
                    f"{file} has no table {missing[0]}.", "Name a file with the tables memories and memories_fts."
                )
            yield SqliteRecall(connection)
    except sqlite3.DatabaseError as error:
        raise InvalidInput(
            f"{file} cannot be read as a SQLite database ({type(error).__name__}).", "Name another file."
        ) from None


class SqliteRecall:
    """Recalls memories from the tables `memories` and `memories_fts`.

    `memories_fts` is an FTS5 table over content, category, tags and expanded_keywords, and its rowid is the memory's
    id. The columns is_sensitive, deleted_at and user_id of `memories` need not exist, because older files lack them.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._columns = {str(row[1]) for row in connection.execute("PRAGMA table_info(memories)")}

    def recall(self, query: RecallQuery) -> RecallResult:
        """Recall memories by their terms, best first.

        The only leg is lexical, so the query's `mode` and `fusion` are ignored.

        Raises:
            InvalidInput: the argument is no RecallQuery, is `distinct` or demands relevance, or the table lacks a
                column that a filter or the user's id needs.
        """
        began = time.perf_counter()
        if require_query(query).distinct:
            raise InvalidInput("A SQLite file has no vectors to tell copies by.", "Leave out `distinct`.")
        if query.least_relevance != "everything":
            raise InvalidInput("A SQLite file does not tell how relevant a memory is.", "Leave out `least_relevance`.")
        found = self._search(query)[query.offset :]
        milliseconds = (time.perf_counter() - began) * 1e3
        timings = Timings(total=milliseconds, database=milliseconds)
        reader = query.user_id.reader if isinstance(query.user_id, Everyone) else query.user_id
        result = RecallResult(tuple(found), "lexical", None, timings, reader=reader)
        return result if query.max_tokens is None else only(result, places_that_fit(found, query.max_tokens))

    def _search(self, query: RecallQuery) -> list[RecalledMemory]:
        """Return the memories of the requested page and of all pages before it."""
        # A word without a letter or digit is none to SQLite, and no row would contain it.
        words = (word.replace('"', "") for word in query.text.split())
        terms = [word for word in words if any(character.isalnum() for character in word)]
        if not terms:
            return []
        try:
            for operator in ("AND", "OR"):
                found = self._matching(f" {operator} ".join(f'"{term}"' for term in terms), query)
                if found:
                    return found
        except sqlite3.OperationalError:
            return self._containing(query)
        return []

    def _matching(self, match: str, query: RecallQuery) -> list[RecalledMemory]:
        score = blended("-bm25(memories_fts)", query.sort_by, _IMPORTANCE)
        return self._rows(
            query,
            score=score,
            lexical_score="-bm25(memories_fts)",
            searched="memories_fts f JOIN memories m ON m.id = f.rowid WHERE memories_fts MATCH ?",
            order="m.created_at" if query.sort_by is SortBy.RECENCY else score,
            values=[match],
        )

    def _containing(self, query: RecallQuery) -> list[RecalledMemory]:
        pattern = f"%{query.text}%"
        return self._rows(
            query,
            score=_IMPORTANCE,
            lexical_score="NULL",
            searched="memories m WHERE (m.content LIKE ? OR m.tags LIKE ?)",
            order=_IMPORTANCE,
            values=[pattern, pattern],
        )

    def _rows(
        self, query: RecallQuery, *, score: str, lexical_score: str, searched: str, order: str, values: Sequence[object]
    ) -> list[RecalledMemory]:
        searchable, owner_values = sqlite_rows(query.user_id, self._columns)
        filters, filter_values = sqlite_conditions(query.filters, self._columns)
        columns = memory_columns(
            lambda name: f"m.{name}" if name in self._columns else "NULL",
            sensitive=sqlite_sensitive(self._columns),
            owner="CAST(m.user_id AS TEXT)" if "user_id" in self._columns else "NULL",
            score=score,
        )
        cursor = self._connection.execute(
            f"SELECT {columns}, {lexical_score} AS lexical_score FROM {searched} AND {searchable}{filters}"
            f" ORDER BY {order} DESC, m.id LIMIT ?",
            [*values, *owner_values, *filter_values, query.limit + query.offset],
        )
        names = [column[0] for column in cursor.description]
        return [_memory(dict(zip(names, row, strict=True)), rank) for rank, row in enumerate(cursor, start=1)]


def _memory(row: dict[str, Any], lexical_rank: int) -> RecalledMemory:
    dates = {name: _moment(row[name]) for name in ("created_at", "updated_at")}
    evidence = {"lexical_rank": lexical_rank, "dense_rank": None, "dense_score": None}
    return memory_from({**row, **dates, **evidence, "is_sensitive": bool(row["is_sensitive"])})


def _moment(value: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(value)) if value else None
    except ValueError:
        return None
