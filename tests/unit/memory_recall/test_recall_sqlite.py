"""SQLite mode: FTS5's own order and scores, no query that breaks it, and its command."""

import json
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import Result

from memory_recall.contrib.sqlite import SqliteRecall
from memory_recall.errors import InvalidInput
from memory_recall.search.sql.filters import Filters
from memory_recall.search.sql.visibility import Everyone
from tests.integration.memory_recall.queries import make_query
from tests.support.invoked_command import invoke_memory
from tests.support.sqlite_schema import create_schema

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


@pytest.mark.parametrize("importance", [1e30, "inf", -1e30])
def test_an_importance_beyond_its_range_counts_as_its_nearest_end(
    connection: sqlite3.Connection, importance: float | str
) -> None:
    """A row whose importance was chosen to be first is no further up than one of the greatest importance."""
    value, nearest = float(importance), float(float(importance) > 0)
    recall = SqliteRecall(connection)
    ranks = []
    for written in (value, nearest):
        connection.execute("UPDATE memories SET importance = ? WHERE content LIKE '%channel%'", (written,))
        found = recall.recall(make_query("zigbee"))
        ranks.append(next(one.rank for one in found.memories if "channel" in one.content))
    assert ranks[0] == ranks[1]


@pytest.mark.parametrize("declared", ["INTEGER", "BOOLEAN", "TEXT", "REAL", ""])
@pytest.mark.parametrize(
    ("mark", "public"),
    [(0, True), ("0", True), ("false", True), (1, False), ("1", False), ("true", False), ("yes", False), (None, False)],
)
def test_a_memory_is_public_only_where_its_mark_says_so(declared: str, mark: object, public: bool) -> None:
    """Whatever the column is declared as: nobody else finds it otherwise, and its owner gets no text of it."""
    opened = sqlite3.connect(":memory:")
    create_schema(opened)
    opened.executescript(
        f"ALTER TABLE memories DROP COLUMN is_sensitive; ALTER TABLE memories ADD COLUMN is_sensitive {declared}"
    )
    opened.execute("INSERT INTO memories (content, user_id, is_sensitive) VALUES ('the lock', 'ana', ?)", (mark,))
    recall = SqliteRecall(opened)
    found = {reader: recall.recall(make_query("lock", user_id=Everyone(reader))).memories for reader in ("ana", "bob")}
    assert [len(found[reader]) for reader in ("ana", "bob")] == [1, int(public)]
    assert (found["ana"][0].is_sensitive, "lock" in found["ana"][0].content) == (not public, public)
    opened.close()


@pytest.mark.parametrize("query", ["zigbee & dongle", "zigbee dongle ?", "- zigbee dongle"])
def test_a_lone_punctuation_mark_is_no_word_that_a_memory_must_have(connection: sqlite3.Connection, query: str) -> None:
    recall = SqliteRecall(connection)
    assert recall.recall(make_query(query)).ids == recall.recall(make_query("zigbee dongle")).ids == [1]


def test_the_order_is_that_of_plain_fts5(connection: sqlite3.Connection) -> None:
    """With FTS5's own score as evidence, and its blend with importance as the rank."""
    result = SqliteRecall(connection).recall(make_query("zigbee"))
    assert result.ids == plain_fts5(connection, '"zigbee"')
    assert len(result.ids) == 3
    scored = "SELECT rowid, -bm25(memories_fts) FROM memories_fts WHERE memories_fts MATCH 'zigbee'"
    scores = dict(connection.execute(scored).fetchall())
    assert {one.id: one.evidence.lexical_score for one in result.memories} == scores
    assert [one.evidence.lexical_rank for one in result.memories] == [1, 2, 3]
    assert [one.rank for one in result.memories] == pytest.approx(
        [scores[one.id] * 0.7 + (one.importance or 0) * 0.3 for one in result.memories]
    )


