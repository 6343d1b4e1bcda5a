"""A vector of length zero, to which every cosine is NaN, spoils no recall and no proposal, should one be stored."""

import math
from typing import Any

import pytest

from memory_recall import InvalidInput, RecallQuery
from memory_recall.hnsw.check import measure_index
from memory_recall.hnsw.definition import inspect_index
from memory_recall.schema.table import describe
from memory_recall.search.query import EmbeddedQuery
from memory_recall.search.result import Degraded
from tests.integration.memory_recall.queries import make_query
from tests.integration.memory_recall.read_path.conftest import ChosenEmbedder, Memories
from tests.integration.memory_recall.read_path.links import enable_graph, link
from tests.integration.memory_recall.read_path.vectors import axis

_ZERO = axis(0.0)
_TEXT = "heating trouble"


@pytest.fixture
async def spoiled(memories: Memories) -> tuple[Memories, int]:
    """Five memories with vectors, and the id of one whose vector has the length zero, past the rules."""
    for number in range(5):
        await memories.add(f"heating {number}", vector=axis(1.0, number / 10))
    spoiled = await memories.add("heating trouble of the boiler", vector=axis(1.0))
    await memories.pool.execute("ALTER TABLE memories DISABLE TRIGGER zz_memory_index_direction")
    await memories.pool.execute("UPDATE memories SET embedding = $2::real[]::halfvec WHERE id = $1", spoiled, _ZERO)
    await memories.pool.execute("ALTER TABLE memories ENABLE ALWAYS TRIGGER zz_memory_index_direction")
    async with memories.pool.acquire(), memories.pool.acquire():
        pass  # so that two connections are idle
    return memories, spoiled


@pytest.fixture(params=["one statement", "three statements"])
def _either_form(request: pytest.FixtureRequest) -> None:
    if request.param == "three statements":
        request.getfixturevalue("fetched")


@pytest.mark.usefixtures("_either_form")
async def test_it_is_no_copy_of_any_memory(spoiled: tuple[Memories, int], embedder: ChosenEmbedder) -> None:
    """The other five, which are alike, are copies of one of them."""
    memories, zero = spoiled
    found = await memories.recalling(embedder).recall(make_query(_TEXT, distinct=True))
    assert zero in found.ids
    assert len(found.ids) < 6


@pytest.mark.finding("database F11")
@pytest.mark.usefixtures("_either_form")
@pytest.mark.parametrize("mode", ["dense", "hybrid"])
@pytest.mark.parametrize("index", [True, False])
async def test_every_rank_is_a_number_and_the_nearest_come_first(
    spoiled: tuple[Memories, int], embedder: ChosenEmbedder, mode: Any, index: bool
) -> None:
    memories, zero = spoiled
    if not index:
        await memories.pool.execute("DROP INDEX idx_memories_embedding")
    found = await memories.recalling(embedder, require_index=index).recall(make_query(_TEXT, mode=mode))
    assert found.reason is None
    assert all(math.isfinite(memory.rank) for memory in found.memories)
    dense = [memory.id for memory in found.memories if memory.evidence.dense_rank is not None]
    assert dense == sorted(dense)
    assert zero not in dense
    assert (zero in found.ids) == (mode == "hybrid")
    assert {memory.evidence.dense_score for memory in found.memories if memory.id == zero} <= {None}


@pytest.mark.finding("database F11")
async def test_a_memory_that_the_graph_reached_has_a_rank_too(
    spoiled: tuple[Memories, int], embedder: ChosenEmbedder, database: Any
) -> None:
    memories, zero = spoiled
    await enable_graph(database.dsn)
    await memories.pool.execute("UPDATE memories SET content = 'the mast' WHERE id = $1", zero)
    await link(memories.pool, {1: "mast", zero: "mast"})
    found = await memories.recalling(embedder).recall(make_query(_TEXT))
    (reached,) = (memory.evidence for memory in found.memories if memory.id == zero)
    assert (reached.graph_score, reached.dense_score) == (1.0, None)
    assert all(math.isfinite(memory.rank) for memory in found.memories)


@pytest.mark.finding("database F11")
async def test_the_check_of_the_index_passes_over_such_a_vector(spoiled: tuple[Memories, int]) -> None:
    memories, _ = spoiled
    async with memories.pool.acquire() as connection:
        table = await describe(connection, "memories")
        assert await measure_index(connection, table, await inspect_index(connection, table), sample=10) == 1.0


@pytest.mark.finding("database F11")
async def test_a_query_whose_vector_has_the_length_zero_is_refused(embedder: ChosenEmbedder) -> None:
    with pytest.raises(InvalidInput, match="`vector` cannot be used"):
        RecallQuery(_TEXT, user_id="ana", vector=EmbeddedQuery(axis(1e-9), None))
    assert RecallQuery(_TEXT, user_id="ana", vector=EmbeddedQuery(axis(1e-7), None)).vector is not None


@pytest.mark.finding("database F11")
async def test_an_embedder_that_gives_a_query_no_direction_has_failed(
    memories: Memories, embedder: ChosenEmbedder
) -> None:
    await memories.add(_TEXT, vector=axis(1.0))
    embedder.vectors[_TEXT] = _ZERO
    found = await memories.recalling(embedder).recall(make_query(_TEXT))
    assert (found.reason, len(found.memories)) == (Degraded.EMBEDDER_FAILED, 1)
