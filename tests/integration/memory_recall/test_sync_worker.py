"""Sync embeds what is written while it runs, on a notification at once and without one a little later."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from memory_recall.embedding.client import EmbedderClient
from memory_recall.indexing import leases_sql
from memory_recall.indexing import sync as sync_worker
from memory_recall.indexing.embedders import EmbedderDirectory
from memory_recall.indexing.pipeline import Pipeline
from memory_recall.indexing.readiness import Readiness
from memory_recall.indexing.sync import sync
from memory_recall.postgres.connection import Connection, DsnText
from memory_recall.schema.table import MemoryTable
from tests.integration.memory_recall.workbench import Workbench, until

NEVER = 3600.0


@asynccontextmanager
async def running(
    bench: Workbench, *, poll_seconds: float, readiness: Readiness | None = None
) -> AsyncIterator[asyncio.Task[object]]:
    async with (
        bench.client() as client,
        EmbedderDirectory(client, EmbedderClient, model="tiny", url=client.base_url) as directory,
    ):
        task: asyncio.Task[object] = asyncio.create_task(
            sync(
                DsnText(bench.database.dsn),
                directory,
                bench.plan,
                poll_seconds=poll_seconds,
                progress=bench.ear,
                stop=bench.stop,
                readiness=readiness,
            )
        )
        try:
            yield task
        finally:
            bench.stop.set()
            await task


async def test_a_write_wakes_sync_without_waiting_for_the_poll(bench: Workbench) -> None:
    await bench.insert("was there before")
    async with running(bench, poll_seconds=NEVER):
        await bench.until_embedded(1)
        await bench.insert("written while it runs")
        await bench.until_embedded(2)
        await bench.execute("UPDATE memories SET content = 'edited' WHERE id = 1")
        await _received(bench, "edited")
        await bench.until_embedded(2)
        await bench.execute("UPDATE memories SET is_sensitive = true WHERE id = 2")
        assert await bench.embedded() == 1
        await bench.execute("UPDATE memories SET is_sensitive = false WHERE id = 2")
        await bench.until_embedded(2)
    assert await bench.problems() == []


async def test_a_lost_notification_only_delays_a_row(bench: Workbench) -> None:
    async with running(bench, poll_seconds=0.2):
        await bench.insert("heard")
        await bench.until_embedded(1)
        async with bench.database.connection() as connection, connection.transaction():
            await connection.execute("ALTER TABLE memories DISABLE TRIGGER zz_memory_index_insert")
            await connection.execute("INSERT INTO memories (content) VALUES ('unheard')")
            await connection.execute("ALTER TABLE memories ENABLE ALWAYS TRIGGER zz_memory_index_insert")
        await bench.until_embedded(2)


async def test_sync_listens_again_after_its_connection_was_cut(bench: Workbench) -> None:
    async with running(bench, poll_seconds=NEVER):
        await bench.insert("first")
        await bench.until_embedded(1)
        await bench.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
            "AND application_name IN ('memory-sync', 'memory-writer')"
        )
        await bench.insert("second")
        await bench.until_embedded(2)


async def test_sync_pauses_while_a_backfill_runs(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks again and again whether one does, and sends nothing in between."""
    looks: list[bool] = []
    look = leases_sql.backfill_runs

    async def noted(connection: Connection, table: MemoryTable) -> bool:
        looks.append(await look(connection, table))
        return looks[-1]

    monkeypatch.setattr(leases_sql, "backfill_runs", noted)
    await bench.insert(*(f"text {number}" for number in range(60)))
    bench.embedder.hold_after(2)
    backfill = asyncio.create_task(bench.backfill())
    sent = 2 + bench.plan.options.concurrency
    await until(lambda: bench.embedder.requests == sent)
    async with running(bench, poll_seconds=NEVER):
        await until(lambda: len(looks) >= 2 or bench.embedder.requests > sent)
        while_held = bench.embedder.requests, set(looks)
        bench.embedder.release()
        assert while_held == (sent, {True})
        result = await backfill
        assert result.tally.embedded == 60
        await bench.insert("afterwards")
        await bench.until_embedded(61)
    assert max(bench.embedder.received.values()) == 1
    assert not looks[-1]


