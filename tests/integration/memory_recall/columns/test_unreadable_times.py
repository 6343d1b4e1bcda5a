"""A row with a time that Python does not know breaks nothing: its time reads as none, and the row stays."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

from memory_recall import EVERYONE, Filters, HybridRecall, RecallOptions, RecallQuery, SortBy
from memory_recall.contrib.curation.finding import find_proposals
from memory_recall.contrib.labelling.store import PostgresStore
from memory_recall.errors import InvalidInput
from memory_recall.postgres.connection import DsnText
from memory_recall.schema.columns.names import ColumnNames
from memory_recall.schema.migrate import MigrationRequest, migrate
from memory_recall.schema.table import describe
from memory_recall.search.sql.filters import Arguments, postgres_conditions
from memory_recall.transfer.export_jsonl import exporting
from memory_recall.transfer.import_jsonl import import_memories
from tests.integration.conftest import CopyOf, Database

NOTES = """
CREATE TABLE memories (id bigint PRIMARY KEY, content text, is_sensitive boolean NOT NULL DEFAULT false,
    deleted_at timestamptz, day date, until timestamptz, {times},
    search_vector tsvector GENERATED ALWAYS AS (to_tsvector('english', content)) STORED)
"""
PATHS = {name: f"payload->>'{name}'" for name in ("created_at", "updated_at")}
ADD = """
INSERT INTO memories (id, content, created_at, updated_at, until)
SELECT $1, 'the kettle boils', t, t, t FROM (SELECT $2::text::timestamptz AS t) given"""
ADD_DOCUMENT = """
INSERT INTO memories (id, content, payload)
SELECT $1, 'the kettle boils', jsonb_build_object('created_at', $2::text, 'updated_at', $2::text)"""
MADE = datetime(2026, 7, 1, 9, 30, tzinfo=UTC)
UNKNOWN = ("20000-01-01", "10000-01-01", "4000-01-01 BC", "0001-12-31 BC", "infinity", "-infinity")
KINDS = ("timestamp", "timestamptz", "payload")


@pytest.fixture
async def pool(kind: str, copy_of: CopyOf, request_for: Callable[..., MigrationRequest]) -> Any:
    """A row with a time, one row for each of the unknown ones, and one row without a time."""

    async def create(database: Database) -> None:
        document = kind == "payload"
        async with database.connection() as connection:
            times = "payload jsonb" if document else f"created_at {kind}, updated_at {kind}"
            await connection.execute(NOTES.format(times=times))
            await connection.execute("SET timezone = 'UTC'")
            for key, time in enumerate([MADE.isoformat(), *UNKNOWN, None], 1):
                await connection.execute(ADD_DOCUMENT if document else ADD, key, time)
            if not document:
                await connection.execute("UPDATE memories SET day = until")
                await connection.execute("CREATE INDEX by_time ON memories (created_at)")
        await migrate(DsnText(database.dsn), request_for(columns=ColumnNames.parse(PATHS if document else {})))

    database = await copy_of(f"unreadable times of {kind}", create)
    async with asyncpg.create_pool(database.dsn, min_size=1, max_size=2) as opened:
        yield opened


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lexical", ["bm25", "ts_rank"])
async def test_recalls_show_no_time_and_put_the_row_behind_the_dated_ones(pool: Any, kind: str, lexical: Any) -> None:
    recall = HybridRecall(pool, None, RecallOptions(lexical=lexical, time_budget=60))
    for sort_by in SortBy:
        for text in ("kettle", "kettle july 1", ""):
            query = RecallQuery(text, user_id=EVERYONE, sort_by=sort_by, now=MADE, limit=20)
            found = (await recall.recall(query)).memories
            assert {one.id: one.created_at for one in found} == {1: MADE, **dict.fromkeys(range(2, 9))}
            assert all(one.updated_at == one.created_at for one in found)
            if sort_by is SortBy.RECENCY:
                assert found[0].id == 1, text
    await recall.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_rows_of_the_caller_show_what_python_knows(pool: Any, kind: str) -> None:
    recall = HybridRecall(pool, None, RecallOptions(time_budget=60))
    rows = await recall.recall_rows(RecallQuery("kettle", user_id=EVERYONE, limit=20))
    assert len(rows) == 8
    if kind != "payload":
        by_id = {row["id"]: row for row in rows}
        assert (by_id[1]["until"], by_id[1]["day"]) == (MADE, MADE.date())
        assert [by_id[key][name] for key in range(2, 6) for name in ("until", "day", "created_at")] == [None] * 12
        assert (by_id[6]["until"].year, by_id[7]["until"].year) == (9999, 1)
    await recall.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_an_export_has_the_row_without_its_time(pool: Any, kind: str) -> None:
    async with pool.acquire() as connection, exporting(connection, await describe(connection, "memories")) as export:
        lines = [line async for line in export.memories()]
    assert [line.get("created_at") for line in lines] == [MADE.isoformat(), *[None] * 7]


@pytest.mark.parametrize("kind", KINDS)
async def test_curation_compares_dated_memories_alone(pool: Any, kind: str) -> None:
    async with pool.acquire() as connection:
        await connection.execute("UPDATE memories SET embedding = ('[' || id || ',1,0,0,0,0,0,0]')::halfvec")
        await connection.execute("INSERT INTO memories (id, content) VALUES (9, 'the kettle boils again')")
        table = await describe(connection, "memories")
        assert await find_proposals(connection, table, user=None, since=MADE.replace(year=2025)) == []
        time = (
            "payload = jsonb_build_object('created_at', '2026-07-02')"
            if kind == "payload"
            else ("created_at = '2026-07-02'")
        )
        await connection.execute(f"UPDATE memories SET embedding = '[9,1,0,0,0,0,0,0]', {time} WHERE id = 9")
        (proposal,) = await find_proposals(connection, table, user=None, since=MADE.replace(year=2025))
        assert (proposal.id, proposal.superseded_by) == (1, 9)


@pytest.mark.parametrize("kind", KINDS)
async def test_labelling_shows_the_memory_without_its_day(pool: Any, kind: str) -> None:
    async with pool.acquire() as connection:
        store = PostgresStore(pool, await describe(connection, "memories"), [], None)
    shown = [await store.read(key, user=None) for key in range(1, 9)]
    assert [memory.created for memory in shown if memory is not None] == ["2026-07-01", *[None] * 7]


@pytest.mark.parametrize("kind", ["timestamp", "timestamptz"])
async def test_a_filter_by_time_uses_the_index_still(pool: Any, kind: str) -> None:
    async with pool.acquire() as connection:
        table, arguments = await describe(connection, "memories"), Arguments()
        bounds = postgres_conditions(Filters(since=MADE, until=MADE.replace(year=2027)), arguments, table)
        await connection.execute("SET enable_seqscan = off")
        statement = f"EXPLAIN SELECT m.id FROM {table.qualified} m WHERE true{bounds}"
        plan = "\n".join(row[0] for row in await connection.fetch(statement, *arguments.values))
    assert "by_time" in plan


@pytest.mark.parametrize("kind", ["timestamptz"])
async def test_a_line_whose_time_is_outside_of_utc_is_named(pool: Any, kind: str) -> None:
    line = b'{"id": 50, "content": "x", "created_at": "0001-01-01T00:00:00+14:00"}'
    async with pool.acquire() as connection:
        with pytest.raises(InvalidInput, match="line 1: created_at: input should be within the years 1 to 9999"):
            await import_memories(connection, await describe(connection, "memories"), [line])
