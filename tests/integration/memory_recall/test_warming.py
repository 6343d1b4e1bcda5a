"""The sync worker reads ahead what recalls search, once after each start of the server.

The wheel's Postgres has no `pg_prewarm`. Where a test needs it, a function of the same signature takes its place, which
writes down what it was asked to read; it is entered in the catalog as that of the extension.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import asyncpg
import pytest

from memory_recall.hnsw.repair import build_index
from memory_recall.indexing.companions import warming
from memory_recall.indexing.companions.warming import Warmer
from memory_recall.indexing.progress import WorkerMetrics
from memory_recall.indexing.warming import Unit
from memory_recall.indexing.warming_sql import WarmingStatus, read_warming, searched_relations
from memory_recall.postgres.connection import Connection, DsnText
from memory_recall.schema.table import describe
from tests.integration.memory_recall.least_rights import least_rights
from tests.integration.memory_recall.partitioned import USERS, fill_partitions
from tests.integration.memory_recall.workbench import INDEX, Workbench, until
from tests.support.memory_command import run_memory

STAND_IN = """
CREATE TABLE public.prewarmed (place serial, relation text, blocks int8, mode text, first int8, last int8);
CREATE FUNCTION public.pg_prewarm(regclass, mode text DEFAULT 'buffer', fork text DEFAULT 'main',
    first_block int8 DEFAULT NULL, last_block int8 DEFAULT NULL) RETURNS int8 LANGUAGE plpgsql SECURITY DEFINER AS $$
    BEGIN INSERT INTO public.prewarmed (relation, blocks, mode, first, last)
    VALUES ($1::text, pg_relation_size($1) / current_setting('block_size')::int, $2, $4, $5);
    RETURN $5 - $4 + 1; END $$;
