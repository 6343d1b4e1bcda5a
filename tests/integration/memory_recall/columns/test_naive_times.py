"""A timestamp without time zone is read as UTC, whatever the time zone of the session is."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

from memory_recall import EVERYONE, Filters, HybridRecall, RecallOptions, RecallQuery, SortBy
from memory_recall.postgres.connection import DsnText
from memory_recall.schema.migrate import MigrationRequest, migrate
from memory_recall.schema.table import describe
from memory_recall.transfer.export_jsonl import exporting
from memory_recall.transfer.import_jsonl import import_memories
from tests.integration.conftest import CopyOf, Database

NOTES = """
CREATE TABLE memories (id bigint PRIMARY KEY, content text, is_sensitive boolean NOT NULL DEFAULT false,
    deleted_at {kind}, created_at {kind}, updated_at {kind},
    search_vector tsvector GENERATED ALWAYS AS (to_tsvector('english', content)) STORED);
"""
MADE = datetime(2026, 7, 1, 9, 30, tzinfo=UTC)
KINDS = ("timestamp", "timestamptz")


@pytest.fixture
async def pool(kind: str, copy_of: CopyOf, request_for: Callable[..., MigrationRequest]) -> Any:
    """A table whose times have a zone or none, in sessions whose zone is three hours before UTC."""

    async def create(database: Database) -> None:
        async with database.connection() as connection:
            await connection.execute(NOTES.format(kind=kind))
        await migrate(DsnText(database.dsn), request_for())

    database = await copy_of(f"times of {kind}", create)
    async with asyncpg.create_pool(
        database.dsn, min_size=1, max_size=2, server_settings={"timezone": "Europe/Sofia"}
    ) as opened:
        line = {"id": 1, "content": "the kettle boils", "created_at": MADE.isoformat()}
        async with opened.acquire() as pooled:
            connection: Any = pooled
            await import_memories(connection, await describe(connection, "memories"), [json.dumps(line).encode()])
        yield opened


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.finding("database F16")
@pytest.mark.parametrize("lexical", ["bm25", "ts_rank"])
async def test_filters_answers_and_named_times_are_in_utc(pool: Any, kind: str, lexical: Any) -> None:
    recall = HybridRecall(pool, None, RecallOptions(lexical=lexical, time_budget=60))

    async def found(since: datetime | None = None, until: datetime | None = None) -> list[list[datetime | None]]:
        bounds, answers = Filters(since=since, until=until), []
        for sort_by in SortBy:
            query = RecallQuery("kettle july 1", user_id=EVERYONE, filters=bounds, sort_by=sort_by, now=MADE)
            answers.append([memory.created_at for memory in (await recall.recall(query)).memories])
        return answers

    assert await found(since=MADE.replace(hour=9, minute=0)) == [[MADE]] * len(SortBy)
    assert await found(until=MADE.replace(hour=9, minute=31)) == [[MADE]] * len(SortBy)
    assert await found(since=MADE.replace(minute=31)) == [[]] * len(SortBy)
    assert await found(until=MADE) == [[]] * len(SortBy)
    await recall.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.finding("database F16")
async def test_an_export_and_an_import_keep_the_time(pool: Any, kind: str) -> None:
    async with pool.acquire() as connection:
        table = await describe(connection, "memories")
        async with exporting(connection, table) as export:
            lines = [line async for line in export.memories()]
        assert [datetime.fromisoformat(line["created_at"]) for line in lines] == [MADE]
        changed = json.dumps({"id": 1, "content": "the kettle sings"}).encode()
        await import_memories(connection, table, [changed])
        updated = "updated_at AT TIME ZONE 'UTC'" if kind == "timestamp" else "updated_at"
        assert await connection.fetchval(f"SELECT abs(extract(epoch FROM now() - {updated})) < 600 FROM memories")
