"""Whatever the database, its rows and the process do under a backfill, no vector is lost, stale or made twice."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pgvector.asyncpg import register_vector

from memory_recall.errors import DatabaseRejected, LockNotAvailable
from memory_recall.indexing import locked_rows, queue_sql
from memory_recall.indexing.backfill import backfill
from memory_recall.indexing.quarantine_sql import listed, retry
from memory_recall.indexing.queue_sql import PendingQueue, PendingRow, WorkerShare
from memory_recall.postgres.connection import Connection, DsnFile, DsnText
from memory_recall.schema.models_sql import active_model
from memory_recall.schema.table import describe
from tests.integration.memory_recall.workbench import DIMENSIONS, Workbench, until


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


async def test_a_worker_waits_for_no_row_that_somebody_edits(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has locked others by then, so that whoever edits could wait for it in turn, and lose the edit as a deadlock.

    The row that is left is still pending, and rests, lest it is embedded again and again while it is locked.
    """
    monkeypatch.setattr(locked_rows, "_FIRST_SECONDS", 3600.0)
    await bench.insert("one", "two", "three")
    vectors = np.ones((2, DIMENSIONS), dtype=np.float32)
    async with bench.database.connection() as editing, bench.database.connection() as worker:
        await register_vector(worker)
        table = await describe(worker, "memories")
        model = await active_model(worker, table)
        queue = PendingQueue(table, model.id)
        first, second, third = (await queue.page(worker, None, WorkerShare(), 10)).rows
        await editing.execute(f"BEGIN; UPDATE memories SET category = 'held' WHERE id = {second.id}")
        async with asyncio.timeout(60):
            assert (await queue.write(worker, [first, second], vectors)).stored == 1
        assert (await queue.page(worker, None, WorkerShare(), 10)).rows == [third]
        assert (await queue.state(worker, WorkerShare())).seconds_until_due is not None
        await editing.execute(f"UPDATE memories SET category = 'held' WHERE id = {first.id}; COMMIT")
        assert (await PendingQueue(table, model.id).page(worker, None, WorkerShare(), 10)).rows == [second, third]
        assert (await queue.write(worker, [second, third], vectors)).stored == 2


