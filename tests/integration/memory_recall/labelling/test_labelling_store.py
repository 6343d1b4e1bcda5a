"""What labelling reads from the database: draws, memories and pools, and never a sensitive one."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from memory_recall.contrib.labelling.labels import Asked
from memory_recall.contrib.labelling.store import PostgresStore, ShownMemory
from memory_recall.evaluation.evaluate import RecallDegraded, embed_questions, parse_questions
from memory_recall.evaluation.tuning import settings as fusions
from memory_recall.postgres.connection import DsnText, create_pool
from memory_recall.schema.table import describe
from memory_recall.search.fusion import default_fusion
from memory_recall.search.hybrid_recall import HybridRecall
from memory_recall.search.options import RecallOptions
from memory_recall.search.query import RecallQuery
from tests.integration.memory_recall.fake_embedder import vector_of

ROWS = 40


@pytest.fixture
async def stored(bench: Any) -> AsyncIterator[tuple[PostgresStore, HybridRecall, Any]]:
    """Forty memories, of which the even ones are about tomatoes; the first is sensitive and the second deleted."""
    async with bench.database.connection() as connection:
        for number in range(1, ROWS + 1):
            text = f"note {number} on {'tomatoes' if number % 2 == 0 else 'peppers'}"
            vector = [float(one) for one in vector_of(text, 8)]
            insert = "INSERT INTO memories (content, user_id, embedding) VALUES ($1, $2, $3::real[]::halfvec)"
            await connection.execute(insert, text, "ana" if number % 4 else "ben", vector)
        await connection.execute("UPDATE memories SET is_sensitive = true WHERE id = 1")
        await connection.execute("UPDATE memories SET deleted_at = now() WHERE id = 2")
        table = await describe(connection, "memories")
    async with AsyncExitStack() as closing:
        pool = await create_pool(DsnText(bench.database.dsn), max_size=2)
        closing.push_async_callback(pool.close)
        client = await closing.enter_async_context(bench.client())
        legs = [
            HybridRecall(pool, None, RecallOptions(lexical=lexical, require_index=False, time_budget=60))
            for lexical in ("bm25", "ts_rank")
        ]
        for leg in legs:
            closing.push_async_callback(leg.close)
        yield PostgresStore(pool, table, legs, client), legs[0], client


async def test_a_seed_draws_the_same_memories_again_and_never_a_sensitive_or_deleted_one(stored: Any) -> None:
    store, _, _ = stored
    everything = await store.draw(ROWS, seed=1, user=None, without=[])
    assert sorted(everything) == list(range(3, ROWS + 1))
    assert await store.draw(5, seed=1, user=None, without=[]) == everything[:5]
    assert await store.draw(5, seed=1, user=None, without=everything[:5]) == everything[5:10]
    assert await store.draw(5, seed=2, user=None, without=[]) != everything[:5]
    assert sorted(await store.draw(ROWS, seed=1, user="ben", without=[])) == list(range(4, ROWS + 1, 4))


async def test_a_sensitive_or_deleted_memory_cannot_be_read(stored: Any) -> None:
    store, _, _ = stored
    assert [await store.read(one, user=None) for one in (1, 2, ROWS + 1)] == [None, None, None]
    shown = await store.read(3, user=None)
    assert isinstance(shown, ShownMemory)
    assert shown.content == "note 3 on peppers"


@pytest.mark.finding("database F0")
async def test_a_memory_of_another_user_than_the_questions_cannot_be_read(stored: Any) -> None:
    store, _, _ = stored
    assert await store.read(3, user="ana") == await store.read(3, user=None)
    assert await store.read(3, user="ben") is None
    assert 4 not in await store.pool(Asked(query_id="q", text="anything", stratum="s", conv="ana", known=[4]))


@pytest.mark.promise("labelling-without-sensitive-memory")
@pytest.mark.parametrize("conv", [None, "ana"])
async def test_a_pool_holds_what_every_leg_and_fusion_finds_and_nothing_sensitive(
    conv: str | None, stored: Any
) -> None:
    """Also where the user whose memories are searched owns the sensitive one; and what an import names is added."""
    store, recall, client = stored
    text = "tomatoes or peppers, note 1"
    pool = await store.pool(Asked(query_id="q", text=text, stratum="s", conv=conv, known=[1, 2, 39]))
    (question,) = parse_questions([f'{{"text": "{text}", "relevant_ids": [1], "conv": "{conv or ""}"}}'])
    vector = (await embed_questions([question], client))[text]
    for mode in ("lexical", "dense"):
        found = await recall.recall(RecallQuery(text, user_id=question.user_id, mode=mode, vector=vector))
        assert {one.id for one in found.memories if not one.is_sensitive} <= set(pool), mode
    for fusion in fusions(default_fusion(vector.model)):
        found = await recall.recall(RecallQuery(text, user_id=question.user_id, vector=vector, fusion=fusion))
        assert {one.id for one in found.memories if not one.is_sensitive} <= set(pool), fusion
    assert 39 in pool
    assert not {1, 2} & set(pool)
    assert pool == sorted(pool)


async def test_a_pool_without_the_dense_leg_is_refused(stored: Any) -> None:
    """Its answers would never be judged, and count as wrong. Here the index is missing."""
    store, _, client = stored
    leg = HybridRecall(store._pool)
    with pytest.raises(RecallDegraded, match="IndexMissing"):
        await PostgresStore(store._pool, store._table, [leg], client).pool(
            Asked(query_id="q", text="tomatoes", stratum="s")
        )
    await leg.close()
