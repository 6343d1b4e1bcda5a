"""The database's rules are checked by definition: what differs is named, stops vectors, and is restored."""

import asyncio
import hashlib
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from memory_recall.errors import SchemaBehind, SchemaUnsupported
from memory_recall.graph import enable
from memory_recall.graph.definition import differences as graph_differences
from memory_recall.indexing.leases_sql import backfill_runs, lease_share, lease_sync
from memory_recall.indexing.queue_sql import WorkerShare
from memory_recall.postgres.connection import DsnText
from memory_recall.schema.migrate import MigrationRequest, migrate, remove
from memory_recall.schema.requirements.faults import messages
from memory_recall.schema.revisions import require_schema
from memory_recall.schema.table import describe
from memory_recall.status import inspect
from tests.integration.conftest import Database
from tests.integration.memory_recall.workbench import Workbench, until

Requests = Callable[..., MigrationRequest]
VECTOR = "array_fill(0.5::real, ARRAY[8])::halfvec"
RENAMED = (
    "ALTER TABLE memories RENAME is_sensitive TO was_sensitive",
    "ALTER TABLE memories ADD is_sensitive {type}",
    "ALTER TABLE memories ALTER was_sensitive DROP NOT NULL",
)
GUARD_THAT_DOES_NOTHING = (
    "CREATE OR REPLACE FUNCTION memory_index_guard() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'"
)
HASH_WITHOUT_KEY = (
    "CREATE OR REPLACE FUNCTION memory_index_text_hash(content text) RETURNS text "
    "LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS 'SELECT pg_catalog.md5(content)'"
)
TRIGGER_WITHOUT_EFFECT = (
    "CREATE OR REPLACE TRIGGER zz_memory_index_update BEFORE UPDATE ON memories FOR EACH ROW WHEN (false) "
    "EXECUTE FUNCTION memory_index_guard()"
)
DAMAGES = {
    "H2: a renamed is_sensitive": (RENAMED[0], RENAMED[1].format(type="boolean NOT NULL DEFAULT false"), RENAMED[2]),
    "H2: a re-typed is_sensitive": (RENAMED[0], RENAMED[1].format(type="integer NOT NULL DEFAULT 0"), RENAMED[2]),
    "H2: a replaced guard": (GUARD_THAT_DOES_NOTHING,),
    "L1: a hash without a key": (HASH_WITHOUT_KEY,),
    "L3: a restore that enabled all triggers": (
        "ALTER TABLE memories DISABLE TRIGGER ALL",
        "ALTER TABLE memories ENABLE TRIGGER ALL",
    ),
    "a constraint of the same name that allows everything": (
        "ALTER TABLE memories DROP CONSTRAINT memory_index_no_private_embedding",
        "ALTER TABLE memories ADD CONSTRAINT memory_index_no_private_embedding CHECK (true)",
    ),
    "a trigger function that anybody may put on another table": (
        "GRANT EXECUTE ON FUNCTION memory_index_forget() TO PUBLIC",
    ),
    "a function for which a writer's temporary types come before Postgres's own": (
        "ALTER FUNCTION memory_index_guard() SET search_path = pg_catalog",
    ),
    "a trigger that fires for nothing": (
        TRIGGER_WITHOUT_EFFECT,
        "ALTER TABLE memories ENABLE ALWAYS TRIGGER zz_memory_index_update",
    ),
    "a table made anew under the old name": (
        "ALTER TABLE memories RENAME TO former",
        "CREATE TABLE memories (LIKE former INCLUDING ALL)",
    ),
}


