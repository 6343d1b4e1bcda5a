"""A row without a text does not stay pending, and a text that no repetition can mend is not repeated."""

import json
from collections.abc import Callable

import pytest

from memory_recall import EVERYONE, HybridRecall, RecallOptions, RecallQuery
from memory_recall.indexing.quarantine_sql import RetryPolicy, listed
from memory_recall.postgres.connection import DsnText, create_pool
from memory_recall.schema.migrate import MigrationRequest, migrate
from memory_recall.schema.revisions import require_schema
from memory_recall.status import inspect
from memory_recall.transfer.export_jsonl import exporting
from tests.integration.conftest import Database
from tests.integration.memory_recall.fake_embedder import Answer, FakeEmbedder
from tests.integration.memory_recall.workbench import DIMENSIONS, Workbench

Requests = Callable[..., MigrationRequest]
WITHOUT_NOT_NULL = """
CREATE TABLE memories (id bigint PRIMARY KEY, content text, is_sensitive boolean NOT NULL DEFAULT false,
    deleted_at timestamptz, search_vector tsvector);
INSERT INTO memories VALUES (1, 'one', false, NULL), (2, NULL, false, NULL), (3, NULL, true, NULL),
    (4, 'four', true, NULL), (5, 'five', false, now()), (6, NULL, false, now());
UPDATE memories SET search_vector = to_tsvector('simple', 'kettle')
"""


@pytest.fixture
async def gaps(database: Database, request_for: Requests) -> Workbench:
    """One row to embed, and five that get no vector: without text, sensitive, deleted, or two of these."""
    async with database.connection() as connection:
        await connection.execute(WITHOUT_NOT_NULL)
    await migrate(DsnText(database.dsn), request_for())
    return Workbench(database, FakeEmbedder(dimensions=DIMENSIONS))


@pytest.mark.finding("database F12")
async def test_content_that_is_null_is_set_aside_as_an_empty_text_and_no_longer_pending(gaps: Workbench) -> None:
    counts = []
    async with gaps.embedder:
        for _ in range(2):
            async with gaps.database.connection() as connection:
                found = await inspect(connection, "memories")
            counts.append((found.rows.embedded, found.rows.pending, found.rows.sensitive, found.rows.blank))
            assert found.rows.quarantined == 0
            assert found.schema_differences == ""
            result = await gaps.backfill()
            assert result.complete
    assert counts == [(0, 2, 2, 0), (1, 0, 2, 1)]
    assert set(gaps.embedder.received) == {"one"}
    assert await failures(gaps) == [(2, 1, "EmptyText", True)]


@pytest.mark.finding("database F12")
async def test_a_text_in_the_place_of_null_is_embedded(gaps: Workbench) -> None:
    async with gaps.embedder:
        await gaps.backfill()
        async with gaps.database.connection() as connection:
            await connection.execute("UPDATE memories SET content = 'two' WHERE id = 2")
        await gaps.backfill()
    assert set(gaps.embedder.received) == {"one", "two"}
    assert await failures(gaps) == []


@pytest.mark.finding("database F12")
async def test_content_that_is_null_is_read_as_an_empty_text(gaps: Workbench) -> None:
    pool = await create_pool(DsnText(gaps.database.dsn))
    recall = HybridRecall(pool, None, RecallOptions(time_budget=60))
    found = await recall.recall(RecallQuery("kettle", user_id=EVERYONE))
    await recall.close()
    assert [memory.content for memory in found.memories if memory.id == 2] == [""]
    async with pool.acquire() as pooled:
        connection = pooled
        table = await require_schema(connection, "memories")
        async with exporting(connection, table) as export:  # type: ignore[arg-type]  # a pool lends the same methods
            assert [json.loads(json.dumps(line))["id"] async for line in export.memories()] == [1]
            assert export.blank == 1
    await pool.close()


@pytest.mark.parametrize("text", ["", " ", "\n\t", "\N{NO-BREAK SPACE}"], ids=ascii)
@pytest.mark.finding("database F12")
async def test_an_empty_text_is_quarantined_at_once(bench: Workbench, text: str) -> None:
    """With a first delay of a day, a second attempt would never come."""
    await bench.insert("fine", text)
    result = await bench.backfill(bench.with_options(policy=RetryPolicy(5, 86_400.0)))
    assert (result.complete, result.tally.embedded, result.tally.quarantined) == (True, 1, 1)
    assert await failures(bench) == [(2, 1, "EmptyText", True)]


@pytest.mark.finding("database F12")
async def test_a_text_that_the_embedder_refuses_is_quarantined_at_once(bench: Workbench) -> None:
    refused: Answer = (422, {}, b"{}")
    bench.embedder.behaviour = lambda texts: refused if "refused" in texts else None
    await bench.insert("fine", "refused")
    result = await bench.backfill(bench.with_options(policy=RetryPolicy(5, 86_400.0)))
    assert (result.complete, result.tally.quarantined) == (True, 1)
    assert await failures(bench) == [(2, 1, "EmbedderRejected", True)]


async def failures(bench: Workbench) -> list[tuple[int, int, str, bool]]:
    async with bench.database.connection() as connection:
        table = await require_schema(connection, "memories")
        rows = await listed(connection, table)
    return [(row.id, row.attempts, row.error_class, row.next_attempt is None) for row in rows]
