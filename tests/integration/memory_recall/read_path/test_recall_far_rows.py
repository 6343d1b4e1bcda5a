"""Memories that match a filter and lie farther from the query than those that do not, which the index yields first."""

from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from memory_recall.hnsw.repair import build_index
from memory_recall.postgres.connection import DsnText
from memory_recall.search.sql import statement as statements
from memory_recall.search.sql.filters import Filters
from tests.integration.conftest import Database
from tests.integration.memory_recall.queries import make_query
from tests.integration.memory_recall.read_path.conftest import CopyWith, Memories, open_memories
from tests.integration.memory_recall.read_path.vectors import axis
from tests.integration.memory_recall.workbench import INDEX

_NEAR, _FAR = 3_000, 600
_QUESTION = np.array(axis(1.0, 0.5))
_SCANNED = {"hnsw.max_scan_tuples": "500"}
_RANDOM = np.random.default_rng(7)
_VECTORS = np.concatenate(
    [
        np.hstack([np.ones((_NEAR, 1)), _RANDOM.uniform(-0.5, 0.5, size=(_NEAR, 7))]),
        np.hstack([-np.ones((_FAR, 1)), _RANDOM.uniform(-1, 1, size=(_FAR, 7))]),
    ]
)


@pytest.fixture
async def database(copy_with: CopyWith) -> Database:
    """A database in which 600 memories are farther from the question than all others."""

    async def fill(memories: Memories) -> None:
        await memories.pool.execute("DROP INDEX idx_memories_embedding, idx_memories_user")  # the one is built anew
        await memories.pool.executemany(
            "INSERT INTO memories (id, content, user_id, category, tags, embedding)"
            " VALUES ($1, 'a note', $2::text, $2::text, $2::text || ', other', $3::real[]::halfvec)",
            [(n, "far" if n >= _NEAR else "near", vector) for n, vector in enumerate(_VECTORS.tolist())],
        )
        await memories.pool.execute("ANALYZE memories")

    return await copy_with("memories far from a question", fill)


@pytest.fixture
async def memories(database: Database, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Memories]:
    """The table, of which a scan of the index reads 500 memories. The planner may read it whole only without it."""
    monkeypatch.setattr(statements, "_FILTERED_SCAN", _SCANNED)
    await build_index(DsnText(database.dsn), "memories", INDEX)
    async with database.connection() as owner:
        await owner.execute(f"ALTER DATABASE {database.name} SET enable_seqscan = off")
    async with open_memories(database) as store:
        async with store.pool.acquire(), store.pool.acquire():
            pass  # so that two connections are idle
        yield store


def _nearest(number: int) -> set[int]:
    far = _VECTORS[_NEAR:]
    cosines = far @ _QUESTION / np.linalg.norm(far, axis=1)
    return {_NEAR + int(place) for place in np.argsort(-cosines)[:number]}


async def _found(memories: Memories, embedder: Any, **asked: Any) -> set[int]:
    embedder.vectors["unrelated"] = _QUESTION.tolist()
    result = await memories.recalling(embedder).recall(make_query("unrelated", limit=50, **asked))
    assert not result.degraded
    return {one.id for one in result.memories if isinstance(one.id, int) and one.evidence.dense_rank}


@pytest.mark.parametrize("form", ["one statement", "three statements"])
@pytest.mark.parametrize(
    "asked", [{"user_id": "far"}, {"filters": Filters(category="far")}, {"filters": Filters(tags=("far",))}]
)
async def test_a_filtered_dense_leg_finds_the_nearest_memories_however_far_from_the_query_they_are(
    asked: dict[str, Any], form: str, memories: Memories, embedder: Any, request: pytest.FixtureRequest
) -> None:
    if form == "three statements":
        assert not request.getfixturevalue("fetched").sessions
    found = await _found(memories, embedder, **asked)
    assert len(found) == 50
    assert len(found & _nearest(50)) >= 49  # a `halfvec` is rounded


async def test_in_a_large_table_the_filtered_dense_leg_ends_with_the_scan_of_the_index(
    memories: Memories, embedder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To read all of it for a filter that no index serves would take longer than a recall may."""
    monkeypatch.setattr(statements, "_LARGEST_TABLE_WITHOUT_INDEX", _NEAR)
    assert not await _found(memories, embedder, user_id="far")


async def test_of_very_many_matching_memories_only_some_are_compared(
    memories: Memories, embedder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statements, "_MOST_ROWS_WITHOUT_INDEX", 100)
    found = await _found(memories, embedder, user_id="far")
    assert len(found) == 50
    assert len(found & _nearest(50)) < 40