async def test_a_row_that_is_locked_for_a_moment_gets_its_vector_in_the_same_write(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its text would otherwise be embedded once more for each short edit, such as a counter's."""
    monkeypatch.setattr(queue_sql, "_LOCK_PAUSES", (0.01,) * 6000)
    await bench.insert("one", "two")
    async with bench.database.connection() as editing, bench.database.connection() as worker:
        await register_vector(worker)
        table = await describe(worker, "memories")
        queue = PendingQueue(table, (await active_model(worker, table)).id)
        rows = (await queue.page(worker, None, WorkerShare(), 10)).rows
        await editing.execute("BEGIN; UPDATE memories SET category = 'held' WHERE id = 1")
        written = asyncio.create_task(queue.write(worker, rows, np.ones((2, DIMENSIONS), dtype=np.float32)))
        await bench.until_embedded(1)
        await editing.execute("COMMIT")
        assert (await written).stored == 2
        assert await bench.embedded() == 2


@asynccontextmanager
async def ready_to_write(bench: Workbench) -> AsyncIterator[tuple[Connection, PendingQueue, list[PendingRow]]]:
    """A connection as a worker has it, a queue, and all rows that are pending."""
    async with bench.database.connection() as worker:
        await register_vector(worker)
        await worker.execute("SET lock_timeout = 200")
        table = await describe(worker, "memories")
        queue = PendingQueue(table, (await active_model(worker, table)).id)
        yield worker, queue, (await queue.page(worker, None, WorkerShare(), 100)).rows


async def test_a_row_that_has_its_vector_counts_once_though_it_is_locked(bench: Workbench) -> None:
    """A write that is repeated finds such rows. The count of rows that changed would fall below zero."""
    await bench.insert("one", "two", "three")
    vectors = np.ones((3, DIMENSIONS), dtype=np.float32)
    async with bench.database.connection() as editing, ready_to_write(bench) as (worker, queue, rows):
        assert (await queue.write(worker, rows[:1], vectors[:1])).stored == 1
        await editing.execute("BEGIN; UPDATE memories SET category = 'held' WHERE id <= 2")
        assert (await queue.write(worker, rows, vectors)).stored == 2
        await editing.execute("COMMIT")


async def test_rows_of_a_transaction_that_has_locked_others_are_not_embedded_in_vain(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have locked millions of rows, and a pass over those takes longer than the first ones rest."""
    monkeypatch.setattr(locked_rows, "_FIRST_SECONDS", 0.0)
    await bench.insert(*(f"text {number}" for number in range(6)))
    async with bench.database.connection() as editing, ready_to_write(bench) as (worker, queue, rows):
        await editing.execute("BEGIN; UPDATE memories SET category = 'held' WHERE id < 6")
        assert (await queue.write(worker, rows[:2], np.ones((2, DIMENSIONS), dtype=np.float32))).stored == 0
        first = await queue.page(worker, None, WorkerShare(), 4)
        assert (first.rows, first.last) == ([], 4)
        assert (await queue.page(worker, first.last, WorkerShare(), 4)).rows == rows[5:]
        assert (await queue.state(worker, WorkerShare())).seconds_until_due is not None
        await editing.execute("COMMIT")
        assert (await queue.page(worker, None, WorkerShare(), 100)).rows == rows


_COUNTED = """
CREATE TABLE counters (name text PRIMARY KEY, edits integer NOT NULL);
INSERT INTO counters VALUES ('kitchen', 0), ('garden', 0);
CREATE FUNCTION count_edit() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN UPDATE counters SET edits = edits + 1 WHERE name = NEW.category; RETURN NULL; END $$;
CREATE TRIGGER count_edit AFTER UPDATE ON memories FOR EACH ROW EXECUTE FUNCTION count_edit();
UPDATE memories SET category = CASE WHEN id IN (3, 4, 7) THEN 'kitchen' ELSE 'garden' END
"""


async def test_rows_whose_triggers_wait_for_a_lock_do_not_delay_others(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker would write the same rows in vain until it gives up, and no other row would get its vector."""
    monkeypatch.setattr(locked_rows, "_FIRST_SECONDS", 3600.0)
    await bench.insert(*(f"text {number}" for number in range(8)))
    await bench.execute(_COUNTED)
    async with bench.database.connection() as editing, ready_to_write(bench) as (worker, queue, rows):
        await editing.execute("BEGIN; UPDATE counters SET edits = 0 WHERE name = 'kitchen'")
        assert (await queue.write(worker, rows, np.ones((8, DIMENSIONS), dtype=np.float32))).stored == 5
        assert (await queue.page(worker, None, WorkerShare(), 100)).rows == []
        assert (await queue.state(worker, WorkerShare())).seconds_until_due is not None
        await editing.execute("COMMIT")
        assert await worker.fetch("SELECT id FROM memories WHERE embedding IS NULL ORDER BY id") == [(3,), (4,), (7,)]


_REFUSING = {
    "constraint": "ALTER TABLE memories ADD CHECK (char_length(content) > 3) NOT VALID",
    "trigger": """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'archived'; END $$;
CREATE TRIGGER refuse BEFORE UPDATE ON memories FOR EACH ROW WHEN (char_length(OLD.content) < 4)
  EXECUTE FUNCTION refuse()""",
    "cast": """
CREATE FUNCTION parse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM NEW.content::json; RETURN NEW; END $$;
CREATE TRIGGER parse BEFORE UPDATE ON memories FOR EACH ROW WHEN (char_length(OLD.content) < 4)
  EXECUTE FUNCTION parse()""",
}


@pytest.mark.parametrize("refusal", _REFUSING)
async def test_a_row_that_its_table_refuses_to_update_is_named_and_the_others_are_embedded(
    bench: Workbench, refusal: str
) -> None:
    await bench.insert("a good text", "ab", "another good text")
    await bench.execute(_REFUSING[refusal])
    tally = (await bench.backfill()).tally
    assert (tally.embedded, tally.changed, tally.quarantined) == (2, 0, 1)
    async with bench.database.connection() as connection:
        (failed,) = await listed(connection, await describe(connection, "memories"))
    assert (failed.id, failed.attempts, failed.error_class, failed.next_attempt) == (2, 3, "RowRefused", None)


async def test_a_table_that_refuses_every_row_ends_the_backfill_with_an_error(bench: Workbench) -> None:
    """Its rows are in quarantine by then, and the remedy names the command that has them tried again."""
    await bench.insert(*(f"text {number}" for number in range(12)))
    await bench.execute(
        "CREATE FUNCTION closed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'closed for maintenance'; END $$;"
        "CREATE TRIGGER closed BEFORE UPDATE ON memories FOR EACH ROW EXECUTE FUNCTION closed()"
    )
    with pytest.raises(DatabaseRejected, match="refused every update") as refused:
        await bench.backfill()
    assert "memory quarantine retry" in refused.value.remedy
    await bench.execute("DROP TRIGGER closed ON memories")
    async with bench.database.connection() as connection:
        assert len(await retry(connection, await describe(connection, "memories"), None)) == 12
    assert (await bench.backfill()).tally.embedded == 12


_UNDOING = {
    "skipped": ("BEFORE", "RETURN NULL;"),
    "cleared": ("BEFORE", "NEW.embedding := NULL; RETURN NEW;"),
    "cleared afterwards": ("AFTER", "UPDATE memories SET embedding = NULL WHERE id = NEW.id; RETURN NULL;"),
}


@pytest.mark.parametrize("undoing", _UNDOING)
async def test_a_row_whose_vector_a_trigger_undoes_is_embedded_a_few_times_and_then_named(
    bench: Workbench, undoing: str
) -> None:
    """A hosted provider would be paid for its text without end."""
    when, body = _UNDOING[undoing]
    await bench.insert("one", "frozen", "three")
    await bench.execute(
        f"CREATE FUNCTION undo() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$; "
        f"CREATE TRIGGER undo {when} UPDATE ON memories FOR EACH ROW "
        "WHEN (NEW.content = 'frozen' AND NEW.embedding IS NOT NULL) EXECUTE FUNCTION undo()"
    )
    async with asyncio.timeout(30):
        tally = (await bench.backfill()).tally
    assert (tally.embedded, tally.changed, tally.quarantined) == (2, 0, 1)
    assert bench.embedder.received["frozen"] == bench.plan.options.policy.max_attempts
    async with bench.database.connection() as connection:
        (failed,) = await listed(connection, await describe(connection, "memories"))
    assert (failed.id, failed.error_class, failed.next_attempt) == (2, "VectorUndone", None)


async def test_a_table_that_is_locked_as_a_whole_is_waited_for_and_no_row_rests(bench: Workbench) -> None:
    """Whoever waits keeps the vectors, which would have to be made again after a rest."""
    await bench.insert("one", "two")
    async with bench.database.connection() as migrating, ready_to_write(bench) as (worker, queue, rows):
        await migrating.execute("BEGIN; LOCK TABLE memories IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(LockNotAvailable):
            await queue.write(worker, rows, np.ones((2, DIMENSIONS), dtype=np.float32))
        await migrating.execute("COMMIT")
        assert (await queue.page(worker, None, WorkerShare(), 100)).rows == rows


async def test_a_row_that_fails_while_it_is_locked_rests_as_well(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is recorded of it, so that nothing else would keep the worker from sending it again at once."""
    monkeypatch.setattr(locked_rows, "_FIRST_SECONDS", 3600.0)
    sent: list[str] = []

    def behaviour(texts: list[str]) -> tuple[int, dict[str, str], bytes] | None:
        sent.extend(texts)
        return (422, {}, b"{}") if "refused" in texts else None

    bench.embedder.behaviour = behaviour
    await bench.insert("refused")
    async with bench.database.connection() as editing, editing.transaction():
        await editing.execute("UPDATE memories SET category = 'held'")
        task = asyncio.create_task(bench.backfill())
        await until(lambda: "refused" in sent)
        await bench.insert("fine")
        await bench.until_embedded(1)
        bench.stop.set()
        await task
    assert sent.count("refused") == 1


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
