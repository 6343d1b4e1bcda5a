"""SQLite FTS5: the code path of SQLite mode, and the simpler one that its documentation once described."""

import sqlite3
from collections.abc import Sequence

from memory_bench.dataset import Memory
from memory_recall.integrations.sqlite import SqliteRecall, create_schema

_COLUMNS = "id, content, category, tags, expanded_keywords, importance, user_id"


class _Fts:
    """An FTS5 index in memory."""

    name = "fts5"

    def __init__(self) -> None:
        self._connection = sqlite3.connect(":memory:")
        create_schema(self._connection)

    def build_index(self, corpus: Sequence[Memory]) -> None:
        """Fill the table; its triggers fill the index."""
        self._connection.executemany(
            f"INSERT INTO memories ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",  # noqa: S608  (our own column list)
            [
                (one.id, one.content, one.category, one.tags, one.expanded_keywords, one.importance, one.scope)
                for one in corpus
            ],
        )
        self._connection.commit()

    def index_size_bytes(self) -> int:
        """Table and index together, as SQLite stores them in one file."""
        pages, size = (self._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
        return int(pages * size)

    def close(self) -> None:
        """Drop the index."""
        self._connection.close()


class SqliteProduction(_Fts):
    """AND, then OR, by bm25 blended with importance: what SQLite mode does."""

    name = "sqlite-fts5"

    def retrieve(self, query: str, k: int) -> list[int]:
        """At most `k` ids, best first."""
        return SqliteRecall(self._connection).recall(query, limit=k).ids

    def retrieve_in(self, query: str, k: int, scope: str) -> list[int]:
        """The same among one user's memories."""
        return SqliteRecall(self._connection).recall(query, limit=k, user_id=scope).ids


class SqliteReadme(_Fts):
    """OR at once, by bm25 alone."""

    name = "sqlite-fts5-or"

    def retrieve(self, query: str, k: int) -> list[int]:
        """At most `k` ids, best first."""
        return self._matching(query, k, None)

    def retrieve_in(self, query: str, k: int, scope: str) -> list[int]:
        """The same among one user's memories."""
        return self._matching(query, k, scope)

    def _matching(self, query: str, k: int, scope: str | None) -> list[int]:
        words = [word for part in query.split() if (word := part.replace('"', ""))]
        if not words:
            return []
        rows = self._connection.execute(
            "SELECT m.id FROM memories_fts f JOIN memories m ON m.id = f.rowid WHERE memories_fts MATCH ?"
            " AND (m.user_id = ? OR ? IS NULL) ORDER BY bm25(memories_fts), m.importance DESC, m.id LIMIT ?",
            [" OR ".join(f'"{word}"' for word in words), scope, scope, k],
        )
        return [row[0] for row in rows]
