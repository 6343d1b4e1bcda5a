"""A table whose id is not unique by itself is refused by name, before the migration and after it."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest

from memory_recall.errors import SchemaUnsupported
from memory_recall.postgres.connection import DsnText
from memory_recall.schema.migrate import MigrationRequest, migrate
from memory_recall.schema.requirements.faults import Fault
from memory_recall.status import DatabaseFacts, inspect
from tests.integration.conftest import Database
from tests.integration.memory_recall.test_sync_worker import running as syncing
from tests.integration.memory_recall.workbench import Workbench

Requests = Callable[..., MigrationRequest]


_TABLE = (
    "CREATE TABLE memories (id bigint {key}, user_id text NOT NULL DEFAULT 'ana', content text,"
    " is_sensitive boolean NOT NULL DEFAULT false, deleted_at timestamptz,"
    " search_vector tsvector GENERATED ALWAYS AS (to_tsvector('english', content)) STORED{more})"
)
_STATEMENT = 'CREATE UNIQUE INDEX CONCURRENTLY ON "public"."memories" (id)'
_INSUFFICIENT = {
    "unique only with the user": ("NOT NULL", ", PRIMARY KEY (user_id, id)", ""),
    "unique only with the user, id first": ("NOT NULL", ", PRIMARY KEY (id, user_id)", ""),
    "no index at all": ("", "", ""),
    "an index that is not unique": ("", "", "CREATE INDEX ON memories (id)"),
    "deferrable": ("", ", PRIMARY KEY (id) DEFERRABLE INITIALLY DEFERRED", ""),
    "partial": ("", "", "CREATE UNIQUE INDEX few ON memories (id) WHERE deleted_at IS NULL"),
    "an expression": ("", "", "CREATE UNIQUE INDEX ON memories ((id + 0))"),
}


async def _facts(database: Database) -> DatabaseFacts:
    async with database.connection() as connection:
        return await inspect(connection, "memories")


@pytest.mark.finding("database F0")
@pytest.mark.finding("database F17")
@pytest.mark.promise("recall-within-its-conditions")
@pytest.mark.parametrize("kind", _INSUFFICIENT)
async def test_a_table_whose_ids_are_not_unique_by_themselves_is_refused_with_the_statement(
    database: Database, request_for: Requests, kind: str
) -> None:
    key, more, index = _INSUFFICIENT[kind]
    async with database.connection() as connection:
        await connection.execute(_TABLE.format(key=key, more=more))
        if index:
            await connection.execute(index)
    with pytest.raises(SchemaUnsupported) as refused:
        await migrate(DsnText(database.dsn), request_for())
    assert "unique by itself" in refused.value.message
    assert _STATEMENT in refused.value.remedy
    facts = await _facts(database)
    assert facts.faults == (Fault(refused.value.message, refused.value.remedy),)
    assert facts.embedding_dimensions is None, "something was changed before"
    async with database.connection() as connection:
        await connection.execute(_STATEMENT)
    await migrate(DsnText(database.dsn), request_for())
    assert (await _facts(database)).schema_current


@pytest.mark.finding("database F0")
@pytest.mark.finding("database F17")
async def test_an_index_whose_building_failed_is_named_and_dropped(database: Database, request_for: Requests) -> None:
    """Where ids repeat, the statement that the message names leaves an invalid index behind."""
    async with database.connection() as connection:
        await connection.execute(_TABLE.format(key="", more=""))
        await connection.execute("INSERT INTO memories (id, content) VALUES (1, 'a'), (1, 'b')")
        with pytest.raises(Exception, match="could not create unique index"):
            await connection.execute(_STATEMENT)
    with pytest.raises(SchemaUnsupported) as refused:
        await migrate(DsnText(database.dsn), request_for())
    assert "Its index public.memories_id_idx is invalid." in refused.value.message
    assert "give each an id of its own" in refused.value.remedy
    async with database.connection() as connection:
        await connection.execute("UPDATE memories SET id = 2 WHERE content = 'b'")
        for statement in refused.value.remedy.removeprefix("Run ").split(";")[:2]:
            await connection.execute(statement)
    await migrate(DsnText(database.dsn), request_for())


@pytest.mark.finding("database F0")
@pytest.mark.finding("database F17")
async def test_an_index_that_covers_further_columns_keeps_ids_unique(database: Database, request_for: Requests) -> None:
    async with database.connection() as connection:
        await connection.execute(_TABLE.format(key="", more=""))
        await connection.execute("CREATE UNIQUE INDEX ON memories (id) INCLUDE (user_id)")
    assert (await migrate(DsnText(database.dsn), request_for())).revision is not None


@pytest.mark.finding("database F0")
@pytest.mark.finding("database F17")
async def test_no_worker_begins_on_a_table_that_has_lost_its_key(bench: Workbench) -> None:
    await bench.insert("one")
    await bench.execute("ALTER TABLE memories DROP CONSTRAINT memories_pkey")
    with pytest.raises(SchemaUnsupported, match="unique by itself"):
        await bench.backfill()
    assert await bench.embedded() == 0
    facts = await _facts(bench.database)
    assert (facts.schema_current, len(facts.faults)) == (False, 1)


@pytest.mark.finding("database F0")
@pytest.mark.finding("database F17")
@pytest.mark.promise("recall-within-its-conditions")
async def test_a_running_backfill_stores_nothing_more_once_the_key_is_gone(bench: Workbench) -> None:
    await bench.insert("one", "two")
    bench.embedder.hold_after(0)
    running = asyncio.create_task(bench.backfill())
    await bench.embedder.held.wait()
    await bench.execute("ALTER TABLE memories DROP CONSTRAINT memories_pkey, ADD PRIMARY KEY (user_id, id)")
    bench.embedder.release()
    with pytest.raises(SchemaUnsupported, match="unique by itself"):
        await running
    assert await bench.embedded() == 0


@pytest.mark.finding("database F0")
@pytest.mark.finding("database F17")
async def test_a_running_sync_worker_ends_with_the_statement_once_the_key_is_gone(bench: Workbench) -> None:
    with suppress(SchemaUnsupported):  # of which the last assertion but one speaks
        async with syncing(bench, poll_seconds=0.05) as worker:
            await bench.insert("before")
            await bench.until_embedded(1)
            await bench.execute("ALTER TABLE memories DROP CONSTRAINT memories_pkey")
            await bench.insert("after")
            await asyncio.wait({worker}, timeout=60)
    assert "unique by itself" in str(worker.exception())
    assert await bench.embedded() == 1
