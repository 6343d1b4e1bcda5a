"""Behind a real PgBouncer recalls work, and what needs a session of its own is refused with a clear error."""

import asyncio
from collections.abc import Callable

import pytest

from memory_recall.errors import PoolerRefused
from memory_recall.indexing.backfill import backfill
from memory_recall.indexing.sync import sync
from memory_recall.postgres.connection import DsnText, create_pool
from memory_recall.schema.migrate import MigrationRequest, migrate
from memory_recall.search.hybrid_recall import HybridRecall
from memory_recall.search.options import RecallOptions
from tests.integration.conftest import Database
from tests.integration.memory_recall.fake_embedder import vector_of
from tests.integration.memory_recall.poolers import pgbouncer
from tests.integration.memory_recall.queries import make_query
from tests.integration.memory_recall.workbench import DIMENSIONS, Workbench, migrate_and_index

MODES = pytest.mark.parametrize("mode", ["transaction", "session"])


@MODES
async def test_migrations_are_refused_before_anything_changes(
    database: Database, request_for: Callable[..., MigrationRequest], mode: str
) -> None:
    async with pgbouncer(database, mode=mode) as dsn:
        with pytest.raises(PoolerRefused, match="-rw service"):
            await migrate(DsnText(dsn), request_for())
    async with database.connection() as connection:
        assert await connection.fetchval("SELECT to_regclass('memories')") is None


@MODES
async def test_workers_are_refused_and_embed_nothing(bench: Workbench, mode: str) -> None:
    await bench.insert("text")
    async with pgbouncer(bench.database, mode=mode) as dsn, bench.client() as client:
        with pytest.raises(PoolerRefused, match="-rw service"):
            await backfill(DsnText(dsn), client, bench.plan, progress=bench.ear, stop=bench.stop)
        with pytest.raises(PoolerRefused, match="-rw service"):
            await sync(DsnText(dsn), client, bench.plan, poll_seconds=1, progress=bench.ear, stop=bench.stop)
    assert bench.embedder.requests == 0


class Exact:
    """Embeds a query as the fake embedder embeds a document."""

    model = "tiny"

    async def embed_query(self, text: str) -> list[float]:
        vector: list[float] = vector_of(text, DIMENSIONS).tolist()
        return vector


async def test_recalls_behind_a_pooler_in_transaction_mode_have_both_legs(
    bench: Workbench, request_for: Callable[..., MigrationRequest]
) -> None:
    """More callers than sessions, so each transaction may get another one."""
    texts = [f"memory of number {number}" for number in range(40)]
    await bench.insert(*texts)
    await bench.backfill()
    await migrate_and_index(DsnText(bench.database.dsn), request_for())
    async with pgbouncer(bench.database, mode="transaction") as dsn:
        pool = await create_pool(DsnText(dsn), min_size=1, max_size=8, statement_cache_size=0)
        recall = HybridRecall(pool, Exact(), RecallOptions(embedding_budget=10.0, time_budget=60.0))
        try:
            results = await asyncio.gather(*(recall.recall(make_query(text, mode="dense", limit=1)) for text in texts))
        finally:
            await recall.close()
            await pool.close()
    assert [result.reason for result in results] == [None] * 40
    assert [result.memories[0].content for result in results] == texts
