"""Whatever the database, its rows and the process do under a backfill, no vector is lost, stale or made twice."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from memory_recall.indexing.backfill import backfill
from memory_recall.postgres.connection import DsnFile, DsnText
from tests.integration.memory_recall.workbench import Workbench, until


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_a_database_that_restarts_is_connected_again(own_bench: Workbench, mode: str) -> None:
    bench = own_bench
    await bench.insert(*(f"text {number}" for number in range(200)))
    bench.embedder.hold_after(6)
    task = asyncio.create_task(bench.backfill())
    await bench.embedder.held.wait()
    await bench.until_embedded(16)
    server = bench.database.server
    await asyncio.to_thread(server.stop, mode)
    bench.embedder.release()
    await until(lambda: "database" in bench.ear.outages)
    await asyncio.to_thread(server.start)
    result = await task
    assert result.complete
    assert await bench.problems() == []
    again = sum(count - 1 for count in bench.embedder.received.values() if count > 1)
    assert again == 0, f"{again} rows were embedded twice"
    assert result.tally.embedded == 200


async def test_terminated_connections_lose_no_row_and_repeat_none(bench: Workbench) -> None:
    await bench.insert(*(f"text {number}" for number in range(600)))
    bench.embedder.hold_after(2)
    task = asyncio.create_task(bench.backfill())
    for more in (4, 4, 1000):
        held = asyncio.create_task(bench.embedder.held.wait())
        await asyncio.wait({held, task}, return_when=asyncio.FIRST_COMPLETED)
        assert not task.done(), task.exception()
        await bench.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
            "AND application_name LIKE 'memory-%'"
        )
        bench.embedder.hold_after(more)
    result = await task
    assert result.tally.embedded == 600
    assert max(bench.embedder.received.values()) == 1
    assert await bench.problems() == []


async def test_a_rotated_password_is_read_at_the_next_connect(own_bench: Workbench, tmp_path: Path) -> None:
    bench = own_bench
    file = tmp_path / "dsn"
    file.write_text(bench.database.dsn)
    await bench.insert(*(f"text {number}" for number in range(100)))
    bench.embedder.hold_after(4)
    async with bench.client() as client:
        task = asyncio.create_task(backfill(DsnFile(file), client, bench.plan, progress=bench.ear, stop=bench.stop))
        await bench.embedder.held.wait()
        await bench.execute(
            "ALTER ROLE app PASSWORD 'rotated'; "
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'memory-%'"
        )
        bench.embedder.release()
        await until(lambda: "AuthenticationFailed" in bench.ear.reasons)
        rotated = bench.database.dsn.replace("app-password-canary", "rotated")
        file.write_text(rotated)
        result = await task
    bench.database = type(bench.database)(
        bench.database.name, rotated, bench.database.superuser_dsn, bench.database.server
    )
    assert result.tally.embedded == 100
    assert await bench.problems() == []


@pytest.mark.promise("no-vector-of-a-former-text")
@pytest.mark.parametrize("change", ["content = 'edited'", "is_sensitive = true", "deleted_at = now()"])
async def test_a_row_that_changes_while_it_is_embedded_does_not_get_the_old_vector(
    bench: Workbench, change: str
) -> None:
    await bench.insert("original", "neighbour")
    asked, changed = asyncio.Event(), asyncio.Event()
    embed = bench.client()

    class Slow:
        async def model_info(self) -> object:
            return await embed.model_info()

        async def embed_documents(self, texts: list[str], **options: Any) -> object:
            answer = await embed.embed_documents(texts, **options)
            asked.set()
            await changed.wait()
            return answer

        async def embed_queries(self, texts: list[str]) -> object:
            return await embed.embed_queries(texts)

    task = asyncio.create_task(
        backfill(DsnText(bench.database.dsn), Slow(), bench.plan, progress=bench.ear, stop=bench.stop)  # type: ignore[arg-type]
    )
    await asked.wait()
    await bench.execute(f"UPDATE memories SET {change} WHERE id = 1")
    changed.set()
    result = await task
    await embed.close()
    assert result.tally.changed == 1
    assert await bench.problems() == []


async def test_a_row_locked_by_a_long_transaction_does_not_delay_other_rows(bench: Workbench) -> None:
    await bench.insert(*(f"text {number}" for number in range(16)))
    async with bench.database.connection() as other:
        transaction = other.transaction()
        await transaction.start()
        await other.execute("UPDATE memories SET content = 'held' WHERE id = 5")
        task = asyncio.create_task(bench.backfill())
        await bench.until_embedded(15)
        assert not task.done()
        await transaction.commit()
    await task
    assert await bench.problems() == []


async def test_a_killed_backfill_continues_when_started_again(bench: Workbench) -> None:
    await bench.insert(*(f"text {number}" for number in range(300)))
    environment = {**os.environ, **bench.environment(MEMORY_BACKFILL_BATCH_SIZE="8")}
    for goal in (16, 64):
        bench.embedder.hold_after(goal // 8)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "memory_recall", "backfill",
            env=environment, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        await bench.embedder.held.wait()
        await bench.until_embedded(goal)
        process.send_signal(signal.SIGKILL)
        await process.wait()
    bench.embedder.release()
    result = await bench.backfill()
    assert result.complete
    assert await bench.problems() == []
    again = sum(count - 1 for text, count in bench.embedder.received.items() if text.startswith("text"))
    assert again <= 2 * 4 * 8, "two kills, each with at most four requests of eight rows under way"
