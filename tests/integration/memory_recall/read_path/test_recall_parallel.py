"""A recall of a large table runs its legs on two connections, and gives what one statement would have given."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from memory_recall.search.fusion import Fusion
from memory_recall.search.hybrid_recall import HybridRecall
from memory_recall.search.options import RecallOptions
from memory_recall.search.period import Period
from memory_recall.search.sql import bm25, parallel
from memory_recall.search.sql.filters import Filters
from tests.integration.conftest import Database
from tests.integration.memory_recall.queries import make_query
from tests.integration.memory_recall.read_path.conftest import LONG_BUDGET, CopyWith, Memories, fill_rankings
from tests.integration.memory_recall.read_path.splitting import Fetched, judged

LAST_WEEK = Period(datetime.now(UTC) - timedelta(days=7), datetime.now(UTC))
RECALLS: dict[str, dict[str, Any]] = {
    "plain": {},
    "second page": {"limit": 7, "offset": 20},
    "deep": {"limit": 60},
    "by importance": {"sort_by": "importance"},
    "one user": {"user_id": "ana"},
    "category and time": {"filters": Filters(category="facts", since=datetime(2020, 1, 1, tzinfo=UTC))},
    "reciprocal ranks": {"fusion": Fusion(method="rrf")},
    "with their relevance": {"least_relevance": 0.0},
    "likely ones": {"least_relevance": "likely"},
    "without copies": {"distinct": True, "limit": 7},
    "scaled by the list": {"fusion": Fusion(lexical_scale="list", importance=False)},
}


async def fill(memories: Memories) -> None:
    await fill_rankings(memories)
    await memories.pool.execute("UPDATE memory_index_models SET usual_cosine = 0.2")


@pytest.fixture
async def filled_database(copy_with: CopyWith) -> Database:
    """The rows of `filled`, and the usual cosine that levels of relevance need; no test changes them."""
    return await copy_with("rankings with their usual cosine", fill, shared=True)


@pytest.fixture(params=["counted", "estimated"])
def frequencies(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways in which a word's frequency is known."""
    if request.param == "estimated":
        monkeypatch.setattr(bm25, "SMALL_TABLE", 0)


@pytest.mark.parametrize("options", RECALLS.values(), ids=RECALLS)
@pytest.mark.parametrize("query", ["zfs scrub password", "the of", "tomatoes"])
@pytest.mark.usefixtures("frequencies")
async def test_parallel_legs_give_the_answer_of_the_single_statement(
    filled: Any, embedder: Any, fetched: Fetched, query: str, options: Any
) -> None:
    """The same rows in the same order with the same scores."""
    one = await filled.recalling(embedder, parallel_legs=False).recall(make_query(query, **options))
    assert len(fetched.sessions) == 1
    fetched.sessions.clear()
    two = await filled.recalling(embedder).recall(make_query(query, **options))
    assert fetched.split
    assert two.reason is None
    assert judged(two) == judged(one)
    assert (two.relevance_basis, two.held_back) == (one.relevance_basis, one.held_back)
    assert "hunter2" not in repr(two)


async def test_a_time_that_the_query_names_counts_the_same_with_parallel_legs(
    filled: Any, embedder: Any, fetched: Fetched
) -> None:
    one, two = (
        filled.recalling(embedder, parallel_legs=parallel, temporal=lambda *_: LAST_WEEK) for parallel in (False, True)
    )
    assert judged(await two.recall(make_query("zfs scrub"))) == judged(await one.recall(make_query("zfs scrub")))
    assert len(fetched.sessions) == 4


async def test_one_connection_is_enough(filled: Any, filled_database: Any, embedder: Any, fetched: Fetched) -> None:
    """Where the pool has no second one to spare, one statement does it all."""
    async with asyncpg.create_pool(filled_database.dsn, min_size=1, max_size=1) as pool:
        recall = HybridRecall(pool, embedder, RecallOptions(time_budget=LONG_BUDGET))
        result = await asyncio.wait_for(recall.recall(make_query("zfs scrub")), timeout=30)
        await recall.close()
    assert result.ids
    assert len(fetched.sessions) == 1


@dataclass
class Api:
    """A process whose recalls share a pool of its own."""

    dsn: str
    embedder: Any
    fetched: Fetched

    async def recall_at_once(self, *, connections: int, recalls: int) -> list[list[int]]:
        """The ids that so many recalls at the same time give, after one by itself, which takes both connections."""
        async with asyncpg.create_pool(self.dsn, min_size=connections, max_size=connections) as pool:
            recall = HybridRecall(pool, self.embedder, RecallOptions(time_budget=LONG_BUDGET))
            await recall.recall(make_query("zfs scrub"))
            assert self.fetched.split
            self.fetched.sessions.clear()
            pending = asyncio.gather(*(recall.recall(make_query("zfs scrub")) for _ in range(recalls)))
            results = await asyncio.wait_for(pending, timeout=60)
            await recall.close()
        return [one.ids for one in results]


@pytest.fixture
def api(filled_database: Any, embedder: Any, fetched: Fetched) -> Api:
    """Over the rows of `filled`."""
    return Api(filled_database.dsn, embedder, fetched)


async def test_recalls_at_the_same_time_share_the_connections(api: Api) -> None:
    """None waits for a second connection while it holds a first, so that twenty recalls on two connections end."""
    found = await api.recall_at_once(connections=2, recalls=20)
    assert all(ids == found[0] for ids in found)


async def test_a_recall_takes_a_second_connection_only_while_it_is_alone(api: Api, fetched: Fetched) -> None:
    """Others need the processors as much, and are answered later if each takes two."""
    await api.recall_at_once(connections=8, recalls=4)
    assert len(fetched.sessions) <= 4 + 2  # the first may have begun before the others came


async def test_a_recall_of_a_small_table_is_one_statement(
    filled: Any, embedder: Any, fetched: Fetched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second round trip would cost what it saves."""
    monkeypatch.setattr(parallel, "WORTH_SPLITTING", 1_000)
    await filled.recalling(embedder).recall(make_query("zfs scrub"))
    assert len(fetched.sessions) == 1
