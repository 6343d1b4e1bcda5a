"""Vectors of unknown origin need a decision at any time: in a table that was exchanged, and of rows without rules."""

import asyncio
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pgvector.asyncpg import register_vector

from memory_recall.errors import ExistingVectors, SchemaBehind
from memory_recall.graph import disable, enable, graph_state
from memory_recall.indexing.queue_sql import PendingQueue, WorkerShare
from memory_recall.postgres.connection import DsnText, connect
from memory_recall.schema.migrate import MigrationRequest, migrate
from memory_recall.schema.models_sql import active_model
from memory_recall.schema.revisions import require_schema
from memory_recall.status import inspect
from tests.integration.conftest import Database
from tests.integration.memory_recall.fake_embedder import vector_of
from tests.integration.memory_recall.graph.workbench import enabled, expected, fill, links
from tests.integration.memory_recall.logical_replication import replicating
from tests.integration.memory_recall.partitioned import fill_partitions
from tests.integration.memory_recall.test_sync_worker import running
from tests.integration.memory_recall.workbench import DIMENSIONS, Workbench

Requests = Callable[..., MigrationRequest]
TEXTS = ("one", "two", "three")
COPY = ("ALTER TABLE memories RENAME TO former", "CREATE TABLE memories (LIKE former INCLUDING ALL)")
EXCHANGE = "; ".join(COPY)  # in one transaction
ORIGINS = {
    "a copy under the old name": (
        *COPY,
        "INSERT INTO memories (id, content, embedding) SELECT id, content, embedding FROM former",
        "UPDATE memories SET content = 'edited' WHERE content = 'one'",
    ),
    "the trigger was disabled": (
        "ALTER TABLE memories DISABLE TRIGGER zz_memory_index_update",
        "UPDATE memories SET content = 'edited' WHERE content = 'one'",
    ),
    "the trigger was missing": (
        "DROP TRIGGER zz_memory_index_update ON memories",
        "UPDATE memories SET content = 'edited' WHERE content = 'one'",
    ),
    "the triggers were off for a while": (
        "ALTER TABLE memories DISABLE TRIGGER USER",
        "UPDATE memories SET content = 'edited' WHERE content = 'one'",
        "ALTER TABLE memories ENABLE TRIGGER USER",
    ),
    "the trigger's function did nothing": (
        "CREATE OR REPLACE FUNCTION memory_index_guard() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
        "UPDATE memories SET content = 'edited' WHERE content = 'one'",
    ),
}


async def _embedded(bench: Workbench) -> None:
    await bench.insert(*TEXTS)
    await bench.backfill()


async def _state(bench: Workbench) -> str:
    """What the state table holds, with the triggers, so that a refusal is seen to change nothing."""
    return str(
        await bench.value(
            "SELECT (SELECT row_to_json(s)::text FROM memory_index_state s) || "
            "(SELECT coalesce(string_agg(tgname || tgenabled::text, ',' ORDER BY tgname), '') FROM pg_trigger "
            "WHERE tgrelid = 'memories'::regclass)"
        )
    )


@pytest.mark.promise("exchanged-table-noticed")
@pytest.mark.parametrize("answer", ["keep", "discard"])
@pytest.mark.parametrize("origin", ORIGINS)
async def test_vectors_that_may_be_of_another_text_or_model_need_a_decision(
    bench: Workbench, request_for: Requests, origin: str, answer: str
) -> None:
    """Until then nothing is changed and no worker begins; afterwards no question is left."""
    source = DsnText(bench.database.dsn)
    await _embedded(bench)
    for statement in ORIGINS[origin]:
        await bench.execute(statement)
    before = await _state(bench)
    for _ in range(2):
        with pytest.raises(ExistingVectors, match="of another model or text") as caught:
            await migrate(source, request_for())
        assert (caught.value.exit_code, "discard" in caught.value.remedy) == (4, True)
    assert await _state(bench) == before
    with pytest.raises(SchemaBehind):
        await bench.backfill()
    await migrate(source, request_for(existing_vectors=answer))
    assert await bench.embedded() == (len(TEXTS) if answer == "keep" else 0)
    await migrate(source, request_for())
    await bench.backfill()
    assert await bench.embedded() == len(TEXTS)
    assert [problem for _, problem in await bench.problems()] == (["stale"] if answer == "keep" else [])