def test_one_statement_fetches_all_memories_and_its_time_is_reported(connection: sqlite3.Connection) -> None:
    """The number of statements does not grow with the page."""
    recall = SqliteRecall(connection)
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    result = recall.recall(make_query("zigbee"))
    assert len([one for one in statements if not one.startswith("--")]) == 1  # FTS5 comments on its own
    assert result.timings.total == result.timings.database > 0


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"distinct": True}, "no vectors"),
        ({"least_relevance": "likely"}, "how relevant"),
        ({"least_relevance": 0.0}, "how relevant"),
    ],
    ids=str,
)
def test_what_a_file_cannot_tell_is_refused(
    connection: sqlite3.Connection, asked: dict[str, object], said: str
) -> None:
    """By the library, and so by the command."""
    with pytest.raises(InvalidInput, match=said):
        SqliteRecall(connection).recall(make_query("zigbee", **asked))


def test_filters_hold_as_over_postgres(connection: sqlite3.Connection) -> None:
    """Category, tags (whatever stands around the commas), user and time."""
    connection.execute("UPDATE memories SET tags = 'map,  mesh', category = 'ops', user_id = 'ana' WHERE id = 4")
    noon = datetime(2026, 1, 3, 12, tzinfo=UTC)
    recall = SqliteRecall(connection)
    for filters, expected in [
        (Filters(tags=("mesh", "x")), {4}),
        (Filters(tags=("mes",)), set()),
        (Filters(category="ops"), {4}),
        (Filters(since=noon), {4}),
        (Filters(until=noon), {1, 2}),
    ]:
        assert set(recall.recall(make_query("zigbee", filters=filters)).ids) == expected
    assert recall.recall(make_query("zigbee", user_id="ana")).ids == [4]


def test_a_filter_by_a_column_that_an_older_cache_lacks_is_refused() -> None:
    """Rather than left out, which would show other users' memories."""
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE memories (id INTEGER PRIMARY KEY, content TEXT)")
    with pytest.raises(InvalidInput, match="no column user_id"):
        SqliteRecall(connection).recall(make_query("x", user_id="ana"))


def test_rows_with_any_term_come_only_where_no_row_has_every_term(connection: sqlite3.Connection) -> None:
    """OR is searched only when AND finds nothing."""
    recall = SqliteRecall(connection)
    assert recall.recall(make_query("zigbee dongle")).ids == [1]
    assert recall.recall(make_query("dongle teapot")).ids == plain_fts5(connection, '"dongle" OR "teapot"')


def test_importance_and_recency_have_their_own_orders(connection: sqlite3.Connection) -> None:
    """The important one first, or the newest first."""
    recall = SqliteRecall(connection)
    assert recall.recall(make_query("zigbee", sort_by="importance")).ids[0] == 2
    assert recall.recall(make_query("zigbee", sort_by="recency")).ids == [4, 2, 1]


def test_deleted_rows_are_left_out_and_sensitive_ones_are_masked_for_their_owner(
    connection: sqlite3.Connection,
) -> None:
    """As over Postgres; nobody else finds a sensitive row."""
    connection.execute("UPDATE memories SET deleted_at = 'now' WHERE id = 2")
    connection.execute("UPDATE memories SET is_sensitive = 1, user_id = 'ana' WHERE id = 4")
    recall = SqliteRecall(connection)
    for user in ("ana", Everyone(reader="ana")):
        result = recall.recall(make_query("zigbee", user_id=user))
        assert 2 not in result.ids
        masked = next(memory for memory in result.memories if memory.id == 4)
        assert masked.content == "[SENSITIVE - use secret_get(id=4)]"
        assert "map" not in repr(result)
    for user in (Everyone(), Everyone(reader="bo")):
        assert recall.recall(make_query("zigbee", user_id=user)).ids == [1]
        assert recall.recall(make_query('"zigbee', user_id=user)).ids == [1]


