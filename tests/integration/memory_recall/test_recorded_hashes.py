"""No keyed hash of a text outlives the text, whatever becomes of its row, and whether or not a trigger sees it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import asyncpg
import pytest

from memory_recall.indexing.companions.sweeping import sweep_hashes
from memory_recall.indexing.quarantine_sql import RetryPolicy, forget_settled, record_failures
from memory_recall.indexing.queue_sql import PendingRow
from memory_recall.postgres.connection import DsnText
from memory_recall.schema import supersessions
from memory_recall.schema.table import ACTIVE, STANDBY, describe
from memory_recall.schema.truncated import TRUNCATED, sweep_truncated
from tests.integration.conftest import Database
from tests.integration.memory_recall.least_rights import least_rights
from tests.integration.memory_recall.workbench import Ear, Workbench

ONCE = RetryPolicy(1, 0.01)
CHANGES = [
    "UPDATE memories SET is_sensitive = true WHERE id = 1",
    "UPDATE memories SET deleted_at = now() WHERE id = 1",
    "UPDATE memories SET content = 'edited' WHERE id = 1",
    "DELETE FROM memories WHERE id = 1",
]
TRIGGERS = [
    f"zz_memory_index_{name}" for name in ("columns_update", "direction", "insert", "update", "delete", "truncate")
]


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
        return (await record_failures(connection, await describe(connection, "memories"), rows, ONCE)).quarantined


async def recorded(bench: Workbench, table: str = "memory_embedding_failures") -> list[int]:
    async with bench.database.connection() as connection:
        return [row["id"] for row in await connection.fetch(f"SELECT id FROM {table} ORDER BY id")]


@contextlib.asynccontextmanager
async def sweeping(bench: Workbench, database: Database | None = None) -> AsyncIterator[None]:
    """Sweep at short intervals, as the sync worker does once a minute."""
    stop = asyncio.Event()
    source = DsnText((database or bench.database).dsn)
    task = asyncio.create_task(sweep_hashes(source, bench.plan.table, bench.ear, stop, every_seconds=0.05))
    try:
        yield
    finally:
        stop.set()
        await task


async def until_gone(bench: Workbench, query: str) -> None:
    await bench.until_value(query, lambda count: count == 0)


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
    """The record waits for nobody who has the row locked, while it has locked others itself."""
    await bench.insert("one", "two")
    read = await failed(bench, "one", "two")
    async with bench.database.connection() as other, other.transaction(), asyncio.timeout(60):
        await other.execute(change)
        assert await record(bench, read) == 1
    assert await recorded(bench) == [2]


@pytest.mark.promise("failure-reveals-no-text")
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


_OF_NO_ROW = {
    forget_settled: f"INSERT INTO {ACTIVE.failures} (id, text_hash, attempts, error_class, next_attempt) "
    "SELECT n, 'h', 1, 'EmbedderRejected', 'infinity' FROM generate_series(1, 2500) n",
    sweep_truncated: f"INSERT INTO {TRUNCATED} (id, model) SELECT n, 1 FROM generate_series(1, 2500) n",
}


@pytest.mark.parametrize("page", _OF_NO_ROW, ids=["failures", "truncated texts"])
async def test_one_statement_of_a_sweep_looks_up_one_page_of_records(bench: Workbench, page: Any) -> None:
    await bench.execute(_OF_NO_ROW[page])
    records = f"SELECT count(*) FROM {ACTIVE.failures if page is forget_settled else TRUNCATED}"
    async with bench.database.connection() as connection:
        sweep = partial(page, connection, await describe(connection, "memories"))
        last, left = await sweep(), []
        while last is not None:
            left.append(await connection.fetchval(records))
            last = await sweep(after=last)
    assert left == [1500, 500, 0]


async def test_a_sweep_that_took_long_is_followed_by_a_rest_nine_times_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads again what has not changed, which would keep a disk busy without an end."""
    stop, clock, rests = asyncio.Event(), [0.0], []

    async def long_sweep(*_: object) -> None:
        clock[0] += 42.0

    async def noted_sleep(_stop: asyncio.Event, seconds: float) -> None:
        rests.append(seconds)
        stop.set()

    module = "memory_recall.indexing.companions.sweeping"
    monkeypatch.setattr(f"{module}._sweep", long_sweep)
    monkeypatch.setattr(f"{module}.sleep_unless", noted_sleep)
    monkeypatch.setattr(f"{module}.time", SimpleNamespace(monotonic=lambda: clock[0]))
    await sweep_hashes(DsnText("postgresql://nowhere"), "memories", Ear(), stop)
    assert rests == [9 * 42.0]


