"""A running API notices nothing of a flip: it follows to the next model by itself and never compares across models."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import asyncpg
import pytest

from memory_recall.embedding.client import EmbedderClient
from memory_recall.embedding.following import FollowingEmbedder
from memory_recall.indexing.embedders import EmbedderDirectory
from memory_recall.indexing.sync import sync
from memory_recall.postgres.connection import create_pool
from memory_recall.schema.models_sql import record_address
from memory_recall.schema.table import describe
from memory_recall.search.hybrid_recall import HybridRecall
from memory_recall.search.options import RecallOptions
from memory_recall.search.result import Degraded
from memory_recall.swap.standby import maintain_standby
from tests.integration.memory_recall.queries import make_query
from tests.integration.memory_recall.read_path.links import enable_graph, link
from tests.integration.memory_recall.swap.conftest import SwapBench

BUDGET = 10.0


class OneConnection:
    """A pool of one connection that keeps its transaction between two recalls."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def acquire(self) -> Any:
        return self._connection

    async def release(self, _connection: Any) -> None:
        pass


@asynccontextmanager
async def recalling(swaps: SwapBench, **options: object) -> AsyncIterator[HybridRecall]:
    pool = await create_pool(swaps.source, max_size=4)
    embedder = FollowingEmbedder(swaps.work.embedder.url, "tiny", **options)
    recall = HybridRecall(pool, embedder, RecallOptions(embedding_budget=BUDGET, time_budget=4 * BUDGET))
    try:
        yield recall
    finally:
        await recall.close()
        await embedder.close()
        await pool.close()


async def test_the_first_recall_after_the_flip_already_uses_the_next_model(swaps: SwapBench) -> None:
    async with recalling(swaps) as recall:
        assert (await recall.recall(make_query("text 7", mode="dense"))).reason is None
        await swaps.swap()
        result = await recall.recall(make_query("text 7", mode="dense"))
        assert result.reason is None
        assert result.memories[0].content == "text 7"
        assert result.memories[0].evidence.dense_score == pytest.approx(1, abs=0.01)


async def test_the_graph_leg_is_the_same_before_and_after_the_flip(swaps: SwapBench) -> None:
    """Its links belong to texts, so that neither the standby column nor the exchange of columns touches them."""
    await enable_graph(swaps.work.database.dsn)
    async with swaps.work.database.connection() as connection:
        ids = dict(await connection.fetch("SELECT content, id FROM memories"))
        await link(connection, {ids["text 7"]: "seven", ids["text 8"]: "seven"})
    async with recalling(swaps) as recall:
        for flips in range(2):
            if flips:
                await swaps.swap()
            result = await recall.recall(make_query("text 7", limit=100))
            reached = {one.id: one.evidence.graph_score for one in result.memories if one.evidence.graph_score}
            assert (result.reason, reached[ids["text 8"]]) == (None, 1.0)


async def test_recalls_follow_to_a_model_of_other_dimensions_and_back(swaps: SwapBench) -> None:
    swaps.following.dimensions = 12
    async with recalling(swaps) as recall:
        await recall.recall(make_query("text 7"))
        for back in (False, True):
            await swaps.swap(back=back)
            result = await recall.recall(make_query("text 7", mode="dense"))
            assert (result.reason, result.memories[0].content) == (None, "text 7")


async def test_recalls_follow_when_the_old_embedder_is_gone(swaps: SwapBench) -> None:
    async with recalling(swaps) as recall:
        await swaps.swap()
        await swaps.work.embedder.stop()
        assert (await recall.recall(make_query("text 7", mode="dense"))).reason is None


@pytest.mark.promise("addresses-from-the-database")
async def test_an_untrusted_embedder_address_is_not_followed(swaps: SwapBench) -> None:
    """A person who can write to the database must not be able to redirect queries to any address."""
    await swaps.swap()
    connection = await asyncpg.connect(swaps.work.database.dsn)
    active = (await swaps.roles()).active
    await record_address(connection, await describe(connection, "memories"), active.id, "http://evil.example.org:80")
    await connection.close()
    async with recalling(swaps) as recall:
        assert (await recall.recall(make_query("text 7"))).reason is Degraded.MODEL_MISMATCH


async def test_a_flip_between_snapshot_and_statement_is_not_a_comparison_across_models(swaps: SwapBench) -> None:
    """In a REPEATABLE READ transaction the state table still names the old model, but the column is the new one's."""
    await swaps.swap(flip=False)
    connection = await asyncpg.connect(swaps.work.database.dsn)
    embedder = EmbedderClient(swaps.work.embedder.url, "tiny")
    recall = HybridRecall(
        OneConnection(connection), embedder, RecallOptions(embedding_budget=BUDGET, time_budget=4 * BUDGET)
    )
    assert (await recall.recall(make_query("text 7"))).reason is None
    await connection.transaction(isolation="repeatable_read").start()
    seen = "SELECT name FROM memory_index_models WHERE id = (SELECT active_model FROM memory_index_state)"
    assert await connection.fetchval(seen) == "tiny"  # the snapshot is taken; no lock on the memories is
    assert (await swaps.swap()).stage == "flipped"
    result = await recall.recall(make_query("text 7"))
    assert await connection.fetchval(seen) == "tiny"
    assert result.reason is Degraded.MODEL_MISMATCH
    assert all(memory.evidence.dense_score is None for memory in result.memories)
    await recall.close()
    await embedder.close()
    await connection.close()


async def test_recalls_during_a_swap_never_fail_and_never_degrade(swaps: SwapBench) -> None:
    reasons: list[object] = []
    done = asyncio.Event()
    async with recalling(swaps) as recall:

        async def ask() -> None:
            while not done.is_set():
                reasons.append((await recall.recall(make_query("text 7"))).reason)
                await asyncio.sleep(0.01)

        asking = [asyncio.create_task(ask()) for _ in range(3)]
        for back in (False, True):
            await swaps.swap(back=back)
        done.set()
        await asyncio.gather(*asking)
    assert len(reasons) > 20
    assert set(reasons) == {None}


async def test_sync_keeps_both_columns_fresh_and_goes_on_after_the_flip(swaps: SwapBench) -> None:
    stop = asyncio.Event()
    client = EmbedderClient(swaps.work.embedder.url, "tiny", timeout=10)
    async with (
        client,
        EmbedderDirectory(
            client,
            lambda url, name: EmbedderClient(url, name, timeout=10),
            model=client.model or "",
            url=client.base_url,
        ) as directory,
    ):
        plan, ear = swaps.work.plan, swaps.work.ear
        beside = (partial(maintain_standby, swaps.source, directory, plan, ear),)
        worker = asyncio.create_task(
            sync(swaps.source, directory, plan, poll_seconds=0.1, progress=ear, stop=stop, companions=beside)
        )
        await swaps.swap(flip=False)
        await swaps.work.execute("UPDATE memories SET content = 'edited' WHERE id = 5")
        await swaps.work.until_value(
            "SELECT bool_and(embedding IS NOT NULL AND embedding_standby IS NOT NULL) FROM memories"
        )
        assert await swaps.problems() == []
        await swaps.swap()
        await swaps.work.execute("UPDATE memories SET content = 'edited later' WHERE id = 6")
        await swaps.work.until_value("SELECT bool_and(embedding IS NOT NULL) FROM memories")
        assert await swaps.problems() == []
        stop.set()
        await worker
