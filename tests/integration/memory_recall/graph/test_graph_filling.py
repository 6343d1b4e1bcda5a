"""The queue is dealt with by several workers, beside `memory sync`, and whether or not an embedder answers."""

import asyncio
import os
import sys
from collections.abc import Callable

import pytest

from memory_recall.graph import enable, filling, graph_state
from memory_recall.graph.concepts import concepts_of
from memory_recall.graph.filling import read_batch, write_batch
from memory_recall.indexing.companions import graph_filling
from memory_recall.indexing.companions.graph_filling import fill_graph
from memory_recall.indexing.sync import Wakeup
from memory_recall.postgres.connection import DsnText
from memory_recall.schema.migrate import MigrationRequest, migrate
from memory_recall.schema.table import describe
from tests.integration.memory_recall.graph.workbench import enabled, expected, fill, links
from tests.integration.memory_recall.least_rights import least_rights
from tests.integration.memory_recall.workbench import Workbench, until

UNREACHABLE = "http://127.0.0.1:9"  # the discard port, on which nothing listens


async def until_filled(bench: Workbench) -> None:
    async with bench.database.connection() as connection, asyncio.timeout(60):
        table = await describe(connection, "memories")
        while not (state := await graph_state(connection, table)).filled or state.pending:  # noqa: ASYNC110  (another process fills it)
            await asyncio.sleep(0.05)


async def test_a_filled_graph_has_the_concepts_of_every_text(bench: Workbench) -> None:
    """Those that `concepts_of` finds, and it is recorded that every memory has been read."""
    table = await enabled(bench, "Marit restarted nas-01.", "Kestrel Lane floods.", "!")
    await bench.execute("UPDATE memories SET tags = 'people, home lab', expanded_keywords = 'server' WHERE id = 1")
    async with bench.database.connection() as connection:
        await fill(connection, table)
        assert await links(connection) == await expected(connection)
        assert len((await links(connection))[1]) == len(
            concepts_of("Marit restarted nas-01.", "people, home lab", "server")
        )
        state = await graph_state(connection, table)
        assert (state.filled, state.pending, state.memories, state.differences) == (True, 0, 3, "")
        assert state.links == sum(map(len, (await links(connection)).values()))


async def test_the_oldest_pending_change_stays_the_same_while_no_worker_can_deal_with_it(bench: Workbench) -> None:
    """By it the operator tells a queue that is long from one that nobody works at."""
    table = await enabled(bench, "Marit restarted nas-01.", "Kestrel Lane floods.")
    async with bench.database.connection() as connection, bench.database.connection() as other:
        assert (await graph_state(connection, table)).oldest is None
        await bench.execute("UPDATE memories SET content = 'Marit called.' WHERE id = 1")
        await bench.execute("UPDATE memories SET content = 'Kestrel Lane is dry.' WHERE id = 2")
        first = (await graph_state(connection, table)).oldest
        assert first is not None
        async with other.transaction():
            await other.execute("SELECT FROM memories FOR UPDATE")
            assert await fill(connection, table) == 0
            assert (await graph_state(connection, table)).oldest == first
        async with other.transaction():
            await other.execute("SELECT FROM memories WHERE id = 2 FOR UPDATE")
            assert await fill(connection, table) == 1
            assert (await graph_state(connection, table)).oldest == first + 1
        assert await fill(connection, table) == 1
        assert (await graph_state(connection, table)).oldest is None


