"""Fills the databases of the latency benchmark, one for each table size, and keeps them in the cache between runs.

Each database is migrated with the project's own migrations and filled by COPY. A million rows take about twenty minutes
on two cores, most of which go into the HNSW index. An interrupted run is continued by the next run.
"""

import asyncio
import os
import struct
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import asyncpg
import numpy as np

from memory_bench.latency.synthetic import BLOCK, DIMENSIONS, Synthetic
from memory_bench.postgres import MeasuredServer, bare_model, build_index, migrate_schema
from memory_recall.graph import enable
from memory_recall.graph.filling import fill_pass
from memory_recall.postgres.connection import DsnText
from memory_recall.schema.table import describe
from memory_recall.schema.table_locks import Work, locked_session

MODEL = "synthetic"
FORMAT = 3  # to be raised when rows or index change
BYTES_PER_ROW = 9_000  # table, TOAST, indexes and temporary files of the builds
GRAPH_BYTES_PER_ROW = 6_000  # links with both of their indexes, and the queue before it is vacuumed
_MEMORY_MB = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
SETTINGS = {
    "shared_buffers": f"{_MEMORY_MB // 4}MB",  # the recommendation of Postgres' manual for a dedicated server
    "maintenance_work_mem": "4GB",
    "max_parallel_maintenance_workers": "1",
    "max_wal_size": "8GB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "fsync": "off",  # the data can be made again
    "autovacuum": "off",  # nothing may run beside the measurements; the table is vacuumed and analysed once
}
_LOCK_SECONDS = 60.0
_SIGNATURE = b"PGCOPY\n\xff\r\n\x00" + struct.pack(">ii", 0, 0)
_SIZES = """
SELECT 'heap' AS part, pg_relation_size(oid) AS bytes FROM pg_class WHERE oid = 'memories'::regclass
UNION ALL SELECT 'toast', pg_total_relation_size(reltoastrelid) FROM pg_class WHERE oid = 'memories'::regclass
UNION ALL SELECT amname, sum(pg_relation_size(indexrelid))::bigint
            FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid JOIN pg_am ON pg_am.oid = relam
           WHERE indrelid = 'memories'::regclass GROUP BY amname"""
_COLUMNS = ["id", "content", "category", "importance", "user_id", "embedding"]


@dataclass(frozen=True, slots=True)
class Built:
    """A filled database, the seconds that each step of filling it took, and the bytes of each of its parts.

    The parts are the table (`heap`), what is stored apart from its rows (`toast`), and the indexes by their access
    methods (`hnsw`, `gin`, `btree`).
    """

    rows: int
    database: str
    seconds: dict[str, float]
    sizes: dict[str, int]


async def has_huge_pages(dsn: str) -> bool:
    """Return whether the shared memory of a server is in huge pages, as Postgres itself says."""
    connection: Any = await asyncpg.connect(dsn)
    try:
        return bool(await connection.fetchval("SELECT current_setting('huge_pages_status') = 'on'"))
    finally:
        await connection.close()


def database_name(rows: int) -> str:
    """Return the name of the database that holds a table of so many rows."""
    return f"latency_{rows}_v{FORMAT}"


async def build(server: MeasuredServer, rows: int, say: Callable[[str], None], *, graph: bool = False) -> Built:
    """Fill the database of `rows` rows, or continue where an earlier run was interrupted.

    With `graph` True, it also gets a concept graph.

    Raises:
        ValueError: `rows` is not a multiple of the block size, 5,000.
    """
    if rows % BLOCK:
        raise ValueError(f"rows must be a multiple of {BLOCK}")
    model = bare_model(MODEL, DIMENSIONS)
    database = database_name(rows)
    dsn = await server.create(database)
    await migrate_schema(dsn, model)
    owner: Any = await asyncpg.connect(dsn)
    try:
        await owner.execute("CREATE TABLE IF NOT EXISTS bench_steps (step text PRIMARY KEY, seconds float8)")
        await _once(owner, "rows", lambda: _fill(owner, rows, say), say)
        await _once(owner, "gin", lambda: _gin(owner), say)
        await _once(owner, "hnsw", lambda: build_index(dsn), say)
        await _once(owner, "vacuum", lambda: owner.execute("VACUUM (ANALYZE) memories"), say)
        if graph:
            await _once(owner, "graph", lambda: _graph(dsn, owner), say)
            vacuum = "VACUUM (ANALYZE) memories, memory_concepts, memory_graph_changes"
            await _once(owner, "graph vacuum", lambda: owner.execute(vacuum), say)
            await _graph(dsn, owner)  # fills it again if its rules have changed since, and does nothing otherwise
        seconds = dict(await owner.fetch("SELECT step, seconds FROM bench_steps"))
        sizes = dict(await owner.fetch(_SIZES))
    finally:
        await owner.close()
    return Built(rows, database, seconds, sizes)


async def _once(owner: Any, step: str, work: Callable[[], Any], say: Callable[[str], None]) -> None:  # noqa: ANN401  (asyncpg's connection)
    if await owner.fetchval("SELECT EXISTS (SELECT FROM bench_steps WHERE step = $1)", step):
        return
    started = time.perf_counter()
    await work()
    seconds = time.perf_counter() - started
    say(f"{step}: {seconds:.0f} s")
    await owner.execute("INSERT INTO bench_steps VALUES ($1, $2)", step, seconds)


async def _gin(owner: Any) -> None:  # noqa: ANN401  (asyncpg's connection or pool)
    await owner.execute("CREATE INDEX idx_memories_search ON memories USING gin (search_vector)")


async def _graph(dsn: str, owner: Any) -> None:  # noqa: ANN401  (asyncpg's connection)
    async with locked_session(DsnText(dsn), "memories", _LOCK_SECONDS, Work.CHANGE) as session:
        table = await describe(session, "memories")
        await enable(session, table)
    while (await fill_pass(owner, table, asyncio.Event())).more:
        pass


async def _fill(owner: Any, rows: int, say: Callable[[str], None]) -> None:  # noqa: ANN401  (asyncpg's connection or pool)
    # Nobody listens to the triggers' notifications, and one bulk build replaces a million insertions into the index.
    await owner.execute("SET session_replication_role = replica")
    await owner.execute("DROP INDEX IF EXISTS idx_memories_search")
    synthetic = Synthetic()
    present = await owner.fetchval("SELECT count(*) FROM memories")
    for block in range(present // BLOCK, rows // BLOCK):
        await owner.copy_to_table("memories", source=_rows(synthetic, block), columns=_COLUMNS, format="binary")
        if block % 20 == 19:
            say(f"{(block + 1) * BLOCK:,} of {rows:,} rows")


async def _rows(synthetic: Synthetic, block: int) -> AsyncIterator[bytes]:
    texts, importance = synthetic.texts(block), synthetic.importance(block).tolist()
    vectors = await asyncio.to_thread(lambda: np.ascontiguousarray(synthetic.vectors(block), dtype=">f2"))
    head = struct.pack(">hh", DIMENSIONS, 0)
    yield _SIGNATURE
    for place, text in enumerate(texts):
        fields = (
            struct.pack(">i", block * BLOCK + place + 1),
            text.encode(),
            b"facts",
            struct.pack(">f", importance[place]),
            b"user%d" % (place % 10),
            head + vectors[place].tobytes(),
        )
        yield struct.pack(">h", len(fields)) + b"".join(struct.pack(">i", len(one)) + one for one in fields)
    yield struct.pack(">h", -1)