async def test_vectors_that_a_restore_is_copying_count(bench: Workbench, request_for: Requests) -> None:
    """The migration waits for the transaction that brings them, and then needs the decision."""
    await _embedded(bench)
    await bench.execute(EXCHANGE)
    async with bench.database.connection() as restore:
        transaction = restore.transaction()
        await transaction.start()
        await restore.execute("INSERT INTO memories (id, content, embedding) SELECT id, content, embedding FROM former")
        migration = asyncio.create_task(migrate(DsnText(bench.database.dsn), request_for()))
        await bench.until_locked_out(migration)
        await transaction.commit()
        with pytest.raises(ExistingVectors, match="another table"):
            await asyncio.wait_for(migration, 30)


@pytest.mark.parametrize("origin", ORIGINS)
async def test_without_vectors_there_is_no_question(bench: Workbench, request_for: Requests, origin: str) -> None:
    await bench.insert(*TEXTS)
    for statement in ORIGINS[origin]:
        await bench.execute(statement)
    await migrate(DsnText(bench.database.dsn), request_for())
    await bench.backfill()
    assert (await bench.embedded(), await bench.problems()) == (len(TEXTS), [])


@pytest.mark.parametrize("missing", ["zz_memory_index_insert", "zz_memory_index_delete"])
async def test_rules_that_keep_no_vector_up_to_date_are_restored_without_a_question(
    bench: Workbench, request_for: Requests, missing: str
) -> None:
    await _embedded(bench)
    await bench.execute(f"DROP TRIGGER {missing} ON memories")
    await migrate(DsnText(bench.database.dsn), request_for())
    assert await bench.embedded() == len(TEXTS)


async def test_the_trigger_of_an_earlier_release_raises_no_question(bench: Workbench, request_for: Requests) -> None:
    """Its condition is written otherwise, but it removed the vector of a text that changed."""
    await _embedded(bench)
    await bench.execute(
        "CREATE OR REPLACE TRIGGER zz_memory_index_update BEFORE UPDATE ON memories FOR EACH ROW "
        "WHEN (NEW.embedding IS NULL OR NEW.is_sensitive OR NEW.content IS DISTINCT FROM OLD.content) "
        "EXECUTE FUNCTION memory_index_guard()"
    )
    await bench.execute("ALTER TABLE memories ENABLE ALWAYS TRIGGER zz_memory_index_update")
    await migrate(DsnText(bench.database.dsn), request_for())
    assert await bench.embedded() == len(TEXTS)


async def test_a_partition_without_its_trigger_needs_the_same_decision(
    partitioned_bench: Workbench, request_for: Requests
) -> None:
    bench, source = partitioned_bench, DsnText(partitioned_bench.database.dsn)
    await fill_partitions(bench, 2)
    await bench.backfill()
    await bench.execute("ALTER TABLE memories_cleo DISABLE TRIGGER zz_memory_index_update")
    await bench.execute("UPDATE memories_cleo SET content = 'edited'")
    with pytest.raises(ExistingVectors, match=r"partition public\.memories_cleo"):
        await migrate(source, request_for())
    await migrate(source, request_for(existing_vectors="discard"))
    await bench.backfill()
    assert await bench.problems() == []


async def test_a_discard_that_was_interrupted_is_named_and_carried_on(bench: Workbench, request_for: Requests) -> None:
    """The decision is recorded before the first change, because the repaired rules show no reason for it any more."""
    await _embedded(bench)
    await bench.execute("UPDATE memory_index_state SET discarding = true")
    with pytest.raises(SchemaBehind, match="vectors that are to be discarded"):
        await bench.backfill()
    await migrate(DsnText(bench.database.dsn), request_for())
    assert await bench.embedded() == 0
    await migrate(DsnText(bench.database.dsn), request_for())
    await bench.backfill()
    assert await bench.embedded() == len(TEXTS)


