"""Fusion in SQL gives what the reference in Python gives."""

import asyncio
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memory_recall.search.fusion import Fusion, SortBy
from memory_recall.search.sql.filters import Arguments
from memory_recall.search.sql.fusion import fused
from tests.support.reference_fusion import Candidate, fuse

POOL = """
WITH pool AS (
  SELECT * FROM unnest({}::bigint[], {}::float8[], {}::bigint[], {}::float8[], {}::bigint[], {}::float8[],
                       {}::float8[])
    AS p(id, importance, lexical_rank, lexical_score, dense_rank, dense_score, closeness)
), reach AS (SELECT {} AS max_lexical_score),{} SELECT id, score FROM ordered ORDER BY place"""

COARSE = st.integers(0, 10).map(lambda tenths: tenths / 10)  # ties are the interesting part
SCORES = st.one_of(COARSE, st.floats(0, 30, width=32))
SIMILARITIES = st.one_of(COARSE, st.floats(-1, 1, width=32))


@st.composite
def pools(draw: Any) -> list[Candidate]:
    ids = draw(st.lists(st.integers(1, 10_000), unique=True, min_size=1, max_size=25))
    lexical = draw(st.permutations(ids))[: draw(st.integers(0, len(ids)))]
    only_dense = [one for one in ids if one not in lexical]  # every candidate comes from at least one leg
    also_dense = lexical[: draw(st.integers(0, len(lexical)))]
    dense = draw(st.permutations([*only_dense, *also_dense]))
    return [
        Candidate(
            id=one,
            importance=draw(COARSE),
            lexical_rank=lexical.index(one) + 1 if one in lexical else None,
            lexical_score=draw(SCORES) if one in lexical else draw(st.one_of(st.none(), SCORES)),
            dense_rank=dense.index(one) + 1 if one in dense else None,
            dense_score=draw(SIMILARITIES) if one in dense else draw(st.one_of(st.none(), SIMILARITIES)),
            closeness=draw(COARSE),
        )
        for one in ids
    ]


FUSIONS = st.builds(
    Fusion,
    method=st.sampled_from(["rrf", "convex"]),
    alpha=COARSE,
    lexical_scale=st.sampled_from(["query", "linear", "list"]),
    dense_floor=st.sampled_from([-1.0, 0.2, 0.75, None]),
    k=st.sampled_from([0.0, 1.0, 10.0, 60.0]),
    lexical_weight=COARSE,
    dense_weight=COARSE,
    importance=st.booleans(),
)


@pytest.fixture
def runner(postgres: Any) -> Iterator[tuple[asyncio.Runner, Any]]:
    with asyncio.Runner() as runner:
        connection = runner.run(asyncpg.connect(postgres.superuser_dsn()))
        yield runner, connection
        runner.run(connection.close())


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    pool=pools(),
    fusion=FUSIONS,
    sort_by=st.sampled_from(list(SortBy)),
    final=st.booleans(),
    max_lexical_score=st.one_of(st.none(), SCORES),
)
def test_sql_and_python_give_the_same_order_and_scores(  # noqa: PLR0917  (drawn by Hypothesis)
    runner: Any, pool: list[Candidate], fusion: Fusion, sort_by: SortBy, final: bool, max_lexical_score: float | None
) -> None:
    """For any candidates, parameters and sort order, down to the tie-breaks."""
    running, connection = runner
    arguments = Arguments()
    columns = [
        arguments.add([getattr(one, name) for one in pool], kind).partition("::")[0]
        for name, kind in [
            ("id", "bigint[]"), ("importance", "float8[]"), ("lexical_rank", "bigint[]"), ("lexical_score", "float8[]"),
            ("dense_rank", "bigint[]"), ("dense_score", "float8[]"), ("closeness", "float8[]"),
        ]
    ]  # fmt: skip
    reach = arguments.add(max_lexical_score, "float8")
    sql = POOL.format(*columns, reach, fused(fusion, arguments, sort_by=sort_by, lexical_is_final=final, timed=True))
    rows = running.run(connection.fetch(sql, *arguments.values))
    expected = fuse(pool, fusion, sort_by=sort_by, lexical_is_final=final, max_lexical_score=max_lexical_score)
    assert [row["id"] for row in rows] == [one.id for one in expected]
    assert [row["score"] for row in rows] == [one.score for one in expected]
