"""Measures how long statements of other users take during a migration, during the index build, and at rest.

Three users read and write the table as an application does, one statement after another. A fourth session repeatedly
holds a transaction open for one second, because an `ALTER TABLE` without a lock timeout that waits for such a
transaction blocks all other users.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import asyncpg

from memory_bench.backfill.null_embedder import null_model
from memory_bench.postgres import MeasuredServer, build_index, migrate_schema

USERS = 3
_PAUSE_SECONDS = 0.002
_OPEN_SECONDS = 1.0
_OWN_TABLE = """
CREATE TABLE memories (
    id serial PRIMARY KEY, content text NOT NULL, category varchar(50) DEFAULT 'facts', tags text DEFAULT '',
    importance real DEFAULT 0.5, is_sensitive boolean NOT NULL DEFAULT false,
    user_id varchar(100) NOT NULL DEFAULT 'me', deleted_at timestamptz, updated_at timestamptz NOT NULL DEFAULT now())
"""
_FILL = "INSERT INTO memories (content) SELECT repeat('some words ', 20) || n FROM generate_series(1, {rows}) n"
_STATEMENTS = (
    "INSERT INTO memories (content) VALUES ('written by a user of the table')",
    "UPDATE memories SET importance = random() WHERE id = $1",
    "UPDATE memories SET content = content || '.' WHERE id = $1",
    "SELECT content FROM memories WHERE id = $1",
)


@dataclass
class Times:
    """The durations of the other users' statements, in seconds."""

    seconds: list[float] = field(default_factory=list)

    def summary(self) -> dict[str, float]:
        """Return the number of statements, and their median, 99th percentile and longest duration in milliseconds."""
        ordered = sorted(self.seconds)
        at = {name: ordered[min(len(ordered) - 1, int(len(ordered) * share))] for name, share in _SHARES.items()}
        return {"statements": len(ordered), **{name: 1000 * value for name, value in at.items()}}


_SHARES = {"p50_ms": 0.5, "p99_ms": 0.99, "longest_ms": 1.0}


async def measure(server: MeasuredServer, *, rows: int, seconds: float) -> dict[str, Any]:
    """Measure the other users' statements first at rest, then during a migration, then during the index build."""
    dsn = await _prepared(server, rows)
    found: dict[str, Any] = {"rows": rows, "users": USERS}
    async with _other_users(dsn, rows) as times:
        await asyncio.sleep(seconds)
        found["undisturbed"] = times.summary()
    async with _other_users(dsn, rows) as times:
        began = time.perf_counter()
        await migrate_schema(dsn, null_model())
        found["during the migration"] = {**times.summary(), "seconds": time.perf_counter() - began}
    await server.execute(_VECTORS, database="shared")
    async with _other_users(dsn, rows) as times:
        began = time.perf_counter()
        await build_index(dsn)
        found["during the index build"] = {**times.summary(), "seconds": time.perf_counter() - began}
    phases = [phase for phase in found.values() if isinstance(phase, dict)]
    found["longest_wait_ms"] = max(phase["longest_ms"] for phase in phases[1:])
    return found


_VECTORS = (
    "UPDATE memories SET embedding = (SELECT array_agg(random()::real - 0.5) FROM generate_series(1, 384) "
    "WHERE memories.id > 0)::halfvec WHERE embedding IS NULL"
)


async def _prepared(server: MeasuredServer, rows: int) -> str:
    dsn = await server.create("shared")
    await server.execute(_OWN_TABLE, database="shared")
    await server.execute(_FILL.format(rows=rows), database="shared")
    await server.execute("VACUUM (ANALYZE) memories", database="shared")
    return dsn


@asynccontextmanager
async def _other_users(dsn: str, rows: int) -> AsyncIterator[Times]:
    """Run the other users of the table until the block ends; yield the durations of their statements."""
    times = Times()
    tasks = [asyncio.create_task(_user(dsn, rows, times, seed)) for seed in range(USERS)]
    tasks.append(asyncio.create_task(_long_transactions(dsn)))
    try:
        yield times
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def _user(dsn: str, rows: int, times: Times, seed: int) -> None:
    chosen = random.Random(seed)  # noqa: S311  (which row is touched is no secret)
    connection = await asyncpg.connect(dsn)
    try:
        while True:
            statement = chosen.choice(_STATEMENTS)
            arguments = [chosen.randint(1, rows)] if "$1" in statement else []
            began = time.perf_counter()
            await connection.execute(statement, *arguments)
            times.seconds.append(time.perf_counter() - began)
            await asyncio.sleep(_PAUSE_SECONDS)
    finally:
        connection.terminate()


async def _long_transactions(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        while True:
            async with connection.transaction():
                await connection.fetch("SELECT id FROM memories LIMIT 10")
                await asyncio.sleep(_OPEN_SECONDS)
            await asyncio.sleep(_OPEN_SECONDS / 2)
    finally:
        connection.terminate()
