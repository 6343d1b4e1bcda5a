"""A table without vectors may get another model at any time, and no worker of the former model writes into it then."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import pytest
from pgvector.asyncpg import register_vector

from memory_recall.errors import ModelMismatch, SwapInProgress
from memory_recall.indexing.queue_sql import PendingQueue, PendingRow, WorkerShare
from memory_recall.postgres.connection import Connection, DsnText, connect
from memory_recall.schema.adoption.existing_vectors import some_vector
from memory_recall.schema.ddl import TableChanges
from memory_recall.schema.migrate import MigrationRequest, migrate
from memory_recall.schema.models_sql import active_model
from memory_recall.schema.revisions import require_schema
from memory_recall.swap import state_sql
from tests.integration.memory_recall.fake_embedder import vector_of
from tests.integration.memory_recall.swap.conftest import SwapBench, swaps
from tests.integration.memory_recall.test_sync_worker import NEVER, running
from tests.integration.memory_recall.workbench import DIMENSIONS, Workbench

__all__ = ["swaps"]  # a fixture

Requests = Callable[..., MigrationRequest]
RECORDED = "SELECT m.name FROM memory_index_state s JOIN memory_index_models m ON m.id = s.active_model"


@pytest.fixture(params=["bench", "partitioned_bench"])
def either_bench(request: pytest.FixtureRequest) -> Workbench:
    """A table without rows, once an ordinary one and once one in partitions."""
    bench: Workbench = request.getfixturevalue(request.param)
    return bench


@pytest.fixture
async def writer(either_bench: Workbench) -> AsyncIterator[Connection]:
    """A connection as a worker uses it."""
    connection = await connect(DsnText(either_bench.database.dsn))
    await register_vector(connection)
    yield connection
    connection.terminate()


async def pending_row(bench: Workbench, text: str) -> PendingRow:
    """Store a row, and return it as a worker reads it."""
    await bench.insert(text)
    new = await bench.value("SELECT max(id) FROM memories")
    return PendingRow(new, text, await bench.value(f"SELECT memory_index_text_hash('{text}')"))


async def test_a_running_sync_worker_ends_with_an_error_and_stores_no_vector_of_the_former_model(
    bench: Workbench, request_for: Requests
) -> None:
    last_query = (
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'memory-sync' AND state = 'idle' "
        "AND datname = current_database() AND query LIKE '%seconds_until_due%'"
    )

    async def change_while_it_runs() -> None:
        async with running(bench, poll_seconds=NEVER), asyncio.timeout(60):
            await bench.insert("before the change")
            await bench.until_embedded(1)
            await bench.execute("DELETE FROM memories")
            await bench.until_value(last_query)
            await migrate(DsnText(bench.database.dsn), request_for(model="second"))
            await bench.insert("written after the change")
            await bench.stop.wait()

    with pytest.raises(ModelMismatch, match="second"):
        await change_while_it_runs()
    assert await bench.embedded() == 0


async def test_a_running_backfill_ends_with_an_error_and_stores_no_vector_of_the_former_model(
    bench: Workbench, request_for: Requests
) -> None:
    await bench.insert("one", "two")
    bench.embedder.hold_after(0)
    backfill = asyncio.create_task(bench.backfill())
    await bench.embedder.held.wait()
    await migrate(DsnText(bench.database.dsn), request_for(model="second"))
    bench.embedder.release()
    with pytest.raises(ModelMismatch, match="second took the place of tiny"):
        await asyncio.wait_for(backfill, 30)
    assert await bench.embedded() == 0


async def test_a_worker_of_the_former_model_stores_nothing_even_where_its_name_comes_back(
    either_bench: Workbench, writer: Connection, request_for: Requests
) -> None:
    """Each change records a model of its own; state, the function of the column and the rules agree after each."""
    bench, source = either_bench, DsnText(either_bench.database.dsn)
    row, vectors = await pending_row(bench, "one"), np.stack([vector_of("one", DIMENSIONS)])
    table = await require_schema(writer, "memories")
    former = PendingQueue(table, (await active_model(writer, table)).id)
    for name in ("second", "second", "tiny"):
        await migrate(source, request_for(model=name))
        assert await bench.value(RECORDED) == name
        assert await bench.value("SELECT memory_index_column_model() = active_model FROM memory_index_state")
        assert (await former.page(writer, 0, WorkerShare(), 10)).rows == []
        assert (await former.write(writer, [row], vectors)).stored == 0
    assert await bench.value("SELECT array_agg(name ORDER BY id) FROM memory_index_models") == [
        "tiny",
        "second",
        "tiny",
    ]
    present = PendingQueue(table, (await active_model(writer, await require_schema(writer, "memories"))).id)
    assert (await present.write(writer, [row], vectors)).stored == 1


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
async def test_a_vector_that_is_not_committed_yet_keeps_its_model(
    either_bench: Workbench, writer: Connection, request_for: Requests, isolation: str
) -> None:
    """Whatever isolation the database gives to new sessions: an old snapshot would not show the vector."""
    bench, source = either_bench, DsnText(either_bench.database.dsn)
    await bench.execute(f"ALTER DATABASE {bench.database.name} SET default_transaction_isolation = '{isolation}'")
    row, vectors = await pending_row(bench, "one"), np.stack([vector_of("one", DIMENSIONS)])
    table = await require_schema(writer, "memories")
    transaction = writer.transaction()
    await transaction.start()
    assert (await PendingQueue(table, (await active_model(writer, table)).id).write(writer, [row], vectors)).stored == 1
    migration = asyncio.create_task(migrate(source, request_for(model="second")))
    await bench.until_locked_out(migration)
    await transaction.commit()
    with pytest.raises(ModelMismatch, match="tiny, not second"):
        await asyncio.wait_for(migration, 30)
    assert await bench.value(RECORDED) == "tiny"


async def test_the_failures_of_the_former_model_are_forgotten(bench: Workbench, request_for: Requests) -> None:
    """Another model may well embed a text that the former one refused."""
    await bench.insert("one")
    await bench.execute(
        "INSERT INTO memory_embedding_failures (id, text_hash, attempts, error_class, next_attempt) "
        "SELECT id, memory_index_text_hash(content), 5, 'EmbedderRejected', 'infinity' FROM memories"
    )
    await migrate(DsnText(bench.database.dsn), request_for(model="second"))
    assert await bench.value("SELECT count(*) FROM memory_embedding_failures") == 0


@pytest.mark.parametrize("flipped", [False, True])
async def test_no_model_is_changed_before_a_swap_is_finished_or_aborted(
    swaps: SwapBench, request_for: Requests, flipped: bool
) -> None:
    """A rollback would otherwise take the vectors of the second column for those of a model that did not make them."""
    await swaps.swap(flip=flipped)
    await swaps.work.execute("UPDATE memories SET embedding = NULL")
    before = await swaps.roles()
    with pytest.raises(SwapInProgress, match="not third"):
        await migrate(swaps.source, request_for(model="third"))
    assert await swaps.roles() == before
    await swaps.end("finished" if flipped else "aborted")
    await migrate(swaps.source, request_for(model="third"))
    assert (await swaps.roles()).active.name == "third"


async def test_no_model_is_changed_once_a_swap_is_recorded_although_it_has_no_column_yet(
    swaps: SwapBench, request_for: Requests
) -> None:
    await swaps.work.execute("UPDATE memories SET embedding = NULL")
    connection = await connect(swaps.source)
    await state_sql.open_swap(connection, await require_schema(connection, "memories"), swaps.target(), None)
    connection.terminate()
    with pytest.raises(SwapInProgress):
        await migrate(swaps.source, request_for(model="third"))


@pytest.mark.parametrize("changes", [{"model": "small"}, {"dimensions": 16, "existing_vectors": "discard"}])
async def test_the_table_is_not_scanned_while_it_is_locked_against_writers(
    bench: Workbench, request_for: Requests, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    """Under the lock, an index that is made for it tells that there is no vector; it is dropped afterwards."""
    await bench.execute("INSERT INTO memories (content) SELECT 'text ' || n FROM generate_series(1, 2000) n")
    plans: list[str] = []
    run = TableChanges.run

    async def explained(self: TableChanges, statement: str) -> int:
        if "EXCLUSIVE MODE" in statement and "enable_seqscan" in statement:
            async with self.connection.transaction():
                await self.connection.execute("SET LOCAL enable_seqscan = off")  # as the statement itself does
                rows = await self.connection.fetch(f"EXPLAIN SELECT {some_vector(self.table)}")
            plans.append("".join(row[0] for row in rows))
        return await run(self, statement)

    monkeypatch.setattr(TableChanges, "run", explained)
    await migrate(DsnText(bench.database.dsn), request_for(**changes))
    assert {("Seq Scan" in plan, "idx_memories_embedding_present" in plan) for plan in plans} == {(False, True)}
    assert await bench.value("SELECT to_regclass('idx_memories_embedding_present')") is None