async def test_a_worker_that_runs_already_stores_nothing_while_vectors_are_discarded(bench: Workbench) -> None:
    """It would embed again what has been discarded, and the discarding would not come to its end."""
    await bench.insert("one")
    connection = await connect(DsnText(bench.database.dsn))
    await register_vector(connection)
    table = await require_schema(connection, "memories")
    queue = PendingQueue(table, (await active_model(connection, table)).id)
    (row,) = (await queue.page(connection, 0, WorkerShare(), 10)).rows
    vectors = np.stack([vector_of(row.text, DIMENSIONS)])
    await bench.execute("UPDATE memory_index_state SET discarding = true")
    assert (await queue.page(connection, 0, WorkerShare(), 10)).rows == []
    assert (await queue.write(connection, [row], vectors)).stored == 0
    assert not (await queue.state(connection, WorkerShare())).current
    await bench.execute("UPDATE memory_index_state SET discarding = false")
    assert (await queue.write(connection, [row], vectors)).stored == 1
    connection.terminate()


@pytest.mark.promise("exchanged-table-noticed")
async def test_a_running_sync_worker_ends_before_it_writes_into_an_exchanged_table(
    bench: Workbench, request_for: Requests
) -> None:
    """It would make vectors of unknown origin of its own in a table that has none."""

    async def exchange_while_it_runs() -> None:
        async with running(bench, poll_seconds=0.2):
            await bench.insert("one")
            await bench.until_embedded(1)
            await bench.execute(EXCHANGE)
            await bench.insert("in the new table")
            await asyncio.wait_for(bench.stop.wait(), 30)

    with pytest.raises(SchemaBehind, match="the table's OID"):
        await exchange_while_it_runs()
    assert await bench.embedded() == 0
    await migrate(DsnText(bench.database.dsn), request_for())


async def test_a_running_backfill_ends_with_an_error_in_an_exchanged_table(bench: Workbench) -> None:
    await bench.insert(*(f"text {number}" for number in range(40)))
    bench.embedder.hold_after(1)
    backfill = asyncio.create_task(bench.backfill())
    await bench.embedder.held.wait()
    await bench.until_embedded(1)
    await bench.execute(EXCHANGE)
    await bench.execute("INSERT INTO memories (id, content) SELECT id, content FROM former")
    bench.embedder.release()
    with pytest.raises(SchemaBehind, match="the table's OID"):
        await asyncio.wait_for(backfill, 30)
    assert await bench.embedded() == 0


def _run(database: Database, program: str, *arguments: str) -> None:
    dsn = database.superuser_dsn
    command = [str(database.server.program(program)), f"--dbname={dsn}", *arguments]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "LC_ALL": "C"})


async def test_a_dump_of_the_whole_database_is_restored_without_a_question(
    bench: Workbench, bare_database: Database, request_for: Requests, tmp_path: Path
) -> None:
    """The state is in the dump, and pg_restore gives it the number of the restored table."""
    await _embedded(bench)
    _run(bench.database, "pg_dump", "--format=custom", f"--file={tmp_path / 'dump'}")
    _run(bare_database, "pg_restore", str(tmp_path / "dump"))
    async with bare_database.connection() as connection:
        assert (await inspect(connection, "memories")).schema_differences == ""
    await migrate(DsnText(bare_database.dsn), request_for())
    restored = Workbench(bare_database, bench.embedder)
    assert (await restored.embedded(), await restored.problems()) == (len(TEXTS), [])


