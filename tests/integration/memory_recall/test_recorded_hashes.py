"""No keyed hash of a text outlives the text, whatever becomes of its row, and whether or not a trigger sees it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from memory_recall.indexing.quarantine_sql import RetryPolicy, record_failures
from memory_recall.indexing.queue_sql import PendingRow
from memory_recall.indexing.sweeping import sweep_hashes
from memory_recall.postgres.connection import DsnText
from memory_recall.schema.table import ACTIVE, STANDBY, describe
from tests.integration.conftest import Database
from tests.integration.memory_recall.workbench import Workbench

ONCE = RetryPolicy(1, 0.01)
CHANGES = [
    "UPDATE memories SET is_sensitive = true WHERE id = 1",
    "UPDATE memories SET deleted_at = now() WHERE id = 1",
    "UPDATE memories SET content = 'edited' WHERE id = 1",
    "DELETE FROM memories WHERE id = 1",
]
TRIGGERS = ("zz_memory_index_insert", "zz_memory_index_update", "zz_memory_index_delete")


async def unseen(bench: Workbench, *statements: str) -> None:
    """Run statements that no trigger sees, as the deletes that logical replication brings to an ordinary table."""
    enabled = [f"ALTER TABLE memories ENABLE ALWAYS TRIGGER {name}" for name in TRIGGERS]
    await bench.execute("; ".join(["ALTER TABLE memories DISABLE TRIGGER USER", *statements, *enabled]))


async def failed(bench: Workbench, *texts: str) -> list[tuple[PendingRow, str]]:
    """Return the rows of these texts as a worker has read them, all of whose embeddings have failed."""
    async with bench.database.connection() as connection:
        rows = await connection.fetch(
            "SELECT id, content, memory_index_text_hash(content) FROM memories WHERE content = ANY($1)", list(texts)
        )
    return [(PendingRow(*row), "EmbedderRejected") for row in rows]


async def record(bench: Workbench, rows: list[tuple[PendingRow, str]]) -> int:
    """Record the failures in a worker's session."""
    async with bench.database.connection() as connection:
        await connection.execute("SET lock_timeout = 200")
        return await record_failures(connection, await describe(connection, "memories"), rows, ONCE)


async def recorded(bench: Workbench, table: str = "memory_embedding_failures") -> list[int]:
    async with bench.database.connection() as connection:
        return [row["id"] for row in await connection.fetch(f"SELECT id FROM {table} ORDER BY id")]


@contextlib.asynccontextmanager
async def sweeping(bench: Workbench, database: Database | None = None) -> AsyncIterator[None]:
    """Sweep at short intervals, as the sync worker does once a minute."""
    stop = asyncio.Event()
    source = DsnText((database or bench.database).dsn)
    task = asyncio.create_task(sweep_hashes(source, bench.plan, bench.ear, stop, every_seconds=0.05))
    try:
        yield
    finally:
        stop.set()
        await task


async def until_gone(bench: Workbench, query: str) -> None:
    async with asyncio.timeout(30):
        while await bench.value(query):  # noqa: ASYNC110  (it is the database that changes)
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("change", CHANGES)
async def test_a_failure_is_recorded_only_of_a_text_that_stands(bench: Workbench, change: str) -> None:
    """A row that changed while its text was with the embedder leaves no hash; the others of its batch are recorded."""
    await bench.insert("one", "two")
    read = await failed(bench, "one", "two")
    await bench.execute(change)
    assert await record(bench, read) == 1
    assert await recorded(bench) == [2]


@pytest.mark.parametrize("change", CHANGES)
async def test_a_failure_of_a_row_that_is_being_changed_leaves_no_hash(bench: Workbench, change: str) -> None:
    """The record waits for whoever has the row locked, but not for long; it then judges what has become of the row."""
    await bench.insert("one", "two")
    read = await failed(bench, "one", "two")
    async with bench.database.connection() as other:
        async with other.transaction():
            await other.execute(change)
            assert await record(bench, read) == 1
        assert await recorded(bench) == [2]
    async with bench.database.connection() as other, asyncio.TaskGroup() as tasks:
        await bench.insert("three")
        late = await failed(bench, "three")
        async with other.transaction():
            await other.execute("UPDATE memories SET is_sensitive = true WHERE content = 'three'")
            task = tasks.create_task(record(bench, late))
            await asyncio.sleep(0.1)
        assert await task == 0
    assert await recorded(bench) == [2]


@pytest.mark.parametrize("change", CHANGES)
async def test_sync_sweeps_the_failures_that_no_trigger_has_deleted(bench: Workbench, change: str) -> None:
    """Of both columns; the failure of a text that stands is kept."""
    await bench.insert("one", "two")
    assert await record(bench, await failed(bench, "one", "two")) == 2
    await bench.execute(f"INSERT INTO {STANDBY.failures} SELECT * FROM {ACTIVE.failures}")
    await unseen(bench, change)
    assert await recorded(bench) == await recorded(bench, STANDBY.failures) == [1, 2], "no trigger has seen it"
    async with sweeping(bench):
        for table in (ACTIVE.failures, STANDBY.failures):
            await until_gone(bench, f"SELECT count(*) FROM {table} WHERE id = 1")
            assert await recorded(bench, table) == [2]
    assert bench.ear.outages == []