async def test_sync_sweeps_the_records_of_truncated_texts_that_nothing_needs(bench: Workbench) -> None:
    """Of rows that are gone or may not be used, and of models that no column has; the record of another text stays."""
    await bench.insert("one", "two")
    await bench.execute(
        "INSERT INTO memory_truncated_texts SELECT id, model FROM memories, (SELECT active_model FROM "
        "memory_index_state UNION ALL SELECT 999) AS of (model)"
    )
    await unseen(bench, "UPDATE memories SET is_sensitive = true WHERE id = 1")
    assert await bench.value("SELECT count(*) FROM memory_truncated_texts") == 4, "no trigger has seen it"
    async with sweeping(bench):
        await until_gone(bench, "SELECT count(*) FROM memory_truncated_texts WHERE id = 1 OR model = 999")
    assert await bench.value("SELECT count(*) FROM memory_truncated_texts") == 1
    assert bench.ear.outages == []


async def mark(bench: Workbench) -> None:
    """Mark the first memory as superseded by the second, and the third by the fourth."""
    await bench.execute(
        "INSERT INTO memory_supersessions (run, action, id, superseded_by, text_hash, successor_hash) "
        "SELECT 1, 'UPDATE', o.id, n.id, memory_index_text_hash(o.content), memory_index_text_hash(n.content) "
        "FROM memories o JOIN memories n ON n.id = o.id + 1 WHERE o.id % 2 = 1"
    )


async def kept(bench: Workbench) -> list[int]:
    """Return which memories the journal still has hashes of, whether as an older or as a newer one."""
    async with bench.database.connection() as connection:
        rows = await connection.fetch("SELECT id, superseded_by, text_hash, successor_hash FROM memory_supersessions")
    hashes = [(row["id"], row["text_hash"]) for row in rows] + [(r["superseded_by"], r["successor_hash"]) for r in rows]
    return sorted(one for one, text_hash in hashes if text_hash)


async def test_truncating_the_table_deletes_the_hashes_of_all_its_texts(
    bench: Workbench, partitioned_bench: Workbench
) -> None:
    """Those of failures and of the journal, without a sweep, also where the table is partitioned."""
    for each in (bench, partitioned_bench):
        await each.insert("one", "two")
        await record(each, await failed(each, "one", "two"))
        await mark(each)
        assert (await recorded(each), await kept(each)) == ([1, 2], [1, 2])
        await each.execute("TRUNCATE memories")
        assert (await recorded(each), await kept(each)) == ([], [])


@pytest.mark.parametrize("place", [3, 4])
async def test_the_hashes_of_a_memory_go_when_its_id_changes(bench: Workbench, place: int) -> None:
    """Nobody would know them for its own afterwards, so they would outlive its text."""
    await bench.insert("one", "two", "three", "four")
    await record(bench, await failed(bench, "three", "four"))
    await mark(bench)
    await bench.execute(f"UPDATE memories SET id = 9 WHERE id = {place}")
    assert (await recorded(bench), await kept(bench)) == ([7 - place], [1, 2])


@pytest.mark.promise("journal-reveals-no-text")
@pytest.mark.parametrize("place", [1, 2])
@pytest.mark.parametrize("change", CHANGES)
async def test_sync_sweeps_the_marks_that_no_trigger_has_seen(bench: Workbench, change: str, place: int) -> None:
    """Whichever of the two memories it was; a mark whose texts stand is kept."""
    await bench.insert("one", "two", "three", "four")
    await mark(bench)
    await unseen(bench, change.replace("id = 1", f"id = {place}"))
    assert await kept(bench) == [1, 2, 3, 4], "no trigger has seen it"
    async with sweeping(bench):
        await until_gone(bench, "SELECT count(*) FROM memory_supersessions WHERE id = 1 AND text_hash <> ''")
        assert await kept(bench) == [3, 4]
    assert bench.ear.outages == []


