"""SQLite mode: FTS5's own order through the shared fusion, and no query that breaks it."""

import sqlite3
from collections.abc import Iterator

import pytest

from memory_recall.errors import InvalidInput
from memory_recall.integrations.sqlite import SqliteRecall, create_schema

ROWS = [
    ("the zigbee dongle hangs on usb3 noise", 0.5),
    ("zigbee channel moved to 25", 0.9),
    ("dongle firmware flashed", 0.1),
    ("zigbee zigbee zigbee map", 0.5),
    ("nothing to see", 0.5),
]


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    opened = sqlite3.connect(":memory:")
    create_schema(opened)
    opened.executemany(
        "INSERT INTO memories (content, importance, created_at) VALUES (?, ?, ?)",
        [
            (content, importance, f"2026-01-{day:02}T00:00:00+00:00")
            for day, (content, importance) in enumerate(ROWS, 1)
        ],
    )
    yield opened
    opened.close()


def plain_fts5(connection: sqlite3.Connection, match: str) -> list[int]:
    rows = connection.execute(
        "SELECT m.id FROM memories_fts f JOIN memories m ON m.id = f.rowid WHERE memories_fts MATCH ?"
        " ORDER BY -bm25(memories_fts) * 0.7 + m.importance * 0.3 DESC, m.id",
        [match],
    )
    return [row[0] for row in rows]


def test_the_order_is_that_of_plain_fts5(connection: sqlite3.Connection) -> None:
    """Fusion with an empty dense leg changes nothing."""
    result = SqliteRecall(connection).recall("zigbee")
    assert result.ids == plain_fts5(connection, '"zigbee"')
    assert len(result.ids) == 3


def test_rows_with_every_word_keep_rows_with_any_out(connection: sqlite3.Connection) -> None:
    """OR is asked only when AND finds nothing."""
    recall = SqliteRecall(connection)
    assert recall.recall("zigbee dongle").ids == [1]
    assert recall.recall("dongle teapot").ids == plain_fts5(connection, '"dongle" OR "teapot"')


def test_importance_and_recency_have_their_own_orders(connection: sqlite3.Connection) -> None:
    """The important one first, or the newest first."""
    recall = SqliteRecall(connection)
    assert recall.recall("zigbee", sort_by="importance").ids[0] == 2
    assert recall.recall("zigbee", sort_by="recency").ids == [4, 2, 1]


def test_deleted_rows_are_left_out_and_sensitive_ones_masked(connection: sqlite3.Connection) -> None:
    """As over Postgres."""
    connection.execute("UPDATE memories SET deleted_at = 'now' WHERE id = 2")
    connection.execute("UPDATE memories SET is_sensitive = 1 WHERE id = 4")
    result = SqliteRecall(connection).recall("zigbee")
    assert 2 not in result.ids
    masked = next(memory for memory in result.memories if memory.id == 4)
    assert masked.content == "[SENSITIVE - use secret_get(id=4)]"
    assert "map" not in repr(result)


@pytest.mark.parametrize(
    "query", ['"', "a AND", "NEAR(", "*", "col:x", "-", "'; DROP TABLE memories; --", "\x00", "", "  "]
)
def test_no_query_breaks_it(connection: sqlite3.Connection, query: str) -> None:
    """Whatever a prompt contains is searched, if need be as a substring."""
    SqliteRecall(connection).recall(query)


def test_a_table_that_lost_its_index_is_searched_by_substring(connection: sqlite3.Connection) -> None:
    """A cache whose FTS5 table is gone still answers."""
    connection.execute("DROP TABLE memories_fts")
    assert SqliteRecall(connection).recall("channel").ids == [2]


def test_an_older_cache_without_the_newer_columns_is_read() -> None:
    """Neither deletion nor sensitivity nor owner need to exist."""
    connection = sqlite3.connect(":memory:")
    connection.executescript(
        "CREATE TABLE memories (id INTEGER PRIMARY KEY, content TEXT, category TEXT, tags TEXT, expanded_keywords TEXT,"
        " importance REAL, created_at TEXT, updated_at TEXT);"
        "CREATE VIRTUAL TABLE memories_fts USING fts5(content, category, tags, expanded_keywords);"
        "INSERT INTO memories (id, content, category, importance) VALUES (7, 'old kettle', 'facts', 0.5);"
        "INSERT INTO memories_fts (rowid, content) VALUES (7, 'old kettle');"
    )
    assert SqliteRecall(connection).recall("kettle", category="facts").ids == [7]


def test_a_page_that_makes_no_sense_is_refused(connection: sqlite3.Connection) -> None:
    """As over Postgres."""
    with pytest.raises(InvalidInput):
        SqliteRecall(connection).recall("x", limit=0)
