"""The graph leg in SQL gives what the reference in Python gives."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memory_recall.schema.table import MemoryTable
from memory_recall.search.fusion import Fusion, SortBy
from memory_recall.search.period import Period
from memory_recall.search.query import EmbeddedQuery
from memory_recall.search.sql.bm25 import CollectionStatistics
from memory_recall.search.sql.filters import Arguments
from memory_recall.search.sql.fusion import fused
from memory_recall.search.sql.graph import graph_leg, most_memories
from memory_recall.search.sql.plan import DenseLeg, RecallPlan
from memory_recall.search.sql.visibility import SearchedRows
from tests.integration.memory_recall.queries import make_query
from tests.integration.memory_recall.read_path.test_recall_fusion_in_sql import COARSE, SCORES, SIMILARITIES, pools
from tests.support.reference_fusion import Candidate, Fused, Graph, fuse_with_graph

SETUP = """
CREATE TEMP TABLE memories (
  id bigint PRIMARY KEY, importance float8, cosine float8, created_at timestamptz, search_vector tsvector,
  inside boolean);
CREATE TEMP TABLE memory_concepts (memory_id bigint, concept bigint, PRIMARY KEY (memory_id, concept));
CREATE INDEX ON memory_concepts (concept, memory_id)"""
GIVEN = """
WITH pool AS (
  SELECT * FROM unnest({}::bigint[], {}::float8[], {}::bigint[], {}::float8[], {}::bigint[], {}::float8[],
                       {}::float8[])
    AS p(id, importance, lexical_rank, lexical_score, dense_rank, dense_score, closeness)
), lexical AS (SELECT * FROM unnest({}::bigint[], {}::float8[]) AS l(id, lexical_score)),
reach AS (SELECT {} AS max_lexical_score), weighted AS (SELECT ''::tsquery AS query, {} AS idf),
anything AS (SELECT ''::tsquery AS query),{},{} SELECT id, score, graph_score FROM ordered ORDER BY place"""
TABLE = MemoryTable(
    "pg_temp", "memories",
    {
        "id": "bigint", "importance": "double precision", "created_at": "timestamp with time zone",
        "search_vector": "tsvector",
    },
    "public", 8,
)  # fmt: skip
WEEK = Period(datetime(2026, 3, 2, tzinfo=UTC), datetime(2026, 3, 9, tzinfo=UTC))
FUSIONS = st.builds(
    Fusion, method=st.just("convex"), alpha=COARSE, lexical_scale=st.sampled_from(["query", "linear", "list"]),
    dense_floor=st.sampled_from([-1.0, None]), importance=st.booleans(),
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """Candidates of two legs, other memories, those of them that the filters leave out, concepts, and the query."""

    pool: list[Candidate]
    others: list[Candidate]
    created: dict[int, datetime]
    outside: frozenset[int]
    concepts: dict[int, set[int]]
    rows: int
    fusion: Fusion
    max_lexical_score: float | None
    whole_query_score: float | None


@st.composite
def cases(draw: Any) -> Case:
    pool = draw(pools())
    taken = {one.id for one in pool}
    ids = draw(st.lists(st.integers(10_001, 20_000), unique=True, max_size=70))
    ids += [one for one in draw(st.lists(st.integers(1, 10_000), unique=True, max_size=5)) if one not in taken]
    created = {one: WEEK.start + timedelta(days=draw(st.integers(-30, 30))) for one in ids}
    others = [
        Candidate(
            one, draw(COARSE), lexical_score=draw(SCORES), dense_score=draw(st.one_of(st.none(), SIMILARITIES)),
            closeness=WEEK.closeness(created[one]),
        )
        for one in ids
    ]  # fmt: skip
    few = st.sets(st.integers(1, 12), max_size=5)
    concepts = {one.id: draw(few) for one in (*pool, *others)}
    rows = draw(st.one_of(st.integers(2, 100), st.integers(100, 3_000)))
    outside = frozenset(one for one in ids if draw(st.integers(0, 3)) == 0)
    reach, whole = (draw(st.one_of(st.none(), SCORES)) for _ in range(2))
    return Case(pool, others, created, outside, concepts, rows, draw(FUSIONS), reach, whole)


@pytest.fixture
def runner(postgres: Any) -> Iterator[tuple[asyncio.Runner, Any]]:
    with asyncio.Runner() as runner:
        connection = runner.run(asyncpg.connect(postgres.superuser_dsn()))
        runner.run(connection.execute(SETUP))
        yield runner, connection
        runner.run(connection.close())


async def fill(connection: Any, case: Case) -> None:
    rows = [
        (one.id, one.importance, one.dense_score, case.created.get(one.id), one.id not in case.outside)
        for one in (*case.pool, *case.others)
    ]
    links = [(memory, concept) for memory, concepts in case.concepts.items() for concept in concepts]
    await connection.execute("TRUNCATE memories, memory_concepts")
    columns = ["id", "importance", "cosine", "created_at", "inside"]
    await connection.copy_records_to_table("memories", schema_name="pg_temp", records=rows, columns=columns)
    await connection.copy_records_to_table("memory_concepts", schema_name="pg_temp", records=links)


def statement(case: Case) -> tuple[str, list[object]]:
    arguments = Arguments()

    def given_column(rows: list[Candidate], name: str) -> str:
        return arguments.placeholder([getattr(one, name) for one in rows])

    names = ("id", "importance", "lexical_rank", "lexical_score", "dense_rank", "dense_score", "closeness")
    columns = [given_column(case.pool, name) for name in names]
    lexical = [given_column(case.others, name) for name in ("id", "lexical_score")]
    reach, idf = (arguments.add(one, "float8") for one in (case.max_lexical_score, case.whole_query_score))
    plan = RecallPlan(
        make_query("anything"), TABLE, fusion=case.fusion, dense=DenseLeg(EmbeddedQuery([1.0], None)),
        period=WEEK, concept_graph=True, statistics=CollectionStatistics(case.rows, 1.0, 1.0),
    )  # fmt: skip
    assert plan.has_graph_leg
    two_legs = fused(case.fusion, arguments, sort_by=SortBy.RELEVANCE, lexical_is_final=False, timed=True, name="fused")
    leg = graph_leg(plan, arguments, SearchedRows("true", "m.inside"), "m.cosine")
    return GIVEN.format(*columns, *lexical, reach, idf, two_legs, leg), arguments.values


def reference(case: Case) -> list[Fused]:
    return fuse_with_graph(
        case.pool,
        [one for one in case.others if one.id not in case.outside],
        Graph(case.concepts, case.rows, most_memories(case.rows)),
        case.fusion,
        max_lexical_score=case.max_lexical_score,
        whole_query_score=case.whole_query_score,
    )


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(case=cases())
def test_sql_and_python_give_the_same_order_and_scores_with_the_graph(runner: Any, case: Case) -> None:
    """For any candidates, concepts and parameters, down to the tie-breaks and the last bit of every score."""
    running, connection = runner
    running.run(fill(connection, case))
    sql, arguments = statement(case)
    rows = running.run(connection.fetch(sql, *arguments))
    expected = reference(case)
    assert [(row["id"], row["score"]) for row in rows] == [(one.id, one.score) for one in expected]