GRANT SELECT ON public.prewarmed TO PUBLIC;
"""
LONG_TEXT = """
UPDATE memories SET content = (SELECT string_agg(md5(n::text), '') FROM generate_series(1, 900) n) WHERE id = 1
"""
CACHE_SIZE = """
DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET effective_cache_size = 524288', current_database()); END $$
"""
IN_CATALOG = """
INSERT INTO pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion)
VALUES (99999, 'pg_prewarm', 10, 'public'::regnamespace, true, '1.2')
"""


async def as_superuser(bench: Workbench, *statements: str) -> None:
    admin = await asyncpg.connect(bench.database.superuser_dsn)
    for statement in statements:
        await admin.execute(statement)
    await admin.close()


async def indexed(bench: Workbench, rows: int = 300) -> None:
    """Fill the table and build the index."""
    await bench.insert(*(f"text {number}" for number in range(rows)))
    await bench.backfill()
    await build_index(DsnText(bench.database.dsn), "memories", INDEX)


async def status(bench: Workbench) -> WarmingStatus:
    async with bench.database.connection() as connection:
        return await read_warming(connection, "memories")


async def read_by_stand_in(bench: Workbench) -> list[str]:
    async with bench.database.connection() as connection:
        return [row["relation"] for row in await connection.fetch("SELECT relation FROM prewarmed ORDER BY place")]


@dataclass
class Warming:
    """A warmer that runs beside a test."""

    bench: Workbench
    metrics: WorkerMetrics = field(default_factory=WorkerMetrics)
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def until_complete(self) -> WarmingStatus:
        async with asyncio.timeout(60):
            while not (found := await status(self.bench)).complete:  # noqa: ASYNC110  (it is the server that changes)
                await asyncio.sleep(0.02)
        return found

    def share(self) -> float | None:
        return self.metrics.registry.get_sample_value("memory_worker_warmed")


@asynccontextmanager
async def warming_of(bench: Workbench, *, check_seconds: float = 3600) -> AsyncIterator[Warming]:
    """Run a warmer; whatever it raises fails the test."""
    made = Warming(bench)
    warmer = Warmer(DsnText(bench.database.dsn), bench.plan, bench.ear, made.metrics, check_seconds=check_seconds)
    task = asyncio.create_task(warmer.run(made.stop))
    try:
        yield made
    finally:
        made.stop.set()
        await task


def checks_of(monkeypatch: pytest.MonkeyPatch) -> list[Connection]:
    """The connections by which warmers have checked the server, one for each check that has ended."""
    checks: list[Connection] = []
    check = Warmer._check_server

    async def counted(warmer: Warmer, connection: Connection, stop: asyncio.Event) -> None:
        await check(warmer, connection, stop)
        checks.append(connection)

    monkeypatch.setattr(Warmer, "_check_server", counted)
    return checks


async def test_the_vector_index_is_read_first_then_that_of_words_the_table_its_key_and_what_is_beside_it(
    bench: Workbench,
) -> None:
    """Status and metric say so, and each of their blocks is asked for once."""
    await indexed(bench)
    await bench.execute(LONG_TEXT)
    beside = await bench.value("SELECT reltoastrelid::regclass::text FROM pg_class WHERE relname = 'memories'")
    await as_superuser(bench, STAND_IN, IN_CATALOG, CACHE_SIZE)
    async with warming_of(bench) as running:
        found = await running.until_complete()
        assert found.read_ahead is not None
        assert (found.extension, found.read_ahead.unit, running.share()) == ("installed", Unit.MIB, 1.0)
    names = await read_by_stand_in(bench)
    indexes = ["idx_memories_embedding", "idx_memories_search"]
    assert names == [*indexes, "memories", "memories_pkey", f"{beside}_index", beside]
    assert await bench.value("SELECT sum(blocks) = sum(last - first + 1) FROM prewarmed")


async def test_a_role_that_is_not_the_owner_reads_nothing_of_what_is_beside_the_table(bench: Workbench) -> None:
    """It may read the table itself, whose owner alone may read what Postgres stores beside it."""
    await indexed(bench)
    await bench.execute(LONG_TEXT)
    admin = await asyncpg.connect(bench.database.superuser_dsn)
    table = await describe(admin, "memories")
    owned = len(await searched_relations(admin, table))
    await admin.execute("CREATE ROLE reader_alone; GRANT SELECT ON memories TO reader_alone; SET ROLE reader_alone")
    assert (owned, len(await searched_relations(admin, table))) == (6, 4)
    await admin.execute("RESET ROLE; REVOKE ALL ON memories FROM reader_alone; DROP ROLE reader_alone")
    await admin.close()


async def test_every_part_of_a_partitioned_table_is_read(partitioned_bench: Workbench) -> None:
    await fill_partitions(partitioned_bench)
    await partitioned_bench.backfill()
    await build_index(DsnText(partitioned_bench.database.dsn), "memories", INDEX)
    await as_superuser(partitioned_bench, STAND_IN, IN_CATALOG)
    async with warming_of(partitioned_bench) as running:
        await running.until_complete()
    names = await read_by_stand_in(partitioned_bench)
    assert set(names[: len(USERS)]) == {f"idx_memories_{user}_embedding" for user in USERS}
    assert set(names[2 * len(USERS) : 3 * len(USERS)]) == {f"memories_{user}" for user in USERS}
    assert set(names[3 * len(USERS) :]) == {f"memories_{user}_pkey" for user in USERS}
    assert len(names) == 4 * len(USERS)


async def test_without_the_extension_stored_vectors_are_searched(bench: Workbench) -> None:
    await indexed(bench, rows=800)
    scans = "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'idx_memories_embedding'"
    before = await bench.value(scans)
    async with warming_of(bench) as running:
        found = await running.until_complete()
    assert found.extension != "installed"
    assert found.read_ahead is not None
    assert found.read_ahead.unit is Unit.SEARCHES
    assert found.read_ahead.done > 0
    async with asyncio.timeout(30):
        while await bench.value(scans) - before < found.read_ahead.done:  # noqa: ASYNC110  (counted when the session ends)
            await asyncio.sleep(0.02)


async def test_parts_of_a_partitioned_table_are_searched_together(partitioned_bench: Workbench) -> None:
    await fill_partitions(partitioned_bench)
    await partitioned_bench.backfill()
    await build_index(DsnText(partitioned_bench.database.dsn), "memories", INDEX)
    async with warming_of(partitioned_bench) as running:
        found = await running.until_complete()
    assert found.read_ahead is not None
    assert found.read_ahead.done > 0


async def test_searches_end_when_their_time_is_over(bench: Workbench) -> None:
    await indexed(bench, rows=800)
    warmer = Warmer(
        DsnText(bench.database.dsn), bench.plan, bench.ear, WorkerMetrics(), check_seconds=3600, search_seconds=-1
    )
    running = Warming(bench)
    task = asyncio.create_task(warmer.run(running.stop))
    found = await running.until_complete()
    running.stop.set()
    await task
    assert found.read_ahead is not None
    assert (found.read_ahead.done, found.read_ahead.chosen) == (1, 1)


async def test_a_function_that_does_not_belong_to_the_extension_is_never_called(bench: Workbench) -> None:
    """Any role that may create functions could have the worker run it."""
    await indexed(bench)
    await as_superuser(bench, STAND_IN)
    async with warming_of(bench) as running:
        found = await running.until_complete()
    assert found.read_ahead is not None
    assert found.read_ahead.unit is Unit.SEARCHES
    assert await read_by_stand_in(bench) == []


async def test_a_worker_that_may_not_read_the_table_searches_instead(bench: Workbench) -> None:
    """The extension demands the right to read the whole table, which `memory roles` does not give to workers."""
    await indexed(bench)
    refuses = "CREATE OR REPLACE FUNCTION public.pg_prewarm(regclass, mode text DEFAULT 'buffer', fork text DEFAULT "
    refuses += "'main', first_block int8 DEFAULT NULL, last_block int8 DEFAULT NULL) RETURNS int8 LANGUAGE plpgsql AS "
    refuses += "$$ BEGIN RAISE EXCEPTION 'permission denied' USING ERRCODE = '42501'; END $$"
    await as_superuser(bench, STAND_IN, IN_CATALOG, refuses)
    async with least_rights(bench) as roles, warming_of(replace(bench, database=roles.worker)) as running:
        found = await running.until_complete()
    assert found.read_ahead is not None
    assert found.read_ahead.unit is Unit.SEARCHES
    assert found.read_ahead.done > 0


async def test_it_reads_once_for_a_start_of_the_server_and_again_after_the_next(own_bench: Workbench) -> None:
    """A connection that was cut is no start; the new session tells what the former one had read."""
    await indexed(own_bench)
    await as_superuser(own_bench, STAND_IN, IN_CATALOG)
    async with warming_of(own_bench) as running:
        first = await running.until_complete()
        cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'memory-warming%'"
        await own_bench.execute(cut)
        assert (await running.until_complete()).read_ahead == first.read_ahead
        assert len(await read_by_stand_in(own_bench)) == 4
        await asyncio.to_thread(own_bench.database.server.restart)
        second = await running.until_complete()
        assert second.server_started_at > first.server_started_at
    assert len(await read_by_stand_in(own_bench)) == 8


async def test_a_refusal_is_no_end_of_the_worker_and_is_not_repeated(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the extension cannot read what is asked for, as where an index is dropped meanwhile."""
    await indexed(bench)
    fails = STAND_IN.replace("RETURN $5", "PERFORM nextval('public.tries') / 0; RETURN $5")
    await as_superuser(bench, "CREATE SEQUENCE public.tries; GRANT SELECT ON public.tries TO PUBLIC", fails, IN_CATALOG)
    logged: list[str] = []
    monkeypatch.setattr(warming._log, "warning", lambda event, **_: logged.append(event))
    checks = checks_of(monkeypatch)
    async with warming_of(bench, check_seconds=0.01) as running:
        await until(lambda: len(checks) >= 3)
        looks = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'memory-warming %'"
        assert await bench.value(looks) == 1, "the session is kept"
        assert running.share() == 0.0
    assert logged == ["not read ahead"]
    assert await bench.value("SELECT last_value FROM public.tries WHERE is_called") == 1, "no rollback takes one back"


