"""A lease excludes the workers of its own table alone, is reported while it is waited for, and ends with its holder."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest
from structlog.testing import capture_logs

from memory_recall import retrying
from memory_recall.errors import LockNotAvailable, MemoryIndexError
from memory_recall.indexing import leases_sql
from memory_recall.indexing.backfill import backfill
from memory_recall.indexing.leases_sql import backfill_runs, lease_share, lease_swap, lease_sync
from memory_recall.indexing.progress import LogProgress, WorkerMetrics
from memory_recall.indexing.queue_sql import WorkerShare
from memory_recall.indexing.worker import worker_session
from memory_recall.postgres.connection import Connection, DsnText
from memory_recall.schema.migrate import MigrationRequest, migrate
from memory_recall.schema.table import MemoryTable, describe
from tests.integration.conftest import Database
from tests.integration.memory_recall.workbench import Workbench, until

Requests = Callable[..., MigrationRequest]


@dataclass
class Listener:
    """Remembers what was reported of waits."""

    began: list[tuple[str, str]] = field(default_factory=list)
    ended: list[tuple[str, float]] = field(default_factory=list)

    def outage_began(self, what: str, error: MemoryIndexError) -> None:
        self.began.append((what, error.reason))

    def outage_ended(self, what: str, seconds: float) -> None:
        self.ended.append((what, seconds))

    def attempt_failed(self, what: str, error: MemoryIndexError, wait: object) -> None:
        pass

    def wait_ended(self, wait: object) -> None:
        pass


async def take_all(connection: Connection, table: MemoryTable, *, seconds: float = 30) -> None:
    """Take the leases of a table's backfill, sync worker and swap; a wait may last `seconds`."""
    async with asyncio.timeout(seconds):
        await lease_share(connection, table, WorkerShare(), Listener())
        await lease_sync(connection, table, Listener())
        await lease_swap(connection, table)


async def test_first_tables_of_two_schemas_have_leases_of_their_own(database: Database, request_for: Requests) -> None:
    """Each is the first table of its schema, so the names of its relations have no suffix that tells the two apart."""
    async with database.connection() as first, database.connection() as second:
        for schema in ("ana", "ben"):
            await first.execute(f"CREATE SCHEMA {schema}")
            await migrate(DsnText(database.dsn), request_for(table=f"{schema}.memories"))
        of_ana, of_ben = await describe(first, "ana.memories"), await describe(first, "ben.memories")
        assert (of_ana.suffix, of_ben.suffix) == ("", "")
        await take_all(first, of_ana)
        assert not await backfill_runs(second, of_ben)
        await take_all(second, of_ben)
        assert await backfill_runs(second, of_ana)


async def test_a_first_table_and_a_second_table_never_have_the_same_name_of_a_lease(bench: Workbench) -> None:
    """The name of a schema may end as the suffix of a second table does."""
    async with bench.database.connection() as first, bench.database.connection() as second:
        public = await describe(first, "memories")
        await take_all(first, replace(public, schema="team", name="notes", suffix="__notes"))
        await take_all(second, replace(public, schema="team__notes"))


class Waiting:
    """What a wait for a lease goes by: a clock that a test moves, and attempts to take the lease, which are counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._now = 0.0
        self._refused = 0
        take = leases_sql._take

        async def counted(connection: Connection, kind: int, number: int) -> None:
            try:
                await take(connection, kind, number)
            except LockNotAvailable:
                self._refused += 1
                raise

        monkeypatch.setattr(leases_sql, "_take", counted)
        monkeypatch.setattr(leases_sql, "_POLL", leases_sql.Backoff(first=0.05, longest=0.05))
        monkeypatch.setattr(retrying, "time", self)

    def monotonic(self) -> float:
        return self._now

    async def until_refused_at(self, now: float) -> None:
        """Move the clock to `now`, and wait until an attempt that began then has been refused."""
        self._now = now
        seen = self._refused
        await until(lambda: self._refused >= seen + 2)  # the first may have begun before


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Waiting:
    return Waiting(monkeypatch)


@pytest.mark.parametrize("lease", [lease_sync, partial(lease_share, share=WorkerShare())])
async def test_a_long_wait_for_a_lease_is_reported_and_reported_again(
    bench: Workbench, waiting: Waiting, lease: Callable[..., Coroutine[Any, Any, None]]
) -> None:
    """After five seconds, and then every ten minutes."""
    listener = Listener()
    async with bench.database.connection() as holder, bench.database.connection() as other:
        table = await describe(holder, "memories")
        await lease(holder, table, listener=listener)
        assert listener.began == [], "the lease was free"
        task = asyncio.ensure_future(lease(other, table, listener=listener))
        for now, reports in ((0.0, 0), (4.9, 0), (5.0, 1), (604.9, 1), (605.0, 2), (1204.9, 2), (1205.0, 3)):
            await waiting.until_refused_at(now)
            assert len(listener.began) == reports, now
        assert listener.ended == []
        await holder.execute("SELECT pg_advisory_unlock_all()")
        await task
    assert set(listener.began) == {("lease", "LockNotAvailable")}
    assert listener.ended == [("lease", 1205.0)]


async def test_a_backfill_that_waits_for_its_lease_logs_and_counts_the_wait(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases_sql, "_REPORTED_AFTER", 0.0)
    metrics = WorkerMetrics()
    await bench.insert("text")
    async with bench.database.connection() as holder, bench.client() as client:
        await lease_share(holder, await describe(holder, "memories"), WorkerShare(), bench.ear)
        with capture_logs() as logs:
            progress = LogProgress(metrics, worker="backfill")
            source = DsnText(bench.database.dsn)
            task = asyncio.create_task(backfill(source, client, bench.plan, progress=progress, stop=bench.stop))
            await until(lambda: [entry for entry in logs if entry["event"] == "waiting"])
            await holder.execute("SELECT pg_advisory_unlock_all()")
            assert (await task).tally.embedded == 1
    assert [(entry["event"], entry["what"]) for entry in logs if "what" in entry] == [
        ("waiting", "lease"),
        ("continuing", "lease"),
    ]
    assert metrics.registry.get_sample_value("memory_worker_outages_total", {"what": "lease"}) == 1


async def test_a_short_wait_for_a_lease_is_not_reported(bench: Workbench, waiting: Waiting) -> None:
    listener = Listener()
    async with bench.database.connection() as holder, bench.database.connection() as other:
        table = await describe(holder, "memories")
        await lease_sync(holder, table, listener)
        task = asyncio.ensure_future(lease_sync(other, table, listener))
        for now in (0.0, 4.9):
            await waiting.until_refused_at(now)
        await holder.execute("SELECT pg_advisory_unlock_all()")
        await task
    assert (listener.began, listener.ended) == ([], [])


async def test_the_server_ends_the_session_of_a_dead_worker_within_about_a_minute(bench: Workbench) -> None:
    """With Postgres's defaults a lease outlives its node by two hours, or a quarter of one if data was under way."""
    async with worker_session(DsnText(bench.database.dsn), bench.plan, bench.ear, name="memory-test") as session:
        rows = await session.run(
            lambda connection: connection.fetch("SELECT name, setting FROM pg_settings WHERE name LIKE 'tcp%'")
        )
    found = {row["name"]: int(row["setting"]) for row in rows}
    silent = found["tcp_keepalives_idle"] + found["tcp_keepalives_interval"] * found["tcp_keepalives_count"]
    assert 30 <= silent <= 90
    assert 30_000 <= found["tcp_user_timeout"] <= 90_000
