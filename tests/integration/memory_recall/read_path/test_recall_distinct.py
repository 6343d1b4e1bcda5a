"""Near-copies of one fact take one place of a page, and different facts keep theirs."""

import math
from typing import Any

import pytest

from memory_recall.search.sql.distinct import COPY_COSINE
from tests.integration.memory_recall.queries import make_query
from tests.integration.memory_recall.read_path.vectors import axis

QUERY = "boiler service"


def turned(cosine: float, place: int = 0) -> list[float]:
    """A vector with this cosine to the query's, turned away from it in a direction of its own."""
    return axis(cosine, *[0.0] * place, math.sqrt(1 - cosine * cosine))


async def ids(recall: Any, **options: Any) -> list[int]:
    return list((await recall.recall(make_query(QUERY, **options))).ids)


async def test_eight_copies_take_one_of_five_places(memories: Any, embedder: Any) -> None:
    """And the other places go to different facts, which the copies had crowded out."""
    copies = [await memories.add(f"The boiler was serviced, note {n}", vector=turned(0.99)) for n in range(8)]
    others = [await memories.add(f"Fact {n}", vector=turned(0.5, n)) for n in range(1, 5)]
    recall = memories.recalling(embedder)
    assert set(await ids(recall, limit=5)) < set(copies)
    found = await ids(recall, limit=5, distinct=True)
    assert len(set(found) & set(copies)) == 1
    assert found[0] in copies
    assert set(found[1:]) == set(others)
    rows = await recall.recall_rows(make_query(QUERY, limit=5, distinct=True))
    assert [row["id"] for row in rows] == found


@pytest.mark.parametrize(("cosine", "count"), [(COPY_COSINE + 0.005, 1), (COPY_COSINE - 0.005, 2)])
async def test_a_copy_has_at_least_the_cosine_of_copies(
    memories: Any, embedder: Any, cosine: float, count: int
) -> None:
    await memories.add("First", vector=axis(1.0))
    await memories.add("Second", vector=turned(cosine))
    assert len(await ids(memories.recalling(embedder), distinct=True)) == count


async def test_pages_of_a_distinct_recall_follow_one_another_without_a_copy(memories: Any, embedder: Any) -> None:
    """The offset counts what is left after the copies are left out."""
    for n in range(6):
        await memories.add(f"Fact {n}", vector=turned(0.9 - n / 20, n))
        await memories.add(f"The same as fact {n}", vector=turned(0.9 - n / 20, n))
    recall = memories.recalling(embedder)
    whole = await ids(recall, limit=10, distinct=True)
    assert len(whole) == 6
    pages = [await ids(recall, limit=2, offset=offset, distinct=True) for offset in (0, 2, 4, 6)]
    assert [one for page in pages for one in page] == whole


async def test_without_vectors_memories_of_equal_content_are_copies_unless_they_are_sensitive(memories: Any) -> None:
    """The reader's own sensitive memories are found by their words, and their contents are not compared."""
    for sensitive in (False, False, True, True):
        await memories.add("boiler service", user_id="ana", sensitive=sensitive)
    await memories.add("boiler service in May", user_id="ana")
    recall = memories.recalling(None)
    result = await recall.recall(make_query(QUERY, user_id="ana", distinct=True))
    assert sorted(one.is_sensitive for one in result.memories) == [False, False, True, True]


async def test_where_another_model_is_active_vectors_are_not_compared(memories: Any, embedder: Any) -> None:
    """The dense leg takes no part, so that only equal contents are copies."""
    for content in ("boiler service", "boiler service", "boiler service in May"):
        await memories.add(content, vector=axis(1.0))
    await memories.pool.execute("UPDATE memory_index_models SET name = 'another'")
    result = await memories.recalling(embedder).recall(make_query(QUERY, distinct=True))
    assert (result.degraded, len(result.ids)) == (True, 2)