async def test_a_batch_never_reads_the_whole_table_of_links_even_before_its_first_analyze(bench: Workbench) -> None:
    """The first fill is over before anybody analyses the table, and each of its batches would take longer."""
    table = await enabled(bench)
    await bench.execute("ALTER TABLE memory_concepts SET (autovacuum_enabled = false)")
    await bench.insert(*[f"Marit restarted the server nas-{number}." for number in range(250)])
    async with bench.database.connection() as connection:
        assert await fill(connection, table) == 250
    await bench.execute("UPDATE memories SET content = content || ' again'")
    async with bench.database.connection() as connection, connection.transaction():
        await write_batch(connection, table, await read_batch(connection, table, 0))
        assert await connection.fetchval("SELECT relpages FROM pg_class WHERE relname = 'memory_concepts'") == 0
        scans = "SELECT seq_scan FROM pg_stat_xact_user_tables WHERE relname = 'memory_concepts'"
        assert await connection.fetchval(scans) == 0
        assert await links(connection) == await expected(connection)


async def test_a_batch_reads_no_more_characters_than_a_slow_worker_can_in_its_transaction(bench: Workbench) -> None:
    """Postgres ends the session of a worker that is idle in a transaction for ten seconds, and all it did is lost."""
    table = await enabled(bench)
    long = "Marit restarted the server of Kestrel Lane. " * 2200
    await bench.insert("short", *[f"{number} {long}" for number in range(12)])
    await bench.execute("UPDATE memories SET tags = content, expanded_keywords = content WHERE id = 2")
    async with bench.database.connection() as connection:
        read, after, batches = [], 0, 0
        while True:
            async with connection.transaction():
                batch = await read_batch(connection, table, after)
            if not batch.steps:
                break
            sizes = "SELECT sum(length(concat(content, tags, expanded_keywords))) FROM memories WHERE id = ANY($1)"
            assert await connection.fetchval(sizes, list(batch.concepts)) <= 500_000
            assert set(batch.concepts) == set(batch.steps.values())
            read, after, batches = [*read, *batch.steps], max(batch.steps), batches + 1
        assert read == sorted(set(read)), "no change is left out or read twice"
        assert len(read) == await connection.fetchval("SELECT count(*) FROM memory_graph_changes") > batches > 1
        assert await fill(connection, table) == len(read)
        assert await links(connection) == await expected(connection)
        state = await graph_state(connection, table)
        assert (state.filled, state.pending) == (True, 0)


async def test_a_memory_that_alone_has_more_characters_than_a_batch_is_read(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filling, "_CHARACTERS", 10)
    table = await enabled(bench)
    await bench.insert("Marit restarted nas-01.", "Kestrel Lane floods.", "!")
    async with bench.database.connection() as connection:
        assert await fill(connection, table) == 3
        assert await links(connection) == await expected(connection)


async def test_two_workers_share_the_queue_and_do_nothing_twice(bench: Workbench) -> None:
    """Neither waits for the other, and together they deal with as many changes as there were."""
    table = await enabled(bench)
    async with bench.database.connection() as connection:
        await connection.execute(
            "INSERT INTO memories (content) SELECT 'memory ' || n || ' of Marit' FROM generate_series(1, 2000) n"
        )
    async with bench.database.connection() as first, bench.database.connection() as second:
        shares = await asyncio.gather(fill(first, table), fill(second, table))
        assert sum(shares) == 2000
        assert min(shares) > 0
        assert await links(first) == await expected(first)


async def test_workers_never_wait_for_one_another_over_the_same_memories(bench: Workbench) -> None:
    """Steps of the same memories in another order meet neither a deadlock nor a lost link."""
    table = await enabled(bench)
    await bench.execute("INSERT INTO memories (content) SELECT 'memory ' || n FROM generate_series(1, 500) n")
    await bench.execute("INSERT INTO memory_graph_changes (memory_id) SELECT id FROM memories ORDER BY id DESC")
    async with bench.database.connection() as first, bench.database.connection() as second:
        await second.execute("SET lock_timeout = '2s'")
        async with first.transaction():  # it ends only when the second worker has filled what it can
            await write_batch(first, table, await read_batch(first, table, 0))
            await fill(second, table)
        await asyncio.gather(fill(first, table), fill(second, table))
        await fill(first, table)
        assert await links(first) == await expected(first)
        assert await first.fetchval("SELECT count(*) FROM memory_graph_changes") == 0


