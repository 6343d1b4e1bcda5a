"""What the dense leg gets out of the index: how deep it is scanned, how far within a filter, and in which order."""

from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from memory_recall.hnsw.repair import build_index
from memory_recall.hnsw.search_effort import SearchedGraph
from memory_recall.postgres.connection import DsnText
from memory_recall.schema.table import describe
from memory_recall.search.query import EmbeddedQuery
from memory_recall.search.sql import plan
from memory_recall.search.sql import statement as statements
from memory_recall.search.sql.filters import Filters
from memory_recall.search.sql.plan import DenseLeg, RecallPlan
from memory_recall.search.sql.statement import statement
from memory_recall.search.sql.visibility import EVERYONE, Everyone
from tests.integration.conftest import Database
from tests.integration.memory_recall.queries import make_query
from tests.integration.memory_recall.read_path.vectors import axis
from tests.integration.memory_recall.workbench import INDEX

_CLUSTERS, _MEMBERS = 60, 100


@pytest.fixture(autouse=True)
async def index_preferred(memories: Any) -> AsyncIterator[None]:
    """The planner reads small tables whole; here it may not."""
    role = await memories.pool.fetchval("SELECT current_user")
    await memories.pool.execute(f"ALTER ROLE {role} SET enable_seqscan = off")
    await memories.pool.expire_connections()
    yield
    await memories.pool.execute(f"ALTER ROLE {role} RESET enable_seqscan")


async def test_the_dense_leg_returns_more_rows_than_pgvector_searches_by_default(memories: Any, embedder: Any) -> None:
    """The index scan of the statement sees the ef_search that the same statement sets: its default of 40 gives 40."""
    await memories.pool.executemany(
        "INSERT INTO memories (content, embedding) VALUES ($1, $2::real[]::halfvec)",
        [(f"row {n}", axis(1.0, n / 400, (n % 7) / 50)) for n in range(400)],
    )
    recall = memories.recalling(embedder, require_index=True)
    result = await recall.recall(make_query("unrelated", mode="dense", limit=50))
    assert len(result.ids) == 50


async def test_former_versions_of_a_memory_take_no_place_in_the_dense_leg(memories: Any, embedder: Any) -> None:
    """An API that counts how often a memory was read writes it each time, and VACUUM comes after thousands of writes.

    Up to ten versions with the same vector are one candidate of the index. Which of them its graph reaches is left to
    chance, so the last version itself may be missing until the next VACUUM.
    """
    await memories.pool.execute("CREATE INDEX ON memories (importance)")  # so that each version has entries of its own
    await memories.pool.execute("ALTER TABLE memories SET (autovacuum_enabled = off)")
    await memories.pool.executemany(
        "INSERT INTO memories (content, embedding) VALUES ($1, $2::real[]::halfvec)",
        [(f"row {n}", axis(1.0, (n + 1) / 60)) for n in range(60)],
    )
    often = await memories.add("read often", vector=axis(1.0))
    await memories.pool.executemany(
        "UPDATE memories SET importance = $1 WHERE id = $2", [(n / 1_500, often) for n in range(1_500)]
    )
    result = await memories.recalling(embedder).recall(make_query("unrelated", mode="dense", limit=50))
    assert len(result.ids) == 50


async def test_a_selective_filter_does_not_empty_the_dense_leg(memories: Any, embedder: Any) -> None:
    """The index goes on scanning until enough rows pass the filter, however far away those are."""
    await memories.pool.executemany(
        "INSERT INTO memories (content, user_id, embedding) VALUES ($1, $2, $3::real[]::halfvec)",
        [(f"row {n}", "ana" if n >= 580 else "bo", axis(1.0, n / 300, (n % 7) / 50)) for n in range(600)],
    )
    result = await memories.recalling(embedder).recall(make_query("unrelated", mode="dense", limit=20, user_id="ana"))
    assert len(result.ids) == 20