async def test_it_is_ended_amid_the_reading_when_the_worker_is_stopped(bench: Workbench) -> None:
    await indexed(bench)
    await as_superuser(bench, STAND_IN, IN_CATALOG)
    made = Warming(bench)
    made.stop.set()
    warmer = Warmer(DsnText(bench.database.dsn), bench.plan, bench.ear, made.metrics)
    async with bench.database.connection() as connection:
        await warmer._check_server(connection, made.stop)
    assert len(await read_by_stand_in(bench)) == 1


async def test_memory_status_says_what_a_worker_has_read_ahead(bench: Workbench) -> None:
    async def shown() -> dict[str, object]:
        ended = await run_memory(["status", "--json"], bench.environment())
        assert ended.status == 0, ended.errors
        found: dict[str, object] = json.loads(ended.output)["warming"]
        return found

    await indexed(bench)
    await as_superuser(bench, STAND_IN, IN_CATALOG)
    assert (await shown())["read_ahead"] is None
    async with warming_of(bench) as running:
        found = await running.until_complete()
        said = await shown()
    assert found.read_ahead is not None
    assert said["read_ahead"] == {"done": found.read_ahead.done, "chosen": found.read_ahead.chosen, "unit": "MiB"}
    assert (said["complete"], said["extension"]) == (True, "installed")