class Rests:
    """Every rest of the sync worker lasts until the test ends it; passes over the pending rows are counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passes = 0
        self.lasts = 0.0
        self._resting = asyncio.Event()
        self._over = asyncio.Event()
        run_pass = Pipeline.run_pass

        async def counted(pipeline: Pipeline) -> int:
            self.passes += 1
            return await run_pass(pipeline)

        async def rest(stop: asyncio.Event, seconds: float) -> None:
            self.lasts = seconds
            self._resting.set()
            over, stopped = (asyncio.ensure_future(event.wait()) for event in (self._over, stop))
            await asyncio.wait([over, stopped], return_when=asyncio.FIRST_COMPLETED)
            for one in (over, stopped):
                one.cancel()
            self._over.clear()

        monkeypatch.setattr(Pipeline, "run_pass", counted)
        monkeypatch.setattr(sync_worker, "sleep_unless", rest)

    async def begun(self) -> None:
        async with asyncio.timeout(30):
            await self._resting.wait()
        self._resting.clear()

    def end(self) -> None:
        self._over.set()


@pytest.mark.promise("notifications-bounded")
@pytest.mark.finding("L14")
async def test_a_flood_of_notifications_starts_one_pass_for_each_rest(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L14: any role may notify. What is written meanwhile is embedded by that pass."""
    rests = Rests(monkeypatch)
    admin = await asyncpg.connect(bench.database.superuser_dsn)
    await admin.execute("DROP ROLE IF EXISTS stranger; CREATE ROLE stranger LOGIN PASSWORD 'stranger'")
    stranger = await asyncpg.connect(bench.database.dsn, user="stranger", password="stranger")
    async with running(bench, poll_seconds=NEVER):
        await rests.begun()
        for round_ in range(1, 4):
            await stranger.execute("NOTIFY memory_index_pending, 'memories';" * 500)
            for _ in range(500):
                await stranger.execute("NOTIFY memory_index_pending, 'memories'")
            assert rests.passes == round_, "none during the rest"
            rests.end()
            await rests.begun()
            assert rests.passes == round_ + 1
        await bench.insert("written amid the flood")
        rests.end()
        await rests.begun()
        assert await bench.embedded() == 1
    await stranger.close()
    await admin.execute("DROP ROLE stranger")
    await admin.close()


@pytest.mark.parametrize(("read", "rest"), [(0.0, 0.25), (0.02, 0.25), (0.5, 4.5), (30.0, 10.0)])
def test_the_longer_a_pass_in_vain_reads_the_longer_the_worker_rests(read: float, rest: float) -> None:
    """A vector waits for ten seconds at most, however many rows without a text lie about."""
    assert sync_worker.rest_after(read) == rest


async def test_the_rest_follows_from_what_the_pass_took_to_read(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests = Rests(monkeypatch)
    monkeypatch.setattr(sync_worker, "rest_after", lambda seconds: seconds)
    async with running(bench, poll_seconds=NEVER):
        await rests.begun()
        assert 0 < rests.lasts < 30


async def test_a_notification_about_another_table_does_not_wake_the_worker(bench: Workbench) -> None:
    """L14: the channel is the database's, and each of its tables has a sync worker of its own."""
    wakeup = sync_worker.Wakeup()
    async with bench.database.connection() as connection:
        await wakeup.listen(connection, "memories")
        wakeup.event.clear()
        for table, woken in (("notes", False), ("", False), ("MEMORIES", False), ("memories", True)):
            await connection.execute(f"SELECT pg_notify('memory_index_pending', '{table}')")
            await connection.fetchval("SELECT 1")  # by its answer the notification has arrived
            assert wakeup.event.is_set() is woken, table


async def test_a_failed_row_is_tried_again_when_it_is_due(bench: Workbench) -> None:
    async with running(bench, poll_seconds=NEVER):
        refused = iter([True])
        bench.embedder.behaviour = lambda texts: (200, {}, b"?") if "shaky" in texts and next(refused, False) else None
        await bench.insert("shaky")
        await bench.until_embedded(1)


async def test_sigterm_ends_the_process_cleanly_with_a_line_of_json(bench: Workbench) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "memory_recall", "sync", "--json",
        env={**os.environ, **bench.environment()}, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    await bench.insert("text")
    await bench.until_embedded(1)
    process.send_signal(signal.SIGTERM)
    output, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0
    assert b'"embedded":1' in output


async def _received(bench: Workbench, text: str) -> None:
    async with asyncio.timeout(30):
        while not bench.embedder.received[text]:  # noqa: ASYNC110  (it is the embedder that hears)
            await asyncio.sleep(0.02)
