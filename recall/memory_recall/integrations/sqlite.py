"""Recall over a local SQLite file, without Postgres, embedder or network: the offline degrade.

The words are searched by FTS5: rows that hold every word, and only when there are none, rows that hold any. The list
then goes through the same fusion as everywhere else, with an empty dense leg, which leaves FTS5's own order standing.
A query that FTS5's grammar refuses is searched as a substring.
"""
# ruff: noqa: S608  (statements are put together from our own expressions; values are bound)

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from memory_recall.search.fusion import Candidate, Fusion, SortBy, fuse
from memory_recall.search.query import Evidence, RecalledMemory, RecallResult, Timings, check_page

_WEIGHTS = {SortBy.RELEVANCE: (0.7, 0.3), SortBy.IMPORTANCE: (0.4, 0.6), SortBy.RECENCY: (0.7, 0.3)}
_FUSION = Fusion()


@dataclass(frozen=True, slots=True)
class SqliteColumns:
    """Which optional columns the local table has; older caches know neither deletion nor sensitivity."""

    sensitive: bool
    deleted: bool
    owner: bool


@dataclass(frozen=True, slots=True)
class _Narrowed:
    """Which rows may be found: the end of a WHERE clause and its values."""

    clause: str
    values: list[str]


class SqliteRecall:
    """Recalls from `memories` and `memories_fts` (FTS5 over content, category, tags, expanded_keywords, by rowid)."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        names = {str(row[1]) for row in connection.execute("PRAGMA table_info(memories)")}
        self._columns = SqliteColumns("is_sensitive" in names, "deleted_at" in names, "user_id" in names)

    def recall(
        self,
        query: str,
        *,
        limit: int = 10,
        offset: int = 0,
        sort_by: SortBy | str = SortBy.RELEVANCE,
        category: str | None = None,
        user_id: str | None = None,
    ) -> RecallResult:
        """The memories that the query's words call to mind, best first.

        Raises:
            InvalidInput: the page makes no sense.
        """
        check_page(limit, offset)
        order = SortBy(sort_by)
        narrowed = self._narrowed(category, user_id)
        candidates = self._candidates(query, limit + offset, order, narrowed)
        page = fuse(candidates, _FUSION, sort_by=order, lexical_is_final=True)[offset : offset + limit]
        by_id = {one.id: one for one in candidates}
        memories = tuple(self._memory(by_id[one.id], one.score) for one in page)
        return RecallResult(memories, "lexical", None, Timings(total=0.0))

    def _candidates(self, query: str, depth: int, order: SortBy, narrowed: _Narrowed) -> list[Candidate]:
        words = [cleaned for word in query.split() if (cleaned := word.replace('"', "").replace("\x00", ""))]
        if not words:
            return []
        try:
            for joint in ("AND", "OR"):
                match = f" {joint} ".join(f'"{word}"' for word in words)
                found = self._matching(match, depth, order, narrowed)
                if found:
                    return found
        except sqlite3.OperationalError:
            return self._containing(query, depth, narrowed)
        return []

    def _matching(self, match: str, depth: int, order: SortBy, narrowed: _Narrowed) -> list[Candidate]:
        of_words, of_importance = _WEIGHTS[order]
        score = f"(-bm25(memories_fts) * {of_words} + coalesce(m.importance, 0) * {of_importance})"
        key = "m.created_at" if order is SortBy.RECENCY else score
        return self._ranked(
            f"SELECT m.id, m.importance, {score} FROM memories_fts f JOIN memories m ON m.id = f.rowid"
            f" WHERE memories_fts MATCH ? {narrowed.clause} ORDER BY {key} DESC, m.id LIMIT ?",
            [match, *narrowed.values, depth],
        )

    def _containing(self, query: str, depth: int, narrowed: _Narrowed) -> list[Candidate]:
        pattern = f"%{query}%"
        return self._ranked(
            "SELECT m.id, m.importance, m.importance FROM memories m WHERE (m.content LIKE ? OR m.tags LIKE ?)"
            f" {narrowed.clause} ORDER BY m.importance DESC, m.id LIMIT ?",
            [pattern, pattern, *narrowed.values, depth],
        )

    def _narrowed(self, category: str | None, user_id: str | None) -> _Narrowed:
        wanted = {"m.category": category, "m.user_id": user_id}
        given = {column: value for column, value in wanted.items() if value is not None}
        clauses = [f"AND {column} = ?" for column in given]
        if self._columns.deleted:
            clauses.append("AND m.deleted_at IS NULL")
        return _Narrowed(" ".join(clauses), list(given.values()))

    def _ranked(self, sql: str, arguments: Sequence[object]) -> list[Candidate]:
        rows = self._connection.execute(sql, arguments).fetchall()
        return [
            Candidate(id=row[0], importance=row[1] or 0.0, lexical_rank=rank, lexical_score=row[2])
            for rank, row in enumerate(rows, start=1)
        ]

    def _memory(self, found: Candidate, score: float) -> RecalledMemory:
        sensitive = "m.is_sensitive" if self._columns.sensitive else "0"
        owner = "m.user_id" if self._columns.owner else "NULL"
        row = self._connection.execute(
            f"SELECT CASE WHEN {sensitive} THEN NULL ELSE m.content END, m.category, m.tags, m.importance,"
            f" {sensitive}, {owner}, m.created_at, m.updated_at FROM memories m WHERE m.id = ?",
            [found.id],
        ).fetchone()
        return RecalledMemory(
            id=found.id,
            content=f"[SENSITIVE - use secret_get(id={found.id})]" if row[4] else row[0],
            category=row[1],
            tags=row[2],
            importance=row[3],
            is_sensitive=bool(row[4]),
            rank=score,
            owner=row[5],
            created_at=_moment(row[6]),
            updated_at=_moment(row[7]),
            evidence=Evidence(found.lexical_rank, found.lexical_score, None, None),
        )


def _moment(value: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(value)) if value else None
    except ValueError:
        return None


def create_schema(connection: sqlite3.Connection) -> None:
    """Create table and index where there are none, for tests, benchmarks and a first start."""
    connection.executescript(
        """
        CREATE TABLE IF NOT EXISTS memories (
            id INTEGER PRIMARY KEY, content TEXT NOT NULL, category TEXT DEFAULT 'facts', tags TEXT DEFAULT '',
            expanded_keywords TEXT DEFAULT '', importance REAL DEFAULT 0.5, is_sensitive INTEGER DEFAULT 0,
            user_id TEXT, deleted_at TEXT, created_at TEXT, updated_at TEXT
        );
        CREATE VIRTUAL TABLE IF NOT EXISTS memories_fts USING fts5(
            content, category, tags, expanded_keywords, content='memories', content_rowid='id'
        );
        CREATE TRIGGER IF NOT EXISTS memories_fts_insert AFTER INSERT ON memories BEGIN
            INSERT INTO memories_fts (rowid, content, category, tags, expanded_keywords)
            VALUES (new.id, new.content, new.category, new.tags, new.expanded_keywords);
        END;
        CREATE TRIGGER IF NOT EXISTS memories_fts_delete AFTER DELETE ON memories BEGIN
            INSERT INTO memories_fts (memories_fts, rowid, content, category, tags, expanded_keywords)
            VALUES ('delete', old.id, old.content, old.category, old.tags, old.expanded_keywords);
        END;
        CREATE TRIGGER IF NOT EXISTS memories_fts_update AFTER UPDATE ON memories BEGIN
            INSERT INTO memories_fts (memories_fts, rowid, content, category, tags, expanded_keywords)
            VALUES ('delete', old.id, old.content, old.category, old.tags, old.expanded_keywords);
            INSERT INTO memories_fts (rowid, content, category, tags, expanded_keywords)
            VALUES (new.id, new.content, new.category, new.tags, new.expanded_keywords);
        END;
        """
    )
