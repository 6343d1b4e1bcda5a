"""Workers find how near a table's memories are to prompts that none fits, for the model whose vectors it has."""

from dataclasses import replace

import asyncpg
import numpy as np
import pytest
import structlog

from memory_recall.errors import MemoryIndexError
from memory_recall.hnsw.repair import IndexParameters, build_index
from memory_recall.indexing import usual_cosine_sql
from memory_recall.indexing.usual_cosine import Outcome, UsualCosineKeeper, everyday_prompts, find_usual_cosine
from memory_recall.indexing.usual_cosine_sql import write_usual_cosine
from memory_recall.postgres.connection import Connection, DsnText, connect
from memory_recall.schema.models_sql import RecordedModel, active_model
from memory_recall.schema.table import ACTIVE, MemoryTable, describe
from tests.integration.memory_recall.fake_embedder import vector_of
from tests.integration.memory_recall.least_rights import least_rights
from tests.integration.memory_recall.workbench import DIMENSIONS, Workbench

RECORDED = "SELECT usual_cosine FROM memory_index_models WHERE name = '{}'"
TEXTS = [f"memory {number}" for number in range(40)]


def nearest_in_the_median(texts: list[str], salt: str = "") -> float:
    """What is to be found, computed from the embedder's own vectors."""
    memories = np.array([vector_of(salt + text, DIMENSIONS) for text in texts])
    prompts = np.array([vector_of(salt + text, DIMENSIONS) for text in everyday_prompts()])
    return float(np.median((prompts @ memories.T).max(axis=1)))


async def usual_cosine(bench: Workbench, model: str = "tiny") -> float | None:
    found: float | None = await bench.value(RECORDED.format(model))
    return found


async def context(connection: Connection) -> tuple[MemoryTable, RecordedModel]:
    table = await describe(connection, "memories")
    return table, await active_model(connection, table)


async def test_a_backfill_ends_with_the_median_cosine_of_what_is_nearest_to_everyday_prompts(bench: Workbench) -> None:
    """A sensitive and a deleted memory have no vector, and are no part of it."""
    await bench.insert(*TEXTS)
    secret = everyday_prompts()[0]
    await bench.execute(
        f"INSERT INTO memories (content, is_sensitive, deleted_at) VALUES ('{secret}', true, NULL), "
        f"('{secret}', false, now())"
    )
    assert await usual_cosine(bench) is None
    await bench.backfill()
    assert await usual_cosine(bench) == pytest.approx(nearest_in_the_median(TEXTS), abs=2e-3)


async def test_it_is_the_same_with_the_vector_index(bench: Workbench) -> None:
    await bench.insert(*TEXTS)
    await build_index(DsnText(bench.database.dsn), "memories", IndexParameters())
    await bench.backfill()
    assert await usual_cosine(bench) == pytest.approx(nearest_in_the_median(TEXTS), abs=2e-3)


async def test_a_backfill_that_embeds_nothing_asks_only_for_what_is_not_known(bench: Workbench) -> None:
    await bench.insert(*TEXTS)
    for _ in range(2):
        await bench.backfill()
    assert set(bench.embedder.prompts.values()) == {1}
    await bench.execute("UPDATE memory_index_models SET usual_cosine = NULL")
    await bench.backfill()
    assert set(bench.embedder.prompts.values()) == {2}
    assert await usual_cosine(bench) is not None


async def test_of_an_empty_table_nothing_is_recorded_nor_asked_for(bench: Workbench) -> None:
    await bench.backfill()
    assert await usual_cosine(bench) is None
    assert not bench.embedder.prompts


async def test_no_memory_s_text_is_read_for_it_nor_sent_to_the_embedder(bench: Workbench) -> None:
    """It is found by a role that may not read texts."""
    await bench.insert(*TEXTS)
    await bench.backfill()
    await bench.execute("UPDATE memory_index_models SET usual_cosine = NULL")
    received = bench.embedder.received.copy()
    async with least_rights(bench) as roles:
        texts = "content, expanded_keywords, tags, search_vector"
        await bench.execute(f"REVOKE SELECT ({texts}) ON memories FROM {bench.database.name}_worker")
        async with roles.worker.connection() as connection, bench.client() as client:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.fetch("SELECT content FROM memories")
            table, model = await context(connection)
            assert await find_usual_cosine(lambda work: work(connection), table, model, client) is Outcome.FOUND
    assert await usual_cosine(bench) == pytest.approx(nearest_in_the_median(TEXTS), abs=2e-3)
    assert bench.embedder.received == received


async def test_a_sync_worker_finds_it_at_its_start_and_again_when_the_table_has_grown(bench: Workbench) -> None:
    """At most every ten minutes, by a clock that the test moves."""
    now = 0.0
    await bench.insert(*TEXTS[:20])
    await bench.backfill()
    connection = await connect(DsnText(bench.database.dsn))
    table, model = await context(connection)
    async with bench.client() as client:
        keeper = UsualCosineKeeper(lambda work: work(connection), table, model, client, clock=lambda: now)
        for now, embedded, asked in ((0, 0, 2), (1, 0, 2), (2, 5, 2), (601, 5, 3), (9000, 5, 3), (9001, 6, 4)):
            await keeper.keep(embedded)
            assert set(bench.embedder.prompts.values()) == {asked}, now
    await connection.close()