@pytest.mark.promise("no-vector-under-changed-rules")
@pytest.mark.finding("H2", case="H2: a renamed is_sensitive")
@pytest.mark.finding("H2", case="H2: a replaced guard")
@pytest.mark.finding("L3", case="L3: a restore that enabled all triggers")
@pytest.mark.parametrize("damage", DAMAGES)
async def test_rules_that_differ_are_noticed_stop_vectors_and_are_restored(
    bench: Workbench, request_for: Requests, damage: str
) -> None:
    """Workers, status and operator notice it, no vector is written, and the next migration puts the rules back."""
    await bench.insert("one")
    for statement in DAMAGES[damage]:
        await bench.execute(statement)
    with pytest.raises(SchemaBehind, match="not what they must be"):
        await bench.backfill()
    assert await bench.embedded() == 0
    async with bench.database.connection() as connection:
        facts = await inspect(connection, "memories")
        assert not facts.schema_current
        assert facts.schema_differences
        await migrate(DsnText(bench.database.dsn), request_for())
        assert (await inspect(connection, "memories")).schema_current
        sensitive = "true" if facts.schema_differences and "re-typed" not in damage else "1"
        await connection.execute(f"INSERT INTO memories (content, embedding) VALUES ('two', {VECTOR})")
        await connection.execute(f"UPDATE memories SET is_sensitive = {sensitive} WHERE content = 'two'")
    assert await bench.embedded() == 0
    await bench.backfill()
    assert await bench.embedded() == await bench.value("SELECT count(*) FROM memories WHERE content = 'one'")


async def test_where_postgres_is_to_quote_every_name_no_rule_differs_and_none_is_replaced(
    bench: Workbench, request_for: Requests
) -> None:
    """A role or a database may have this setting, with which Postgres writes every definition in another way."""
    await bench.execute(f"ALTER DATABASE {bench.database.name} SET quote_all_identifiers = on")
    await bench.insert("one")
    await bench.backfill()
    assert await bench.embedded() == 1
    written = "SELECT array_agg(xmin::text ORDER BY oid) FROM pg_trigger WHERE tgrelid = 'memories'::regclass"
    async with bench.database.connection() as connection:
        table = await describe(connection, "memories")
        await enable(connection, table)
        triggers = await connection.fetchval(written)
        await migrate(DsnText(bench.database.dsn), request_for())
        assert await connection.fetchval(written) == triggers
        assert (await inspect(connection, "memories")).schema_current
        assert await graph_differences(connection, table) == ""
        assert await connection.fetchval("SHOW quote_all_identifiers") == "on", "the session keeps its setting"


@pytest.mark.finding("H2")
async def test_vectors_of_rows_that_turned_sensitive_without_rules_are_cleared(
    bench: Workbench, request_for: Requests
) -> None:
    """H2: under a renamed column a row keeps its vector when it turns sensitive; restoring the rules takes it away."""
    await bench.insert("one", "two")
    await bench.backfill()
    for statement in DAMAGES["H2: a renamed is_sensitive"]:
        await bench.execute(statement)
    await bench.execute("UPDATE memories SET is_sensitive = true WHERE content = 'one'")
    assert await bench.embedded() == 2, "the old rules look at the old column"
    await migrate(DsnText(bench.database.dsn), request_for())
    assert await bench.embedded() == 1


async def _second_table(database: Database) -> None:
    async with database.connection() as connection:
        await connection.execute(
            "CREATE TABLE notes (id serial PRIMARY KEY, content text NOT NULL, is_sensitive integer NOT NULL DEFAULT 0,"
            " deleted_at timestamptz, embedding halfvec(8))"
        )


@pytest.mark.finding("H1")
async def test_a_second_table_of_the_schema_is_not_taken_for_migrated(bench: Workbench) -> None:
    """H1: the first table's revision says nothing of another table, which has no rules."""
    await _second_table(bench.database)
    async with bench.database.connection() as connection:
        facts = await inspect(connection, "notes")
        assert (facts.schema_revision, facts.schema_current) == (None, False)
        with pytest.raises(SchemaBehind, match="notes is at revision none"):
            await require_schema(connection, "notes")
    with pytest.raises(SchemaBehind):
        await bench.backfill(replace(bench.plan, table="notes"))


