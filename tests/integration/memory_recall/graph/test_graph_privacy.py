"""Nothing of a sensitive, deleted or gone memory is in the concept graph, whatever anybody does to the table."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from memory_recall.graph import graph_state
from memory_recall.graph.filling import fill_pass, read_batch, write_batch
from tests.integration.memory_recall.graph.workbench import enabled, expected, fill, links, wrong_links
from tests.integration.memory_recall.workbench import Workbench

TEXTS = ("Marit restarted nas-01.", "Marit called Kestrel Lane.")
PRIVATE = [
    "UPDATE memories SET is_sensitive = true WHERE id = 1",
    "UPDATE memories SET deleted_at = now() WHERE id = 1",
    "DELETE FROM memories WHERE id = 1",
    "TRUNCATE memories",
]
EDITS = [
    "UPDATE memories SET content = 'The boiler leaks.' WHERE id = 1",
    "UPDATE memories SET tags = 'heating' WHERE id = 1",
    "UPDATE memories SET expanded_keywords = 'plumber' WHERE id = 1",
    "UPDATE memories SET user_id = 'tobin' WHERE id = 1",
    "UPDATE memories SET id = 7 WHERE id = 1",
    "INSERT INTO memories (id, content) VALUES (1, 'New.') ON CONFLICT (id) DO UPDATE SET content = excluded.content",
]
HIDE = PRIVATE[0]


@pytest.mark.parametrize("change", [*PRIVATE, *EDITS])
async def test_links_go_in_the_transaction_that_makes_them_wrong(bench: Workbench, change: str) -> None:
    """They are gone at once inside it, are back if it is rolled back, and come again from the present text only."""
    table = await enabled(bench, *TEXTS)
    async with bench.database.connection() as connection:
        before = await links(connection)
        assert set(before) == {1, 2}
        await connection.execute(f"BEGIN; {change}")
        assert 1 not in await links(connection)
        await connection.execute("ROLLBACK")
        assert await links(connection) == before
        await connection.execute(change)
        assert 1 not in await links(connection)
        await fill(connection, table)
        assert await links(connection) == await expected(connection)
        assert await connection.fetchval("SELECT count(*) FROM memory_graph_changes") == 0


async def test_writing_a_vector_back_queues_nothing(bench: Workbench) -> None:
    """It is the most frequent update, and it changes no concept."""
    await enabled(bench, *TEXTS)
    await bench.backfill()
    assert await bench.embedded() == len(TEXTS)
    await bench.execute("UPDATE memories SET importance = 0.9")
    assert await bench.value("SELECT count(*) FROM memory_graph_changes") == 0


@pytest.mark.parametrize("change", [*PRIVATE[:3], *EDITS[:4]])
async def test_a_worker_that_read_before_a_change_writes_nothing_after_it(bench: Workbench, change: str) -> None:
    """The change's own step, and the worker's, stay in the queue, from which the present text is read."""
    table = await enabled(bench)
    await bench.insert(*TEXTS)
    async with bench.database.connection() as worker:
        async with worker.transaction():
            read = await read_batch(worker, table, 0)
            assert set(read.concepts) == {1, 2}
            await bench.execute(change)
            await write_batch(worker, table, read)
        assert 1 not in await links(worker)
        assert await wrong_links(worker) == {}
        await fill(worker, table)
        assert await links(worker) == await expected(worker)


async def test_a_worker_waits_for_no_edit_and_leaves_the_row_for_later(bench: Workbench) -> None:
    """An open transaction that makes a row sensitive stops neither the worker nor the links of other rows."""
    table = await enabled(bench)
    await bench.insert(*TEXTS)
    async with bench.database.connection() as editor, bench.database.connection() as worker:
        await worker.execute("SET statement_timeout = '20s'")
        await editor.execute(f"BEGIN; {HIDE}")
        done = await fill_pass(worker, table, asyncio.Event())
        assert (done.handled, done.left, done.more) == (1, 1, False)
        assert set(await links(worker)) == {2}
        await editor.execute("COMMIT")
        assert await fill(worker, table) == 2
        assert set(await links(worker)) == {2}


async def _insert(connection: Any) -> None:
    await connection.execute("INSERT INTO memory_concepts VALUES (1, 7)")


async def _copy(connection: Any) -> None:
    await connection.copy_records_to_table("memory_concepts", records=[(2, 8), (1, 7)])


async def _move(connection: Any) -> None:
    await connection.execute("UPDATE memory_concepts SET memory_id = 1 WHERE memory_id = 2")


@pytest.mark.promise("graph-without-sensitive-rows")
@pytest.mark.parametrize("write", [_insert, _copy, _move])
@pytest.mark.parametrize("change", PRIVATE[:3])
async def test_nobody_can_insert_links_of_a_private_row(
    bench: Workbench, change: str, write: Callable[[Any], Awaitable[None]]
) -> None:
    """Neither the owner of the tables by INSERT or COPY, nor by moving a link of another row."""
    await enabled(bench, *TEXTS)
    await bench.execute(change)
    async with bench.database.connection() as connection:
        with pytest.raises(asyncpg.CheckViolationError):
            await write(connection)
        assert set(await links(connection)) == {2}


async def test_links_are_not_inserted_beside_an_open_change(bench: Workbench) -> None:
    """An insert waits until it is known whether the row becomes sensitive, and is refused then."""
    await enabled(bench, *TEXTS)
    async with bench.database.connection() as editor, bench.database.connection() as writer:
        await editor.execute(f"BEGIN; {HIDE}")
        await writer.execute("SET lock_timeout = '50ms'")
        with pytest.raises(asyncpg.LockNotAvailableError):
            await _insert(writer)
        await editor.execute("COMMIT")
        with pytest.raises(asyncpg.CheckViolationError):
            await _insert(writer)


@pytest.mark.parametrize("change", PRIVATE[:3])
async def test_links_that_an_older_snapshot_did_not_see_are_removed_by_the_next_pass(
    bench: Workbench, change: str
) -> None:
    """A REPEATABLE READ transaction cannot delete them, but its change is queued."""
    table = await enabled(bench)
    await bench.insert(*TEXTS)
    async with bench.database.connection() as editor, bench.database.connection() as worker:
        await editor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await editor.fetchval("SELECT count(*) FROM memories")
        await fill(worker, table)
        await editor.execute(change)
        await editor.execute("COMMIT")
        assert await worker.fetchval("SELECT array_agg(memory_id) FROM memory_graph_changes") == [1]
        await fill(worker, table)
        assert set(await links(worker)) == {2}


async def test_rows_that_replication_applies_lose_their_links_too(bench: Workbench) -> None:
    """The triggers fire for every session."""
    table = await enabled(bench, *TEXTS)
    admin = await asyncpg.connect(bench.database.superuser_dsn)
    await admin.execute("SET session_replication_role = replica")
    await admin.execute(HIDE)
    await admin.execute("DELETE FROM memories WHERE id = 2")
    assert await links(admin) == {}
    await fill(admin, table)
    assert await links(admin) == {}
    await admin.close()


async def test_nothing_is_filled_while_a_rule_is_missing(bench: Workbench) -> None:
    """The rule is named, and a row whose change nobody noticed gets no link."""
    table = await enabled(bench)
    await bench.insert(*TEXTS)
    await bench.execute("ALTER TABLE memories DISABLE TRIGGER zz_memory_graph_update")
    async with bench.database.connection() as connection:
        assert await fill(connection, table) == 0
        state = await graph_state(connection, table)
        assert (state.links, state.filled, state.differences) == (0, False, "trigger zz_memory_graph_update")


@pytest.mark.promise("graph-without-sensitive-rows")
async def test_the_graph_holds_numbers_and_times_only(bench: Workbench) -> None:
    """No column of its tables could hold a name or a text."""
    await enabled(bench, *TEXTS)
    types = await bench.value(
        "SELECT array_agg(DISTINCT data_type::text) FROM information_schema.columns"
        " WHERE table_name IN ('memory_graph', 'memory_concepts', 'memory_graph_changes')"
    )
    assert set(types) == {"bigint", "integer", "timestamp with time zone"}


async def test_memories_of_two_owners_share_no_concept(bench: Workbench) -> None:
    """Also where their texts are the same, and where the end of an owner is like the beginning of a name."""
    table = await enabled(bench)
    await bench.execute(
        "INSERT INTO memories (content, user_id) VALUES ('Marit', 'ana'), ('Marit', 'tobin'), ('Marit', 'ana marit')"
    )
    async with bench.database.connection() as connection:
        await fill(connection, table)
        found = await links(connection)
        assert len(set.union(*found.values())) == sum(map(len, found.values())) == 3
