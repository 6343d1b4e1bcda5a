"""Names and texts stay names and texts in our SQL, whatever characters they have and however strings are read."""

from collections.abc import Callable
from typing import Any

import asyncpg
import pytest

from memory_recall.embedding.profiles import ModelProfile
from memory_recall.postgres.connection import DsnText, create_pool
from memory_recall.schema.ddl import literal
from memory_recall.schema.migrate import MigrationRequest
from memory_recall.search.hybrid_recall import HybridRecall
from memory_recall.search.options import RecallOptions
from tests.integration.conftest import Database
from tests.integration.memory_recall.queries import make_query
from tests.integration.memory_recall.read_path.vectors import axis
from tests.integration.memory_recall.workbench import migrate_and_index

HOSTILE = "\\' || (SELECT current_user) || \\'"
VECTOR = 'array_fill(0.5::real, ARRAY[8])::"odd "" one".halfvec'


async def both_legs_find(database: Database, text: str) -> bool:
    class Embedder:
        model = "tiny"

        async def embed_query(self, _text: str) -> list[float]:
            return axis(1.0)

    pool = await create_pool(DsnText(database.dsn), max_size=2)
    recall = HybridRecall(pool, Embedder(), RecallOptions(embedding_budget=5.0, time_budget=60.0))
    try:
        result = await recall.recall(make_query(text))
    finally:
        await recall.close()
        await pool.close()
    return result.reason is None and bool(result.memories)


@pytest.mark.finding("L13")
async def test_pgvector_may_live_in_a_schema_of_any_name(
    bare_database: Database, request_for: Callable[..., MigrationRequest]
) -> None:
    """L13: its operator is named with its schema, which is quoted."""
    admin = await asyncpg.connect(bare_database.superuser_dsn)
    await admin.execute('CREATE SCHEMA "odd "" one"; GRANT USAGE ON SCHEMA "odd "" one" TO app')
    await admin.execute('CREATE EXTENSION vector SCHEMA "odd "" one"')
    await admin.close()
    await migrate_and_index(DsnText(bare_database.dsn), request_for())
    async with bare_database.connection() as connection:
        await connection.execute(f"INSERT INTO memories (content, embedding) VALUES ('kettle', {VECTOR})")
    assert await both_legs_find(bare_database, "kettle")


@pytest.mark.finding("L13")
@pytest.mark.parametrize("conforming", ["on", "off"])
async def test_backslashes_are_characters_however_the_server_reads_strings(
    database: Database, request_for: Callable[..., MigrationRequest], conforming: str
) -> None:
    """L13: `standard_conforming_strings = off` makes a backslash an escape in plain literals, ours included."""
    admin = await asyncpg.connect(database.superuser_dsn)
    await admin.execute(f"ALTER DATABASE {database.name} SET standard_conforming_strings = {conforming}")
    await admin.close()
    profile = ModelProfile("tiny", 8, 256, "mean", query_prefix=HOSTILE, document_prefix="C:\\temp\\new")
    await migrate_and_index(DsnText(database.dsn), request_for(model="tiny"))
    request: Any = request_for(table="notes")
    async with database.connection() as connection:
        await connection.execute("CREATE TABLE notes (LIKE memories INCLUDING ALL)")
        await connection.execute("ALTER TABLE notes DROP COLUMN embedding")
        for text in (HOSTILE, "plain", "it's", "a\\"):
            assert await connection.fetchval(f"SELECT {literal(text)}") == text
        await migrate_and_index(
            DsnText(database.dsn), MigrationRequest("notes", profile, request.migrations, lock_seconds=20)
        )
        stored = await connection.fetchrow("SELECT query_prefix, document_prefix FROM memory_index_models__notes")
        assert tuple(stored or ()) == (HOSTILE, "C:\\temp\\new")
        insert = "INSERT INTO memories (content, embedding) VALUES ($1, array_fill(0.5::real, ARRAY[8])::halfvec)"
        await connection.execute(insert, "the path is C:\\temp\\new")
    assert await both_legs_find(database, "C:\\temp\\new 'quoted' \\")