async def test_the_worker_is_woken_and_outlives_its_connection(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row gets its links by its notification alone, also after the worker's session was ended."""
    monkeypatch.setattr(graph_filling, "_POLL_SECONDS", 3600)
    waits: list[float] = []
    wait = Wakeup.wait

    async def waited(wakeup: Wakeup, seconds: float, stop: asyncio.Event) -> None:
        waits.append(seconds)
        await wait(wakeup, seconds, stop)

    monkeypatch.setattr(Wakeup, "wait", waited)
    await enabled(bench, "Marit restarted nas-01.")
    stop = asyncio.Event()
    worker = asyncio.create_task(fill_graph(DsnText(bench.database.dsn), bench.plan, progress=bench.ear, stop=stop))
    try:
        await until_filled(bench)
        await until(lambda: len(waits) == 2)  # the first one ends at once, since notifications may have been lost
        await bench.insert("Kestrel Lane floods.")
        await until_filled(bench)
        await bench.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'memory-graph'"
            " AND datname = current_database()"
        )
        await bench.insert("The boiler leaks.")
        await until_filled(bench)
    finally:
        stop.set()
        await worker
    async with bench.database.connection() as connection:
        assert set(await links(connection)) == {1, 2, 3}
    assert set(waits) == {3600}


@pytest.mark.parametrize("role", ["owner", "worker"])
async def test_memory_sync_fills_the_graph_while_the_embedder_is_away(bench: Workbench, role: str) -> None:
    """Also in the role that `memory roles` describes, whose rights come with the graph."""
    async with least_rights(bench) as roles:
        await enabled(bench, "Marit restarted nas-01.")
        dsn = bench.database.dsn if role == "owner" else roles.worker.dsn
        environment = bench.environment(MEMORY_EMBEDDER_URL=UNREACHABLE, MEMORY_DATABASE_URL=dsn)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "memory_recall", "sync",
            env={**os.environ, **environment}, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            await bench.insert("Kestrel Lane floods.")
            await until_filled(bench)
        finally:
            process.kill()
            _, errors = await process.communicate()
        assert b"InsufficientPrivilege" not in errors
        async with bench.database.connection() as connection:
            assert set(await links(connection)) == {1, 2}
        assert await bench.embedded() == 0


async def test_a_new_key_of_the_text_hash_empties_the_graph_until_it_is_enabled_again(
    bench: Workbench, request_for: Callable[..., MigrationRequest]
) -> None:
    """The numbers of concepts come from the key, so links of the old one would join nothing or the wrong memories."""
    table = await enabled(bench, "Marit restarted nas-01.", "Marit called.")
    async with bench.database.connection() as connection:
        before = await links(connection)
        await connection.execute("DROP FUNCTION memory_index_text_hash")
        await migrate(DsnText(bench.database.dsn), request_for())
        assert await links(connection) == {}
        assert (await graph_state(connection, table)).differences == "row of memory_graph"
        assert await fill(connection, table) == 0
        assert await enable(connection, table)
        await fill(connection, table)
        assert await links(connection) == await expected(connection)
        assert not set.union(*before.values()) & set.union(*(await links(connection)).values())


async def test_another_extraction_is_filled_anew(bench: Workbench) -> None:
    """A worker leaves a graph of another extraction alone, and enabling queues every memory."""
    table = await enabled(bench, "Marit restarted nas-01.")
    await bench.execute("UPDATE memory_graph SET extraction = 0")
    await bench.insert("Kestrel Lane floods.")
    async with bench.database.connection() as connection:
        assert await fill(connection, table) == 0
        state = await graph_state(connection, table)
        assert (state.filled, state.differences) == (False, "extraction 0, not 1")
        assert await enable(connection, table)
        assert await fill(connection, table) == 2
        assert (await graph_state(connection, table)).filled