async def test_after_a_failure_a_sync_worker_asks_no_sooner_again(bench: Workbench) -> None:
    """Where the right to record it is missing it would ask in vain for ever."""
    now = 0.0
    await bench.insert(*TEXTS)
    await bench.backfill()
    bench.embedder.digest = "sha256:bb"
    connection = await connect(DsnText(bench.database.dsn))
    table, model = await context(connection)
    async with bench.client() as client:
        keeper = UsualCosineKeeper(lambda work: work(connection), table, model, client, clock=lambda: now)
        for now, asked in ((0.0, 2), (31.0, 2), (601.0, 3)):
            await keeper.keep(0)
            assert bench.embedder.prompts[everyday_prompts()[0]] == asked, now
    await connection.close()


async def test_a_sync_worker_of_an_empty_table_finds_it_soon_after_the_first_rows(bench: Workbench) -> None:
    now = 0.0
    connection = await connect(DsnText(bench.database.dsn))
    table, model = await context(connection)
    async with bench.client() as client:
        keeper = UsualCosineKeeper(lambda work: work(connection), table, model, client, clock=lambda: now)
        await keeper.keep(0)
        assert not bench.embedder.prompts
        await bench.insert(*TEXTS)
        await bench.execute("UPDATE memories SET embedding = (ARRAY[id, 1, 2, 3, 4, 5, 6, 7])::real[]::halfvec")
        for now, asked in ((1.0, set()), (31.0, {1}), (100.0, {1})):
            await keeper.keep(len(TEXTS))
            assert set(bench.embedder.prompts.values()) == asked, now
    await connection.close()
    assert await usual_cosine(bench) is not None


async def test_without_the_right_to_record_it_a_worker_goes_on(bench: Workbench) -> None:
    """A role of before may not record it; the rows are embedded all the same, and the log says what to do."""
    await bench.insert(*TEXTS)
    async with least_rights(bench) as roles:
        await bench.execute(f"REVOKE UPDATE (usual_cosine) ON memory_index_models FROM {bench.database.name}_worker")
        with structlog.testing.capture_logs() as logged:
            result = await replace(bench, database=roles.worker).backfill()
    assert (result.tally.embedded, result.complete) == (len(TEXTS), True)
    assert "Run the script of memory roles again." in next(one["message"] for one in logged if "usual" in one["event"])
    assert await usual_cosine(bench) is None


async def test_an_answer_of_another_file_of_the_model_is_not_used(bench: Workbench) -> None:
    await bench.insert(*TEXTS)
    await bench.backfill()
    await bench.execute("UPDATE memory_index_models SET usual_cosine = NULL")
    bench.embedder.digest = "sha256:bb"
    connection = await connect(DsnText(bench.database.dsn))
    table, model = await context(connection)
    async with bench.client() as client:
        found = await find_usual_cosine(lambda work: work(connection), table, model, client)
    await connection.close()
    assert found is Outcome.FAILED
    assert await usual_cosine(bench) is None


async def test_nothing_is_recorded_of_a_model_whose_vectors_have_left_the_column(bench: Workbench) -> None:
    """A swap may have flipped while the prompts were embedded."""
    await bench.insert(*TEXTS)
    await bench.backfill()
    connection = await connect(DsnText(bench.database.dsn))
    table, model = await context(connection)
    await bench.execute(
        "INSERT INTO memory_index_models (name, dimensions) VALUES ('of before', 8); "
        "UPDATE memory_index_models SET usual_cosine = NULL"
    )
    former = await bench.value("SELECT id FROM memory_index_models WHERE name = 'of before'")
    prompts = np.array([vector_of(text, DIMENSIONS) for text in everyday_prompts()])
    await write_usual_cosine(connection, table, former, ACTIVE, prompts)
    assert await usual_cosine(bench, "of before") is None
    await write_usual_cosine(connection, table, model.id, ACTIVE, prompts)
    assert await usual_cosine(bench) is not None
    await connection.close()


async def test_a_search_that_takes_too_long_is_given_up(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker has rows to embed; without the index each prompt takes a scan of the table."""
    monkeypatch.setattr(usual_cosine_sql, "_STATEMENT_TIMEOUT_MS", 1)
    await bench.execute("INSERT INTO memories (content) SELECT 'memory ' || n FROM generate_series(1, 3000) n")
    await bench.execute("UPDATE memories SET embedding = (ARRAY[id, 1, 2, 3, 4, 5, 6, 7])::real[]::halfvec")
    connection = await connect(DsnText(bench.database.dsn))
    table, model = await context(connection)
    prompts = np.array([vector_of(text, DIMENSIONS) for text in everyday_prompts()])
    with pytest.raises(MemoryIndexError, match="took more than"):
        await write_usual_cosine(connection, table, model.id, ACTIVE, prompts)
    assert await connection.fetchval("SHOW statement_timeout") == "0"
    await connection.close()