@pytest.mark.finding("H3")
async def test_two_tables_of_one_schema_are_indexed_and_neither_touches_the_other(
    bench: Workbench, request_for: Requests
) -> None:
    """H1, H3: with is_sensitive of two types; removing one index leaves the other, and the user's own column, alone."""
    source, notes = DsnText(bench.database.dsn), request_for(table="notes", model="another")
    await _second_table(bench.database)
    await migrate(source, notes)
    await bench.insert("a memory")
    await bench.execute(f"INSERT INTO notes (content, is_sensitive, embedding) VALUES ('a note', 1, {VECTOR})")
    assert await bench.value("SELECT count(embedding) FROM notes") == 0
    await bench.execute(f"UPDATE notes SET is_sensitive = 0; UPDATE notes SET embedding = {VECTOR}")
    await bench.backfill()
    async with bench.database.connection() as connection:
        for table, model in (("memories", "tiny"), ("notes", "another")):
            facts = await inspect(connection, table)
            assert (facts.schema_current, facts.active_name, facts.rows.embedded) == (True, model, 1)
        await remove(source, notes)
        assert (await inspect(connection, "memories")).schema_current
        assert await connection.fetchval("SELECT count(embedding) FROM notes") == 1, "the column was the user's own"
        left = "SELECT count(*) FROM pg_class WHERE relname LIKE '%__notes' OR relname LIKE 'idx_notes_embedding%'"
        assert await connection.fetchval(left) == 0
        await migrate(source, notes_again := replace(notes, existing_vectors="keep"))
        await remove(source, request_for())
        assert (await inspect(connection, "notes")).schema_current
        await connection.execute("UPDATE notes SET content = 'edited'")
        assert await connection.fetchval("SELECT count(embedding) FROM notes") == 0
        await migrate(source, request_for())
        await migrate(source, notes_again)
        for table in ("memories", "notes"):
            assert (await inspect(connection, table)).schema_current