async def test_dense_ranks_follow_the_distance_within_a_filter(
    memories: Any, database: Database, embedder: Any
) -> None:
    """A filtered scan goes round by round and gives rows in a relaxed order, which is not taken for the sorted one."""
    random = np.random.default_rng(7)
    clusters = np.repeat(random.normal(size=(_CLUSTERS, 8)), _MEMBERS, axis=0)
    vectors = random.permutation(clusters + random.normal(scale=0.001, size=clusters.shape))
    await memories.pool.execute("DROP INDEX idx_memories_embedding")  # it is built sooner than it takes so many rows
    await memories.pool.executemany(
        "INSERT INTO memories (content, category, embedding) VALUES ($1, $2, $3::real[]::halfvec)",
        [(f"row {n}", f"category{n % 20}", vector) for n, vector in enumerate(vectors.tolist())],
    )
    await build_index(DsnText(database.dsn), "memories", INDEX)
    await memories.pool.execute("ANALYZE memories")
    for question in random.normal(size=(10, 8)).tolist():
        embedder.vectors["unrelated"] = question
        result = await memories.recalling(embedder).recall(
            make_query("unrelated", mode="dense", limit=50, filters=Filters(category="category3"))
        )
        found = [memory.evidence for memory in result.memories]
        by_rank = [one.dense_score for one in sorted(found, key=lambda one: one.dense_rank)]
        assert by_rank == sorted(by_rank, reverse=True)


@pytest.fixture(params=["one statement", "three statements"])
def _either_form(request: pytest.FixtureRequest) -> None:
    if request.param == "three statements":
        request.getfixturevalue("fetched")


@pytest.mark.usefixtures("_either_form")
async def test_a_user_of_few_memories_finds_them_after_recalls_of_a_user_of_thousands(
    memories: Any, database: Database, embedder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Postgres keeps a plan for any user, by which the scan of the index ends before it comes to those of this one."""
    monkeypatch.setattr(plan, "PLANNED_ANEW_ABOVE", 1_000)
    monkeypatch.setitem(statements._FILTERED_SCAN, "hnsw.max_scan_tuples", "500")
    random = np.random.default_rng(7)
    vectors = np.concatenate([np.ones((4_000, 1)), random.uniform(-0.5, 0.5, size=(4_000, 7))], axis=1)
    await memories.pool.execute("DROP INDEX idx_memories_embedding")  # it is built sooner than it takes so many rows
    await memories.pool.executemany(
        "INSERT INTO memories (content, user_id, embedding) VALUES ($1, $2, $3::real[]::halfvec)",
        [
            *((f"row {n}", "many", vector) for n, vector in enumerate(vectors.tolist())),
            *((f"note {n}", "few", axis(0.0, 1.0)) for n in range(10)),
        ],
    )
    await build_index(DsnText(database.dsn), "memories", INDEX)
    await memories.pool.execute("VACUUM ANALYZE memories")
    async with memories.pool.acquire(), memories.pool.acquire():
        pass  # so that two connections are idle
    recall = memories.recalling(embedder)
    for _ in range(12):  # Postgres plans a statement of a session for itself five times
        await recall.recall(make_query("unrelated", user_id="many"))
    assert len((await recall.recall(make_query("unrelated", user_id="few"))).ids) == 10


@pytest.mark.parametrize(
    ("user", "graph", "given"),
    [
        (EVERYONE, SearchedGraph(1e6, 16, 64), 50),
        ("ana", SearchedGraph(1e6, 16, 64), 271),
        ("ana", SearchedGraph(1e6, 24, 128), 116),
    ],
)
async def test_a_filtered_scan_of_a_large_table_compares_more_rows(
    memories: Any, user: str | Everyone, graph: SearchedGraph, given: int
) -> None:
    """The scan's first fifty within a filter are not yet the nearest fifty; without one they are."""
    async with memories.pool.acquire() as connection:
        table = await describe(connection, "memories")
    query = make_query("anything", mode="dense", user_id=user)
    sql, _ = statement(RecallPlan(query, table, dense=DenseLeg(EmbeddedQuery(axis(1.0), None), hnsw=graph)))
    assert f"LIMIT {given})\n  SELECT id, row_number() OVER (ORDER BY distance + 0, id)" in sql
    assert "WHERE distance < 'NaN'\n   ORDER BY distance + 0, id LIMIT 50" in sql