@pytest.mark.parametrize(
    "query", ['"', "a AND", "NEAR(", "*", "col:x", "-", "'; DROP TABLE memories; --", "\x00", "", "  "]
)
def test_no_query_text_causes_an_error(connection: sqlite3.Connection, query: str) -> None:
    """Whatever a prompt contains is searched, if need be as a substring."""
    SqliteRecall(connection).recall(make_query(query))


def test_a_table_that_lost_its_index_is_searched_by_substring(connection: sqlite3.Connection) -> None:
    """A cache whose FTS5 table is gone still answers."""
    connection.execute("DROP TABLE memories_fts")
    assert SqliteRecall(connection).recall(make_query("channel")).ids == [2]


def test_a_cache_without_owners_belongs_to_one_user_unless_a_reader_is_named(connection: sqlite3.Connection) -> None:
    """Who knows several users cannot tell whose a sensitive row is."""
    connection.execute("UPDATE memories SET is_sensitive = 1 WHERE id = 4")
    connection.execute("ALTER TABLE memories DROP COLUMN user_id")
    recall = SqliteRecall(connection)
    assert 4 in recall.recall(make_query("zigbee")).ids
    assert 4 not in recall.recall(make_query("zigbee", user_id=Everyone(reader="ana"))).ids


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
    assert SqliteRecall(connection).recall(make_query("kettle", filters=Filters(category="facts"))).ids == [7]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file whose name a careless URI would cut."""
    found = tmp_path / "notes of #ana?.db"
    with sqlite3.connect(found) as connection:
        create_schema(connection)
        connection.execute("INSERT INTO memories (content, user_id) VALUES ('the zigbee dongle hangs', 'ana')")
        connection.execute("INSERT INTO memories (content, user_id, is_sensitive) VALUES ('zigbee key 0x5A', 'ben', 1)")
    connection.close()
    return found


def recall(*arguments: object) -> Result:
    return invoke_memory(["recall", *map(str, arguments)])


def test_a_file_is_searched_without_any_setting(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And without a sensitive memory of another user."""
    monkeypatch.delenv("MEMORY_DATABASE_URL", raising=False)
    done = recall("zigbee", "--everyone", "--sqlite", file, "--json")
    assert [memory["content"] for memory in json.loads(done.stdout)["memories"]] == ["the zigbee dongle hangs"]
    assert "the zigbee dongle hangs" in recall("zigbee", "--user", "ana", "--sqlite", file, "--explain").stdout


def test_a_recall_cannot_change_the_file(file: Path) -> None:
    before = file.read_bytes()
    assert recall("zigbee", "--everyone", "--sqlite", file).exit_code == 0
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "There is no file"), (b"no database" * 100, "cannot be read as a SQLite database"), (b"", "has no table")],
    ids=["missing", "other", "empty"],
)
def test_a_file_that_cannot_be_searched_is_named(content: bytes | None, said: str, tmp_path: Path) -> None:
    """A missing one is not made."""
    file = tmp_path / "memories.db"
    if content is not None:
        file.write_bytes(content)
    done = recall("zigbee", "--everyone", "--sqlite", file, "--json")
    assert done.exit_code == 1
    refused = json.loads(done.stderr)
    assert refused["reason"] == "InvalidInput"
    assert said in refused["message"]
    assert file.exists() is (content is not None)


def test_the_dense_leg_alone_is_refused(file: Path) -> None:
    """The lexical leg's answer would go under another mode's name."""
    done = recall("zigbee", "--everyone", "--sqlite", file, "--mode", "dense", "--json")
    assert "by words alone" in json.loads(done.stderr)["message"]


def test_a_file_is_not_searched_by_further_words(file: Path) -> None:
    """No language model is asked for it, so that the option is refused rather than ignored."""
    done = recall("zigbee", "--everyone", "--sqlite", file, "--expand", "http://llm:8080", "--json")
    assert (done.exit_code, json.loads(done.stderr)["reason"]) == (1, "InvalidInput")
    assert "--expand" in json.loads(done.stderr)["message"]
