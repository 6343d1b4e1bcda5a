"""No vector of length zero is stored, by whomever: its row counts as pending."""

from collections.abc import Callable
from typing import Any

import asyncpg
import numpy as np
import pytest

from memory_recall.postgres.connection import DsnText
from memory_recall.schema.migrate import MigrationRequest, migrate
from memory_recall.schema.table import describe
from memory_recall.swap.standby_sql import add_standby, exchange
from tests.integration.conftest import Database
from tests.integration.memory_recall.fake_embedder import good_answer, vector_of
from tests.integration.memory_recall.partitioned import PARTITIONED_TABLE
from tests.integration.memory_recall.workbench import DIMENSIONS, Workbench

_ZERO, _ONE = (f"array_fill({value}::real, ARRAY[{DIMENSIONS}])::halfvec" for value in (0, 1))
_UPSERT = f"INSERT INTO memories (id, content, embedding) VALUES (1, '', {_ZERO}) ON CONFLICT (id) DO UPDATE"
_WRITES = [
    f"INSERT INTO memories (content, embedding) VALUES ('written', {_ZERO})",
    f"INSERT INTO memories (content, embedding) VALUES ('written', {_ONE}); UPDATE memories SET embedding = {_ZERO}",
    f"INSERT INTO memories VALUES (1, 'written'); {_UPSERT} SET embedding = excluded.embedding",
]


@pytest.mark.finding("database F11")
@pytest.mark.parametrize("write", _WRITES)
@pytest.mark.parametrize("role", ["origin", "replica"])
async def test_a_vector_of_length_zero_is_not_stored_and_its_row_is_embedded(
    bench: Workbench, write: str, role: str
) -> None:
    admin = await asyncpg.connect(bench.database.superuser_dsn)
    await admin.execute(f"SET session_replication_role = {role}")
    await admin.execute(write)
    assert await admin.fetchval("SELECT count(embedding) FROM memories") == 0
    await admin.close()
    assert (await bench.backfill()).tally.embedded == 1
    assert await bench.problems() == []


@pytest.mark.finding("database F11")
async def test_a_vector_that_half_precision_rounds_to_zero_is_not_stored(bench: Workbench) -> None:
    await bench.execute(f"INSERT INTO memories (content, embedding) VALUES ('x', {_ONE.replace('1::', '1e-9::')})")
    assert await bench.embedded() == 0


@pytest.mark.finding("database F11")
@pytest.mark.parametrize("partitioned", [False, True])
async def test_existing_vectors_of_length_zero_are_made_again_where_the_others_are_kept(
    database: Database, request_for: Callable[..., MigrationRequest], partitioned: bool
) -> None:
    plain = PARTITIONED_TABLE[0].replace("PRIMARY KEY (id, user_id)) PARTITION BY LIST (user_id)", "PRIMARY KEY (id))")
    table = PARTITIONED_TABLE if partitioned else [plain]
    async with database.connection() as connection:
        for statement in (*table, f"ALTER TABLE memories ADD embedding halfvec({DIMENSIONS})"):
            await connection.execute(statement)
        await connection.execute(f"INSERT INTO memories (content, embedding) VALUES ('zero', {_ZERO}), ('one', {_ONE})")
    await migrate(DsnText(database.dsn), request_for(existing_vectors="keep"))
    async with database.connection() as connection:
        assert (
            await connection.fetchval("SELECT string_agg(content, ',') FROM memories WHERE embedding IS NOT NULL")
            == "one"
        )


@pytest.mark.finding("database F11")
async def test_a_text_that_gets_a_vector_of_length_zero_fails_alone(bench: Workbench) -> None:
    """It is tried as often as any text that an embedder refuses, and then left."""
    await bench.insert("one", "lost", "two")

    def answer(texts: list[str]) -> Any:
        zero = np.zeros(DIMENSIONS, dtype=np.float32)
        return good_answer(
            [zero if text == "lost" else vector_of(text, DIMENSIONS) for text in texts], bench.embedder.digest
        )

    bench.embedder.behaviour = answer
    result = await bench.backfill()
    assert (result.complete, result.tally.embedded, result.tally.quarantined) == (True, 2, 1)
    assert await bench.value("SELECT error_class FROM memory_embedding_failures") == "EmbedderBroken"


@pytest.mark.finding("database F11")
async def test_a_swap_keeps_them_out_of_both_columns(bench: Workbench) -> None:
    await bench.insert("one")
    async with bench.database.connection() as connection:
        table = await describe(connection, "memories")
        await connection.execute(
            "INSERT INTO memory_index_models (name, dimensions) SELECT 'next', dimensions FROM memory_index_models"
        )
        async with connection.transaction():
            for statement in add_standby(table, DIMENSIONS):
                await connection.execute(statement)
        await connection.execute("SET memory_index.writer = 'guarded'")
        for _ in range(2):
            await connection.execute(f"UPDATE memories SET embedding = {_ZERO}, embedding_standby = {_ZERO}")
            assert await connection.fetchval("SELECT num_nonnulls(embedding, embedding_standby) FROM memories") == 0
            table = await describe(connection, "memories")
            async with connection.transaction():
                for statement in exchange(table, 2):
                    await connection.execute(statement)
