"""Which way Postgres takes to the nearest rows, with its own estimates and nothing switched off."""

from typing import Any

import numpy as np
import pytest

from memory_recall.hnsw.search_effort import UNKNOWN_GRAPH, SearchedGraph
from memory_recall.schema.table import describe
from memory_recall.search.query import EmbeddedQuery
from memory_recall.search.sql.plan import DenseLeg, RecallPlan
from memory_recall.search.sql.statement import statement
from tests.integration.memory_recall.queries import make_query

_ROWS = 2_000


@pytest.mark.parametrize(
    ("graph", "way"),
    [(SearchedGraph(_ROWS, 24, 128), "Index Scan using"), (UNKNOWN_GRAPH, "Seq Scan on memories m")],
)
async def test_a_table_of_some_thousand_rows_is_searched_by_the_index(
    memories: Any, graph: SearchedGraph, way: str
) -> None:
    """Left to its estimates, in which reading a vector is free, Postgres reads such a table whole: 40 ms, not 6."""
    vectors = np.random.default_rng(1).normal(size=(_ROWS, 8)).tolist()
    await memories.pool.executemany(
        "INSERT INTO memories (content, embedding) VALUES ($1, $2::real[]::halfvec)",
        [(f"row {number}", vector) for number, vector in enumerate(vectors)],
    )
    await memories.pool.execute("ANALYZE memories")
    async with memories.pool.acquire() as connection:
        table = await describe(connection, "memories")
        dense = DenseLeg(EmbeddedQuery(vectors[0], None), graph=graph)
        sql, arguments = statement(RecallPlan(make_query("anything", mode="dense"), table, dense=dense))
        plan = "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN {sql}", *arguments))
    dense_leg = plan.split("CTE dense")[1].split("CTE lexical")[0]
    assert way in dense_leg
