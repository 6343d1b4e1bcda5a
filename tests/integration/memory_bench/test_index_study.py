"""The statements of the study of smaller indexes find what exact rankings find, by the index that each names."""

import asyncio
from typing import Any

import asyncpg
import numpy as np
import pytest

from memory_bench.index_study.designs import Design, Setting, designs
from memory_bench.index_study.designs_sql import Statements, show
from memory_bench.index_study.exact import candidates, nearest
from memory_bench.index_study.store import as_text
from memory_bench.postgres import bare_model, migrate_schema

ROWS, DIMENSIONS, CANDIDATES = 2_000, 128, 300
DATABASE = "index_study"


def vectors(count: int, seed: int) -> "np.typing.NDArray[np.float16]":
    """Return vectors of length one whose mean is not zero."""
    drawn = np.random.default_rng(seed).standard_normal((count, DIMENSIONS)) + 0.4
    return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True), dtype=np.float16)


@pytest.fixture(scope="module")
def indexed(postgres: Any) -> Any:
    """A database with the index of every design, the statements for it, and its rows."""
    rows = vectors(ROWS, 1)
    statements = Statements(DIMENSIONS, as_text(rows.mean(axis=0, dtype=np.float64).astype(np.float16)))
    dsn = postgres.superuser_dsn(DATABASE)

    async def work() -> None:
        owner = await asyncpg.connect(postgres.superuser_dsn())
        await owner.execute(f"CREATE DATABASE {DATABASE}")
        await owner.close()
        connection = await asyncpg.connect(dsn)
        await connection.execute("CREATE EXTENSION vector")
        await migrate_schema(dsn, bare_model("study", DIMENSIONS))
        await connection.executemany(
            f"INSERT INTO memories (id, content, embedding) VALUES ($1, 'text', $2::real[]::halfvec({DIMENSIONS}))",
            [(place + 1, row.tolist()) for place, row in enumerate(rows)],
        )
        for one in designs(centred=True):
            await connection.execute(statements.create(one))
        await connection.execute("VACUUM (ANALYZE) memories")
        await connection.close()

    async def drop() -> None:
        owner = await asyncpg.connect(postgres.superuser_dsn())
        await owner.execute(f"DROP DATABASE {DATABASE} WITH (FORCE)")
        await owner.close()

    asyncio.run(work())
    yield dsn, statements, rows
    asyncio.run(drop())


@pytest.mark.parametrize("design", designs(centred=True), ids=str)
def test_a_search_reads_its_own_index_and_orders_the_candidates_by_their_halves(indexed: Any, design: Design) -> None:
    """Of fifty that an exact ranking by the same expression gives, nearly all are found, in the order of cosines."""
    dsn, statements, rows = indexed
    search = statements.search(Setting(design, 900, None if design.kind == "halves" else CANDIDATES))
    asked = vectors(20, 2)
    mean = rows.mean(axis=0, dtype=np.float64).astype(np.float16)

    async def work() -> tuple[list[Any], str]:
        connection = await asyncpg.connect(dsn)
        await connection.execute("SET enable_seqscan = off")
        await show(connection, design)
        plan = await connection.fetch(f"EXPLAIN {search}", asked[0].tolist())
        found = [await connection.fetch(search, one.tolist()) for one in asked]
        await connection.close()
        return found, str(plan)

    found, plan = asyncio.run(work())
    assert f"using {design.index} " in plan
    first = candidates(design.kind, rows, asked, 50 if design.kind == "halves" else CANDIDATES, mean)
    shares = []
    for one, given, places in zip(found, asked, first, strict=True):
        wanted = places[nearest(rows[places], given[None, :], 50)[0]] + 1
        shares.append(np.isin(wanted, [row["id"] for row in one]).mean())
        assert [row["dense_score"] for row in one] == sorted((row["dense_score"] for row in one), reverse=True)
        assert one[0]["dense_score"] == pytest.approx(float((rows @ given.astype(np.float32)).max()), abs=0.15)
    assert np.mean(shares) > 0.95