async def tried_in_vain(connection: Any, lease: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Wait until the lease is tried for a second time."""
    tries = list[object]()
    with connection.query_logger(tries.append):
        waiting = asyncio.create_task(lease())
        await until(lambda: len(tries) == 2 or waiting.done())
    assert not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_the_workers_of_two_tables_do_not_wait_for_each_other(bench: Workbench, request_for: Requests) -> None:
    """H1: a lease keeps a second worker off the same table and lets one of another table begin."""
    await _second_table(bench.database)
    await migrate(DsnText(bench.database.dsn), request_for(table="notes", model="another"))
    async with bench.database.connection() as first, bench.database.connection() as second:
        memories, notes = await describe(first, "memories"), await describe(second, "notes")
        for lease in (lease_sync, partial(lease_share, share=WorkerShare())):
            await lease(first, table=memories, listener=bench.ear)
            async with asyncio.timeout(30):
                await lease(second, table=notes, listener=bench.ear)
            await tried_in_vain(second, partial(lease, second, table=memories, listener=bench.ear))
        assert await backfill_runs(second, memories)
        await first.execute("SELECT pg_advisory_unlock_all()")
        assert not await backfill_runs(second, memories)
        assert await backfill_runs(first, notes)


@pytest.mark.finding("L4")
async def test_a_table_with_children_is_refused_by_name(bench: Workbench, request_for: Requests) -> None:
    """L4: triggers do not reach the rows of a child made with INHERITS."""
    await bench.execute("CREATE TABLE child () INHERITS (memories)")
    await bench.execute("INSERT INTO child (content) VALUES ('of the child')")
    with pytest.raises(SchemaUnsupported, match='inherit from "public"'):
        await bench.backfill()
    with pytest.raises(SchemaUnsupported, match='inherit from "public"'):
        await migrate(DsnText(bench.database.dsn), request_for())
    async with bench.database.connection() as connection:
        facts = await inspect(connection, "memories")
    assert (facts.schema_current, "inherit" in messages(facts.faults)) == (False, True)
    assert await bench.embedded() == 0


@pytest.mark.finding("L5")
async def test_a_partitioned_table_without_index_over_ids_is_refused_by_name_before_any_statement(
    database: Database, request_for: Requests
) -> None:
    """L5: pages of the queue and memories by id would read every partition whole."""
    async with database.connection() as connection:
        await connection.execute(
            "CREATE TABLE memories (id int, content text, is_sensitive boolean, deleted_at timestamptz) "
            "PARTITION BY RANGE (id)"
        )
        with pytest.raises(SchemaUnsupported, match='"memories" is partitioned and has no index that begins with id'):
            await migrate(DsnText(database.dsn), request_for())
        assert await connection.fetchval("SELECT count(*) FROM pg_class WHERE relname LIKE 'memory%'") == 0
        assert await connection.fetchval("SELECT count(*) FROM pg_proc WHERE proname LIKE 'memory%'") == 0


_FAILED = (
    "INSERT INTO memory_embedding_failures (id, text_hash, attempts, error_class, next_attempt) "
    "SELECT id, memory_index_text_hash(content), 5, 'EmbedderRejected', 'infinity' FROM memories"
)


@pytest.mark.promise("failure-reveals-no-text")
@pytest.mark.finding("L1")
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE memories SET is_sensitive = true",
        "UPDATE memories SET deleted_at = now()",
        "UPDATE memories SET content = 'edited'",
        "DELETE FROM memories",
    ],
)
async def test_a_recorded_failure_is_deleted_with_the_text_that_caused_it(bench: Workbench, change: str) -> None:
    """L1: nothing is kept of a text that was edited, or whose row was deleted or has turned sensitive."""
    await bench.insert("PIN 4711")
    await bench.execute(_FAILED)
    await bench.execute("UPDATE memories SET importance = 0.9")
    assert await bench.value("SELECT count(*) FROM memory_embedding_failures") == 1, "what changes no text is no reason"
    await bench.execute(change)
    assert await bench.value("SELECT count(*) FROM memory_embedding_failures") == 0


async def test_a_mark_ends_when_its_hashes_fit_no_text_under_a_new_key(bench: Workbench, request_for: Requests) -> None:
    """Nothing is superseded by it then, and the journal says so."""
    await bench.insert("one", "two")
    await bench.execute(
        "INSERT INTO memory_supersessions (run, action, id, superseded_by, text_hash, successor_hash) "
        "VALUES (1, 'UPDATE', 1, 2, memory_index_text_hash('one'), memory_index_text_hash('two'))"
    )
    await bench.execute(HASH_WITHOUT_KEY)
    await migrate(DsnText(bench.database.dsn), request_for())
    assert await bench.value("SELECT undone_at IS NOT NULL AND text_hash = '' FROM memory_supersessions")


@pytest.mark.promise("failure-reveals-no-text")
@pytest.mark.finding("L1")
async def test_a_text_cannot_be_guessed_from_its_failure(bench: Workbench, request_for: Requests) -> None:
    """L1: the hash has a random key; a failure whose hash was made without the key is forgotten."""
    await bench.insert("PIN 4711")
    await bench.execute(HASH_WITHOUT_KEY)
    await bench.execute(_FAILED)
    guess = hashlib.md5(b"PIN 4711", usedforsecurity=False).hexdigest()
    assert await bench.value("SELECT text_hash FROM memory_embedding_failures") == guess
    await migrate(DsnText(bench.database.dsn), request_for())
    assert await bench.value("SELECT count(*) FROM memory_embedding_failures") == 0
    await bench.execute(_FAILED)
    stored = await bench.value("SELECT text_hash FROM memory_embedding_failures")
    assert stored != guess
    async with bench.database.connection() as connection:
        await remove(DsnText(bench.database.dsn), request_for())
        await migrate(DsnText(bench.database.dsn), request_for())
        assert await connection.fetchval("SELECT memory_index_text_hash('PIN 4711')") not in {stored, guess}
