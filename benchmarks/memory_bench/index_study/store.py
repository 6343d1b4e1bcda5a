"""Fills the databases of the study and builds the indexes of all designs; they are kept in the cache between runs.

A database has the migrated table `memories`, whose rows have the texts of the latency benchmark, so that they are as
wide as memories are. An interrupted run is continued by the next one.
"""

import hashlib
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg
import numpy as np

from memory_bench.index_study.designs import Design
from memory_bench.index_study.designs_sql import Statements
from memory_bench.index_study.vectors import Vectors
from memory_bench.latency.synthetic import BLOCK, Synthetic
from memory_bench.postgres import MeasuredServer, bare_model, migrate_schema

FORMAT = 1  # to be raised when rows or indexes change
_SIGNATURE = b"PGCOPY\n\xff\r\n\x00" + struct.pack(">ii", 0, 0)
_COLUMNS = ["id", "content", "embedding"]


@dataclass(frozen=True, slots=True)
class Filled:
    """A filled database; `seconds` are those of each step, `sizes` the bytes of each design's index."""

    database: str
    statements: Statements
    seconds: dict[str, float]
    sizes: dict[Design, int]


async def fill(
    server: MeasuredServer, vectors: Vectors, designs: Sequence[Design], say: Callable[[str], None]
) -> Filled:
    """Fill the database of these vectors and build the index of every design, or continue an interrupted run."""
    digest = hashlib.sha256(np.ascontiguousarray(vectors.rows).tobytes()).hexdigest()[:8]
    name = f"index_{vectors.name}_{vectors.dimensions}_{len(vectors.rows)}_{digest}_v{FORMAT}"
    dsn = await server.create(name)
    await migrate_schema(dsn, bare_model("study", vectors.dimensions))
    statements = Statements(vectors.dimensions, as_text(vectors.mean) if vectors.centred else None)
    connection: Any = await asyncpg.connect(dsn)
    try:
        steps = _Steps(connection, say)
        await connection.execute("CREATE TABLE IF NOT EXISTS bench_steps (step text PRIMARY KEY, seconds float8)")
        await steps.once("rows", lambda: _copy(connection, vectors))
        await steps.once("vacuum", lambda: connection.execute("VACUUM (ANALYZE) memories"))
        for one in designs:
            await steps.once(str(one), _building(connection, statements.create(one)))
        done = await connection.fetch("SELECT step, seconds FROM bench_steps")
        sizes = {
            one: await connection.fetchval("SELECT pg_relation_size(to_regclass($1))", one.index) for one in designs
        }
    finally:
        await connection.close()
    return Filled(name, statements, {row["step"]: row["seconds"] for row in done}, sizes)


def as_text(vector: "np.typing.NDArray[np.float16]") -> str:
    """Return a vector as pgvector reads it."""
    return f"[{','.join(repr(float(one)) for one in vector)}]"


@dataclass(frozen=True, slots=True)
class _Steps:
    connection: Any
    say: Callable[[str], None]

    async def once(self, step: str, work: Callable[[], Awaitable[object]]) -> None:
        """Do the work of a step unless an earlier run has done it, and record its seconds."""
        if await self.connection.fetchval("SELECT EXISTS (SELECT FROM bench_steps WHERE step = $1)", step):
            return
        started = time.perf_counter()
        await work()
        seconds = time.perf_counter() - started
        self.say(f"{step}: {seconds:.0f} s")
        await self.connection.execute("INSERT INTO bench_steps VALUES ($1, $2)", step, seconds)


def _building(connection: Any, statement: str) -> Callable[[], Awaitable[object]]:  # noqa: ANN401  (asyncpg's connection)
    return lambda: connection.execute(statement)


async def _copy(connection: Any, vectors: Vectors) -> None:  # noqa: ANN401  (asyncpg's connection)
    # Nobody listens to the triggers' notifications, and no search of the study is lexical.
    await connection.execute("SET session_replication_role = replica")
    await connection.execute("DROP INDEX IF EXISTS idx_memories_search")
    await connection.execute("TRUNCATE memories")  # what an interrupted run has left
    await connection.copy_to_table("memories", source=_encoded(vectors), columns=_COLUMNS, format="binary")


async def _encoded(vectors: Vectors) -> AsyncIterator[bytes]:
    yield _SIGNATURE
    synthetic = Synthetic()
    for start in range(0, len(vectors.rows), BLOCK):
        texts = synthetic.texts(start // BLOCK)
        rows = np.ascontiguousarray(vectors.rows[start : start + BLOCK], dtype=">f2")
        head = struct.pack(">hh", vectors.dimensions, 0)
        parts = []
        for place, row in enumerate(rows):
            fields = (struct.pack(">i", start + place + 1), texts[place].encode(), head + row.tobytes())
            parts.append(struct.pack(">h", len(fields)))
            parts += [struct.pack(">i", len(one)) + one for one in fields]
        yield b"".join(parts)
    yield struct.pack(">h", -1)