@pytest.mark.parametrize(
    "change",
    [
        "DROP TABLE memories_bob",
        "ALTER TABLE memories DETACH PARTITION memories_bob",
        "TRUNCATE memories_bob",
    ],
)
async def test_sync_sweeps_the_hashes_of_a_partition_that_is_gone(partitioned_bench: Workbench, change: str) -> None:
    bench = partitioned_bench
    for text, user in (("one", "ada"), ("two", "bob"), ("three", "ada"), ("four", "ada")):
        await bench.execute(f"INSERT INTO memories (content, user_id) VALUES ('{text}', '{user}')")
    await record(bench, await failed(bench, "one", "two"))
    await mark(bench)
    await bench.execute(change)
    assert (await recorded(bench), await kept(bench)) == ([1, 2], [1, 2, 3, 4])
    async with sweeping(bench):
        await until_gone(bench, "SELECT count(*) FROM memory_supersessions WHERE id = 1 AND text_hash <> ''")
        assert (await recorded(bench), await kept(bench)) == ([1], [3, 4])


async def test_sync_sweeps_what_an_edit_with_an_older_snapshot_has_left(bench: Workbench) -> None:
    """Such an edit sees no mark that was made after its transaction began."""
    await bench.insert("one", "two")
    async with bench.database.connection() as other, other.transaction(isolation="repeatable_read"):
        await other.fetchval("SELECT count(*) FROM memories")
        await mark(bench)
        await other.execute("UPDATE memories SET is_sensitive = true WHERE id = 1")
    assert await kept(bench) == [1, 2]
    async with sweeping(bench):
        await until_gone(bench, "SELECT count(*) FROM memory_supersessions WHERE text_hash <> ''")


async def test_a_sweep_waits_for_nobody_who_has_locked_a_mark_and_sweeps_the_others(bench: Workbench) -> None:
    await bench.insert("one", "two", "three", "four")
    await mark(bench)
    await unseen(bench, "DELETE FROM memories")
    async with sweeping(bench):
        async with bench.database.connection() as other, other.transaction():
            await other.execute("SELECT FROM memory_supersessions WHERE id = 1 FOR UPDATE")
            await until_gone(bench, "SELECT count(*) FROM memory_supersessions WHERE id = 3 AND text_hash <> ''")
            assert await kept(bench) == [1, 2]
        await until_gone(bench, "SELECT count(*) FROM memory_supersessions WHERE text_hash <> ''")


async def test_a_sweep_of_a_long_journal_reaches_its_end(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads the journal in pages, so that no statement is long."""
    monkeypatch.setattr(supersessions, "_PAGE", 2)
    await bench.insert(*map(str, range(14)))
    await mark(bench)
    await unseen(bench, "DELETE FROM memories WHERE id > 10")
    async with sweeping(bench):
        await until_gone(bench, "SELECT count(*) FROM memory_supersessions WHERE id > 10 AND text_hash <> ''")
        assert await kept(bench) == list(range(1, 11))


async def test_the_worker_s_role_may_sweep(bench: Workbench) -> None:
    """It may neither add marks nor change the memories that they name."""
    await bench.insert("one", "two", "three", "four")
    await mark(bench)
    await unseen(bench, "DELETE FROM memories WHERE id = 1")
    async with least_rights(bench) as roles:
        async with sweeping(bench, roles.worker):
            await until_gone(bench, "SELECT count(*) FROM memory_supersessions WHERE id = 1 AND text_hash <> ''")
        assert (bench.ear.outages, await kept(bench)) == ([], [3, 4])
        async with roles.worker.connection() as connection:
            for statement in (
                "INSERT INTO memory_supersessions DEFAULT VALUES",
                "DELETE FROM memory_supersessions",
                "UPDATE memory_supersessions SET superseded_by = 1",
            ):
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await connection.execute(statement)
