"""A worker that is killed with SIGKILL at any stage loses nothing, and no row that was finished is embedded again."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from memory_recall.indexing.leases_sql import lease_share
from memory_recall.indexing.queue_sql import WorkerShare
from memory_recall.schema.table import describe
from tests.integration.memory_recall.workbench import EmbeddedAgain, Workbench

ROWS, BATCH = 120, 8
FINISHED = 24
POISON = "poison"
SESSIONS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'memory-%'"
)
Killing = Callable[[Workbench, asyncio.subprocess.Process], Awaitable[None]]


@asynccontextmanager
async def worker(bench: Workbench, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "memory_recall", *arguments,
        env={**os.environ, **bench.environment(MEMORY_BACKFILL_BATCH_SIZE=str(BATCH))},
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def until_waiting(bench: Workbench, fragment: str) -> None:
    """Wait until a session of the worker waits for a lock in a statement with that fragment."""
    await bench.until_value(f"{SESSIONS} AND wait_event_type = 'Lock' AND query LIKE '%{fragment}%'")


async def until_no_session_is_left(bench: Workbench) -> None:
    """The last statement of a killed worker may still end well."""
    await bench.until_value(SESSIONS, lambda count: count == 0)


def die(process: asyncio.subprocess.Process) -> None:
    process.send_signal(signal.SIGKILL)


async def while_it_waits_for_its_lease(bench: Workbench, process: asyncio.subprocess.Process) -> None:
    async with bench.database.connection() as holder:
        await lease_share(holder, await describe(holder, "memories"), WorkerShare(), bench.ear)
        await bench.until_value(f"{SESSIONS} AND application_name = 'memory-backfill'")
        die(process)
        await process.wait()


async def while_it_reads(bench: Workbench, process: asyncio.subprocess.Process) -> None:
    bench.embedder.hold_after(0)
    await bench.embedder.held.wait()
    async with bench.database.connection() as holder, holder.transaction():
        await holder.execute("LOCK TABLE memories IN ACCESS EXCLUSIVE MODE")
        bench.embedder.release()
        await until_waiting(bench, "memory_index_text_hash")
        die(process)
        await process.wait()


async def while_the_embedder_works(bench: Workbench, process: asyncio.subprocess.Process) -> None:
    bench.embedder.hold_after(FINISHED // BATCH)
    await bench.embedder.held.wait()
    await bench.until_embedded(FINISHED)
    die(process)
    await process.wait()
    bench.embedder.release()


async def while_it_writes(bench: Workbench, process: asyncio.subprocess.Process) -> None:
    async with bench.database.connection() as holder, holder.transaction():
        await holder.execute("LOCK TABLE memory_truncated_texts IN SHARE MODE")
        await until_waiting(bench, "stored")
        die(process)
        await process.wait()


async def while_it_records_a_failure(bench: Workbench, process: asyncio.subprocess.Process) -> None:
    await bench.execute(f"UPDATE memories SET content = '{POISON}' WHERE id = 40")
    bench.embedder.behaviour = lambda texts: (422, {}, b"{}") if POISON in texts else None
    async with bench.database.connection() as holder, holder.transaction():
        await holder.execute("LOCK TABLE memory_embedding_failures IN SHARE MODE")
        await until_waiting(bench, "memory_embedding_failures")
        die(process)
        await process.wait()
    bench.embedder.behaviour = lambda _texts: None


async def while_it_waits_for_an_absent_embedder(bench: Workbench, process: asyncio.subprocess.Process) -> None:
    bench.embedder.hold_after(FINISHED // BATCH)
    await bench.embedder.held.wait()
    await bench.until_embedded(FINISHED)
    await bench.embedder.stop()
    await asyncio.sleep(0.5)  # the worker is somewhere in its waiting, wherever exactly
    die(process)
    await process.wait()
    bench.embedder.release()
    await bench.embedder.start()


@pytest.mark.parametrize(
    "killed",
    [
        while_it_waits_for_its_lease,
        while_it_reads,
        while_the_embedder_works,
        while_it_writes,
        while_it_records_a_failure,
        while_it_waits_for_an_absent_embedder,
    ],
    ids=lambda stage: stage.__name__,
)
async def test_a_backfill_killed_at_any_stage_loses_nothing_and_repeats_nothing_finished(
    bench: Workbench, killed: Killing, embedded_again: EmbeddedAgain
) -> None:
    await bench.insert(*(f"text {number}" for number in range(ROWS)))
    async with worker(bench, "backfill") as process:
        await killed(bench, process)
    await until_no_session_is_left(bench)
    finished = await texts_with_a_vector(bench)
    sent = bench.embedder.received.copy()
    result = await bench.backfill()
    assert result.complete
    assert await bench.problems() == []
    assert embedded_again(bench, finished, sent) == 0


async def test_a_sync_worker_killed_in_the_middle_is_replaced_and_repeats_nothing_finished(
    bench: Workbench, embedded_again: EmbeddedAgain
) -> None:
    await bench.insert(*(f"text {number}" for number in range(ROWS)))
    bench.embedder.hold_after(FINISHED // BATCH)
    async with worker(bench, "sync") as process:
        await bench.embedder.held.wait()
        await bench.until_embedded(FINISHED)
        die(process)
        await process.wait()
    await until_no_session_is_left(bench)
    finished, sent = await texts_with_a_vector(bench), bench.embedder.received.copy()
    bench.embedder.release()
    async with worker(bench, "sync"):
        await bench.until_embedded(ROWS)
        await bench.insert("written afterwards")
        await bench.until_embedded(ROWS + 1)
    assert await bench.problems() == []
    assert embedded_again(bench, finished, sent) == 0


async def texts_with_a_vector(bench: Workbench) -> set[str]:
    async with bench.database.connection() as connection:
        rows = await connection.fetch("SELECT content FROM memories WHERE embedding IS NOT NULL")
    return {row["content"] for row in rows}
