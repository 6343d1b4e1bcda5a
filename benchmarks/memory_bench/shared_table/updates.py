"""Measures the cost of an update that changes no vector, without and with an HNSW index on the table.

If no indexed column changes and the page has room for the new version of the row, Postgres adds no index entries (a HOT
update). Otherwise every index gets an entry, and each new entry in an HNSW graph costs a search. Therefore tables with
full pages and tables with free space in their pages are compared.
"""

import random
import statistics
import time
from dataclasses import asdict, dataclass
from typing import Any

import asyncpg

from memory_bench.backfill.null_embedder import null_model
from memory_bench.postgres import MeasuredServer, build_index, migrate_schema

_PLAIN = "UPDATE memories SET importance = $2 WHERE id = $1"
_INDEXED = "UPDATE memories SET importance = $2, updated_at = now() WHERE id = $1"
_FILL = (
    "INSERT INTO memories (content, embedding) SELECT repeat('some words ', 20) || n, "
    "(SELECT array_agg(random()::real - 0.5) FROM generate_series(1, 384) WHERE n > 0)::halfvec "
    "FROM generate_series(1, {rows}) n"
)


@dataclass(frozen=True)
class Case:
    """One measured case: a state of the table, and an UPDATE statement that is run on it."""

    name: str
    indexed: bool
    fillfactor: int
    statement: str


CASES = (
    Case("no vector index", indexed=False, fillfactor=100, statement=_PLAIN),
    Case("vector index, full pages", indexed=True, fillfactor=100, statement=_PLAIN),
    Case("vector index, fillfactor 85", indexed=True, fillfactor=85, statement=_PLAIN),
    Case("vector index, fillfactor 85, updated_at too", indexed=True, fillfactor=85, statement=_INDEXED),
)


async def measure(server: MeasuredServer, *, rows: int, updates: int) -> list[dict[str, Any]]:
    """Measure each case on a table of its own; return median times in microseconds and the shares of HOT updates."""
    return [await _measure_case(server, case, number, rows, updates) for number, case in enumerate(CASES)]


async def _measure_case(server: MeasuredServer, case: Case, number: int, rows: int, updates: int) -> dict[str, Any]:
    name = f"updates_{number}"
    dsn = await server.create(name)
    await migrate_schema(dsn, null_model())
    await server.execute(f"ALTER TABLE memories SET (fillfactor = {case.fillfactor})", database=name)
    await server.execute(_FILL.format(rows=rows), database=name)
    if case.indexed:
        await build_index(dsn)
    await server.execute("VACUUM (ANALYZE) memories", database=name)
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("SET synchronous_commit = off")  # the disk is not what is measured
        chosen = random.Random(1).sample(range(1, rows + 1), updates)  # noqa: S311  (which rows is no secret)
        times = []
        for key in chosen:
            began = time.perf_counter()
            await connection.execute(case.statement, key, 0.7)
            times.append(time.perf_counter() - began)
        await connection.execute("SELECT pg_stat_force_next_flush()")
        in_place = await connection.fetchval(
            "SELECT n_tup_hot_upd::float8 / n_tup_upd FROM pg_stat_user_tables WHERE relname = 'memories'"
        )
    finally:
        await connection.close()
    return {**asdict(case), "median_us": 1e6 * statistics.median(times), "in_place": in_place}
