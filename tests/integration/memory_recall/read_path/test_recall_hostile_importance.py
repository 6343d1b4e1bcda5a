"""A row's importance is what its writer likes: it neither puts the row before all others nor ends recalls."""

from typing import Any

import pytest

from memory_recall import SortBy
from memory_recall.search.sql.visibility import Everyone
from tests.integration.memory_recall.queries import make_query
from tests.integration.memory_recall.read_path.test_recall_route import client
from tests.integration.memory_recall.read_path.vectors import axis

TOO_MUCH = ["NaN", "Infinity", "1e30", "1e400"]
TOO_LITTLE = ["-Infinity", "-1e30"]


@pytest.fixture(params=TOO_MUCH + TOO_LITTLE)
async def hostile(memories: Any, request: pytest.FixtureRequest) -> str:
    """A row that fits worse than two others, whose importance is no number from 0 to 1."""
    await memories.pool.execute("ALTER TABLE memories ALTER COLUMN importance TYPE numeric")
    await memories.add("the kettle", user_id="ana", importance=1, vector=axis(1.0))
    await memories.add("the kettle", user_id="ana", importance=0, vector=axis(1.0))
    worse = await memories.add("the kettle and much else besides", user_id="eve", vector=axis(0.5, 0.9))
    await memories.pool.execute(f"UPDATE memories SET importance = '{request.param}' WHERE id = {worse}")
    return str(request.param)


@pytest.mark.parametrize("lexical", ["bm25", "ts_rank"])
@pytest.mark.parametrize(("mode", "sort_by"), [("hybrid", SortBy.RELEVANCE), ("lexical", SortBy.IMPORTANCE)])
async def test_an_importance_beyond_its_range_counts_as_its_nearest_end(
    memories: Any, embedder: Any, hostile: str, *, lexical: str, mode: str, sort_by: SortBy
) -> None:
    embedder.vectors["kettle"] = axis(1.0)
    recall = memories.recalling(embedder, lexical=lexical)
    query = make_query("kettle", user_id=Everyone("ana"), mode=mode, sort_by=sort_by)
    found = (await recall.recall(query)).memories
    assert (found[0].content, found[0].importance) == ("the kettle", 1)
    nearest = 1 if hostile in TOO_MUCH else 0
    await memories.pool.execute("UPDATE memories SET importance = $1 WHERE content LIKE '%besides'", nearest)
    again = (await recall.recall(query)).memories
    assert [(one.content, one.rank) for one in found] == [(one.content, one.rank) for one in again]


async def test_everybody_is_answered_in_json_beside_such_a_row(memories: Any, embedder: Any, hostile: str) -> None:
    async with client(memories.recalling(embedder), scope="everyone") as http:
        response = await http.post("/api/memories/recall", json={"context": "kettle"})
    assert response.status_code == 200
    found = {memory["content"]: memory["importance"] for memory in response.json()["memories"]}
    expected = None if hostile in {"NaN", "Infinity", "-Infinity", "1e400"} else float(hostile)
    assert found["the kettle and much else besides"] == expected
