"""Which way Postgres takes to the nearest rows, with its own estimates and nothing switched off."""

from collections.abc import AsyncIterator

import numpy as np
import pytest

from memory_recall.hnsw.search_effort import UNKNOWN_GRAPH, SearchedGraph
from memory_recall.schema.table import describe
from memory_recall.search.query import EmbeddedQuery
from memory_recall.search.sql.plan import DenseLeg, RecallPlan
from memory_recall.search.sql.statement import statement
from tests.integration.memory_recall.queries import make_query
from tests.integration.memory_recall.read_path.conftest import CopyWith, Memories, open_memories

_ROWS = 2_000
_VECTORS = np.random.default_rng(1).normal(size=(_ROWS, 8)).tolist()


async def _fill(memories: Memories) -> None:
    rows = [(f"row {number}", vector) for number, vector in enumerate(_VECTORS)]
    insert = "INSERT INTO memories (content, embedding) VALUES ($1, $2::real[]::halfvec)"
    await memories.pool.executemany(insert, rows)
    await memories.pool.execute("ANALYZE memories")


@pytest.fixture
async def memories(copy_with: CopyWith) -> AsyncIterator[Memories]:
    """A table of some thousand rows, which was filled once in the session."""
    async with open_memories(await copy_with("some thousand rows", _fill)) as store:
        yield store


@pytest.mark.parametrize(
    ("graph", "way"),
    [(SearchedGraph(_ROWS, 24, 128), "Index Scan using"), (UNKNOWN_GRAPH, "Seq Scan on memories m")],
)
async def test_a_table_of_some_thousand_rows_is_searched_by_the_index(
    memories: Memories, graph: SearchedGraph, way: str
) -> None:
    """Left to its estimates, in which reading a vector is free, Postgres reads such a table whole: 40 ms, not 6."""
    async with memories.pool.acquire() as connection:
        table = await describe(connection, "memories")
        dense = DenseLeg(EmbeddedQuery(_VECTORS[0], None), hnsw=graph)
        sql, arguments = statement(RecallPlan(make_query("anything", mode="dense"), table, dense=dense))
        plan = "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN {sql}", *arguments))
    dense_leg = plan.split("CTE dense")[1].split("CTE lexical")[0]
    assert way in dense_leg
