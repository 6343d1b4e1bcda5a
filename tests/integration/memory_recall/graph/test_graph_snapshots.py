"""No link of a private memory stays in the graph, whoever wrote it: an older snapshot, replication, a paused graph."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import asyncpg
import pytest

from memory_recall.graph import enable, pause
from memory_recall.graph.definition import differences
from memory_recall.postgres.connection import DsnText
from memory_recall.schema.migrate import MigrationRequest, migrate
from memory_recall.schema.table import describe
from tests.integration.conftest import Database
from tests.integration.memory_recall.graph.workbench import enabled, links
from tests.integration.memory_recall.least_rights import least_rights
from tests.integration.memory_recall.logical_replication import Replication, replicating
from tests.integration.memory_recall.test_recorded_hashes import sweeping, until_gone
from tests.integration.memory_recall.workbench import Workbench

_TEXTS = ("Marit restarted nas-01.", "Marit called Kestrel Lane.")
_PRIVATE = ["is_sensitive = true", "deleted_at = now()"]
_WITHHELD = (
    "SELECT count(*) FROM memory_concepts c JOIN memories m ON m.id = c.memory_id"
    " WHERE m.is_sensitive OR m.deleted_at IS NOT NULL"
)
_LEVELS = ["REPEATABLE READ", "SERIALIZABLE"]


async def _hide_by_an_older_snapshot(bench: Workbench, level: str, private: str) -> None:
    async with bench.database.connection() as editor:
        await editor.execute(f"BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM memories")
        await bench.execute("INSERT INTO memory_concepts VALUES (1, 42)")
        await editor.execute(f"UPDATE memories SET {private} WHERE id = 1")
        await editor.execute("COMMIT")
    assert await bench.value(_WITHHELD) == 1, "Postgres lets such a transaction see the link, so nothing is tested"


@pytest.mark.finding("security S9")
@pytest.mark.promise("graph-without-sensitive-rows")
@pytest.mark.parametrize("level", _LEVELS)
@pytest.mark.parametrize("private", _PRIVATE)
async def test_the_sweep_removes_a_link_that_an_older_snapshot_could_not_see(
    bench: Workbench, level: str, private: str
) -> None:
    """As the worker's role, and without the queue."""
    await enabled(bench, *_TEXTS)
    await _hide_by_an_older_snapshot(bench, level, private)
    await bench.execute("TRUNCATE memory_graph_changes")
    async with least_rights(bench) as roles, sweeping(bench, roles.worker):
        await until_gone(bench, _WITHHELD)
    assert await bench.value("SELECT count(*) FROM memory_concepts WHERE memory_id = 2") > 0


@pytest.mark.finding("security S9")
async def test_the_sweep_reaches_the_last_of_many_private_memories(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memory_recall.graph.sweeping._PAGE", 2)
    await enabled(bench, *(f"Marit restarted nas-{number}." for number in range(7)))
    await bench.execute("ALTER TABLE memories DISABLE TRIGGER zz_memory_graph_update")
    await bench.execute("UPDATE memories SET is_sensitive = true")
    await bench.execute("ALTER TABLE memories ENABLE ALWAYS TRIGGER zz_memory_graph_update")
    assert await bench.value(_WITHHELD) > 0
    async with sweeping(bench):
        await until_gone(bench, _WITHHELD)


@pytest.mark.finding("security S9")
@pytest.mark.parametrize("change", ["UPDATE memories SET is_sensitive = true", "DELETE FROM memories"])
async def test_pausing_the_graph_drops_the_links_of_memories_that_are_still_in_the_queue(
    bench: Workbench, change: str
) -> None:
    """Afterwards no worker would find a link of a memory that is gone."""
    table = await enabled(bench, *_TEXTS)
    async with bench.database.connection() as editor:
        await editor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM memories")
        await bench.execute("INSERT INTO memory_concepts VALUES (1, 42)")
        await editor.execute(f"{change} WHERE id = 1; COMMIT")
        assert 1 in await links(editor)
        await pause(editor, table)
        assert set(await links(editor)) == {2}


@pytest.fixture
async def replicated(
    bench: Workbench, database: Database, request_for: Callable[..., MigrationRequest]
) -> AsyncIterator[Replication]:
    """Links are replicated from the bench's database to another, which has the same memories."""
    await enabled(bench, *_TEXTS)
    await migrate(DsnText(database.dsn), request_for())
    async with database.connection() as connection:
        await connection.executemany("INSERT INTO memories (content) VALUES ($1)", [(text,) for text in _TEXTS])
        await enable(connection, await describe(connection, "memories"))
    async with replicating(bench.database, database, "memory_concepts") as replication:
        yield replication


@pytest.mark.finding("security S9")
@pytest.mark.promise("graph-without-sensitive-rows")
@pytest.mark.parametrize("private", _PRIVATE)
async def test_replication_stores_no_link_of_a_private_memory_and_goes_on(
    replicated: Replication, private: str
) -> None:
    await replicated.subscriber.execute(f"UPDATE memories SET {private} WHERE id = 1")
    await replicated.publisher.execute("INSERT INTO memories (id, content) VALUES (99, 'not there')")
    await replicated.publisher.execute("INSERT INTO memory_concepts VALUES (1, 42), (2, 43), (99, 44)")
    await replicated.catch_up()
    assert await links(replicated.subscriber) == {2: {43}}
    await replicated.publisher.execute("UPDATE memory_concepts SET concept = 45 WHERE memory_id = 2 AND concept = 43")
    await replicated.catch_up()
    assert await links(replicated.subscriber) == {2: {45}}


@pytest.mark.finding("security S9")
async def test_a_rule_that_does_not_fire_for_replication_is_noticed(bench: Workbench) -> None:
    table = await enabled(bench, *_TEXTS)
    await bench.execute("ALTER TABLE memory_concepts ENABLE TRIGGER zz_memory_graph_added")
    async with bench.database.connection() as connection:
        assert await differences(connection, table) == "trigger zz_memory_graph_added"


@pytest.mark.finding("security S9")
async def test_a_link_is_refused_where_its_memory_becomes_private_meanwhile(bench: Workbench) -> None:
    """The insert waits for the open change, at any level of isolation."""
    await enabled(bench, *_TEXTS)
    for level in ("READ COMMITTED", *_LEVELS):
        async with bench.database.connection() as editor, bench.database.connection() as writer:
            await editor.execute("UPDATE memories SET is_sensitive = false; BEGIN")
            await editor.execute("UPDATE memories SET is_sensitive = true WHERE id = 1")
            await writer.execute(f"BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM memories")
            inserting: asyncio.Task[Any] = asyncio.create_task(
                writer.execute("INSERT INTO memory_concepts VALUES (1, 42)")
            )
            await editor.execute("COMMIT")
            with pytest.raises((asyncpg.CheckViolationError, asyncpg.SerializationError)):
                await inserting