async def test_a_database_that_logical_replication_has_moved_is_taken_over_without_a_question(
    bench: Workbench, bare_database: Database, request_for: Requests, tmp_path: Path
) -> None:
    """So a server is upgraded without a pause: the schema is dumped, and every row and every change is replicated."""
    await _embedded(bench)
    await bench.execute("INSERT INTO memories (content, is_sensitive) VALUES ('a secret', true)")
    _run(bench.database, "pg_dump", "--schema-only", "--format=custom", f"--file={tmp_path / 'dump'}")
    _run(bare_database, "pg_restore", str(tmp_path / "dump"))
    moved = Workbench(bare_database, bench.embedder)
    async with replicating(bench.database, bare_database, everything=True) as replication:
        await bench.execute("UPDATE memories SET content = 'edited' WHERE content = 'one'")
        await bench.execute("UPDATE memories SET is_sensitive = true WHERE content = 'two'")
        await bench.insert("written meanwhile", " ")
        await bench.backfill()
        await replication.catch_up()
    await migrate(DsnText(bare_database.dsn), request_for())
    assert (await moved.embedded(), await moved.problems()) == (3, await bench.problems())
    assert await moved.value("SELECT count(*) FROM memory_embedding_failures") == 1
    async with bare_database.connection() as connection:
        facts = await inspect(connection, "memories")
    assert (facts.schema_differences, facts.rows and facts.rows.pending) == ("", 0)


async def test_a_graph_is_disabled_for_a_move_by_logical_replication_and_filled_after_it(
    bench: Workbench, bare_database: Database, request_for: Requests, tmp_path: Path
) -> None:
    """The rules of both servers would append the same changes to one queue, which ends the subscription."""
    table = await enabled(bench, "Marit restarted nas-01.", "Kestrel Lane floods.")
    async with bench.database.connection() as connection:
        await disable(connection, table)
    _run(bench.database, "pg_dump", "--schema-only", "--format=custom", f"--file={tmp_path / 'dump'}")
    _run(bare_database, "pg_restore", str(tmp_path / "dump"))
    async with replicating(bench.database, bare_database, everything=True) as replication:
        for text in ("Kestrel Lane is flooded.", "Kestrel Lane is dry."):
            await bench.execute(f"UPDATE memories SET content = '{text}' WHERE id = 2")
            await replication.catch_up()
    async with bare_database.connection() as connection:
        await enable(connection, table)
        await fill(connection, table)
        assert await links(connection) == await expected(connection)
        assert (await graph_state(connection, table)).filled


async def test_a_table_that_is_restored_alone_needs_a_decision(
    bench: Workbench, request_for: Requests, tmp_path: Path
) -> None:
    await _embedded(bench)
    _run(bench.database, "pg_dump", "--format=custom", f"--file={tmp_path / 'dump'}")
    _run(bench.database, "pg_restore", "--clean", "--table=memories", str(tmp_path / "dump"))
    assert await bench.embedded() == len(TEXTS)
    await bench.execute("ALTER TABLE memories ADD PRIMARY KEY (id)")  # pg_restore --table leaves keys out
    with pytest.raises(ExistingVectors, match="another table"):
        await migrate(DsnText(bench.database.dsn), request_for())
    await migrate(DsnText(bench.database.dsn), request_for(existing_vectors="discard"))
    await bench.backfill()
    assert await bench.problems() == []


async def test_both_vector_columns_of_an_exchanged_table_count(bench: Workbench, request_for: Requests) -> None:
    """During a swap the second column holds vectors, too, even where the first one is empty."""
    await _embedded(bench)
    await bench.execute("ALTER TABLE memories ADD embedding_standby halfvec(8)")
    await bench.execute(
        "INSERT INTO memory_index_swaps (stage, from_model, to_model) "
        "SELECT 'flipped', active_model, active_model FROM memory_index_state"
    )
    await bench.execute("UPDATE memories SET embedding_standby = embedding; UPDATE memories SET embedding = NULL")
    await bench.execute(EXCHANGE)
    await bench.execute(
        "INSERT INTO memories (id, content, embedding_standby) SELECT id, content, embedding_standby FROM former"
    )
    with pytest.raises(ExistingVectors):
        await migrate(DsnText(bench.database.dsn), request_for())
    await migrate(DsnText(bench.database.dsn), request_for(existing_vectors="discard"))
    assert await bench.value("SELECT count(embedding_standby) FROM memories") == 0
