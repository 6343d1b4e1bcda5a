"""A partitioned table of many users on a primary, a replica of it, and a pooler in front of both.

The primary's files stay in the cache between runs, since filling it with millions of rows takes an hour on two cores.
The replica is copied anew each time.
"""

import struct
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np

from memory_bench.latency.synthetic import BLOCK, Floats, Synthetic
from memory_bench.postgres import bare_model, build_index, migrate_schema
from tests.support.pgbouncer import running_pgbouncer
from tests.support.postgres_instance import APP_PASSWORD, APP_ROLE, PostgresInstance, running_instance

MODEL, DIMENSIONS = "all-MiniLM-L6-v2", 384
BYTES_PER_ROW = 5_500  # of one instance: table, TOAST, indexes and temporary files of the builds
FORMAT = 1  # to be raised when rows or indexes change
_DATABASE = "fleet"
_POOL_SIZE = 10  # connections of the pooler to each instance
_SETTINGS = {
    "shared_buffers": "4GB",  # the vector indexes of 3 million rows take 3.4 GB
    "maintenance_work_mem": "2GB",
    "max_parallel_maintenance_workers": "1",
    "max_wal_size": "8GB",
    "wal_level": "replica",
}
_TABLE = """
CREATE TABLE memories (
    id bigint, content text NOT NULL, category varchar(50) DEFAULT 'facts', tags text DEFAULT '',
    expanded_keywords text DEFAULT '', importance real DEFAULT 0.5, is_sensitive boolean NOT NULL DEFAULT false,
    user_id varchar(100) NOT NULL, deleted_at timestamptz, created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    search_vector tsvector GENERATED ALWAYS AS (to_tsvector('english', content)) STORED,
    PRIMARY KEY (id, user_id)
) PARTITION BY LIST (user_id)"""
_COLUMNS = ["id", "content", "importance", "user_id", "embedding"]
_SIGNATURE = b"PGCOPY\n\xff\r\n\x00" + struct.pack(">ii", 0, 0)

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Fleet:
    """The connection strings of both instances, through the pooler, and the process id of each of the three."""

    primary: str
    replica: str
    parts: dict[str, int]


def user(number: int) -> str:
    """Return the name of one user, whose memories are a partition."""
    return f"user{number}"


def shortened(vectors: Floats) -> Floats:
    """Return synthetic vectors in the dimensions of this table; their first numbers vary most."""
    cut = vectors[:, :DIMENSIONS]
    scaled: Floats = (cut / np.linalg.norm(cut, axis=1, keepdims=True)).astype(np.float32)
    return scaled


@asynccontextmanager
async def running_store(cache: Path, rows: int, users: int, say: Say) -> AsyncIterator[Fleet]:
    """Run both instances and the pooler for the block, filled with `rows` rows of `users` users.

    Raises:
        ValueError: `rows` is not a multiple of the block size, 5,000.
    """
    if rows % BLOCK:
        raise ValueError(f"rows must be a multiple of {BLOCK}")
    with ExitStack() as stack:
        kept = cache / f"{rows}-{users}-v{FORMAT}"
        primary = stack.enter_context(running_instance(directory=kept, settings=_SETTINGS))
        await _fill(primary, rows, users, say)
        say("copying the primary")
        copied = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="replica-", dir=cache)))
        replica = stack.enter_context(running_instance(primary=primary, directory=copied, settings=_SETTINGS))
        servers = {
            name: f"host=127.0.0.1 port={server.port} dbname={_DATABASE}"
            for name, server in (("primary", primary), ("replica", replica))
        }
        async with running_pgbouncer(servers, pool_size=_POOL_SIZE) as pooler:
            parts = {"primary": primary.pid, "replica": replica.pid, "pooler": pooler.pid}
            yield Fleet(pooler.dsn("primary"), pooler.dsn("replica"), parts)


async def _fill(primary: PostgresInstance, rows: int, users: int, say: Say) -> None:
    admin: Any = await asyncpg.connect(primary.superuser_dsn())
    try:
        if not await admin.fetchval("SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)", APP_ROLE):
            await admin.execute(f"CREATE ROLE {APP_ROLE} LOGIN PASSWORD '{APP_PASSWORD}'")
        if not await admin.fetchval("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", _DATABASE):
            await admin.execute(f"CREATE DATABASE {_DATABASE} OWNER {APP_ROLE}")
    finally:
        await admin.close()
    owner: Any = await asyncpg.connect(primary.superuser_dsn(_DATABASE))
    try:
        await owner.execute("CREATE EXTENSION IF NOT EXISTS vector")
        await owner.execute("CREATE TABLE IF NOT EXISTS steps (step text PRIMARY KEY, seconds float8)")
        for step, work in _steps(primary, owner, rows, users, say).items():
            if not await owner.fetchval("SELECT EXISTS (SELECT FROM steps WHERE step = $1)", step):
                began = time.perf_counter()
                await work()
                say(f"{step}: {time.perf_counter() - began:.0f} s")
                await owner.execute("INSERT INTO steps VALUES ($1, $2)", step, time.perf_counter() - began)
    finally:
        await owner.close()


def _steps(primary: PostgresInstance, owner: Any, rows: int, users: int, say: Say) -> dict[str, Callable[[], Any]]:  # noqa: ANN401  (asyncpg's connection)
    as_owner = primary.dsn(_DATABASE)
    return {
        "table": lambda: _create(as_owner, users),
        "rows": lambda: _copy_rows(owner, rows, users, say),
        "words": lambda: owner.execute("CREATE INDEX ON memories USING gin (search_vector)"),
        "vectors": lambda: _build_vector_indexes(as_owner),
        "vacuum": lambda: owner.execute("VACUUM (ANALYZE) memories"),
    }


async def _create(dsn: str, users: int) -> None:
    connection: Any = await asyncpg.connect(dsn)
    try:
        async with connection.transaction():
            await connection.execute("DROP TABLE IF EXISTS memories")
            await connection.execute(_TABLE)
            for number in range(users):
                name = user(number)
                await connection.execute(f"CREATE TABLE memories_{name} PARTITION OF memories FOR VALUES IN ('{name}')")
    finally:
        await connection.close()
    await migrate_schema(dsn, bare_model(MODEL, DIMENSIONS))


async def _build_vector_indexes(dsn: str) -> None:
    # The rows may have been filled by another version of the library, with other triggers.
    await migrate_schema(dsn, bare_model(MODEL, DIMENSIONS))
    await build_index(dsn)


async def _copy_rows(owner: Any, rows: int, users: int, say: Say) -> None:  # noqa: ANN401  (asyncpg's connection)
    # Nobody listens to the triggers' notifications.
    await owner.execute("SET session_replication_role = replica")
    synthetic = Synthetic()
    present = await owner.fetchval("SELECT count(*) FROM memories")
    for block in range(present // BLOCK, rows // BLOCK):
        await owner.copy_to_table("memories", source=_rows(synthetic, block, users), columns=_COLUMNS, format="binary")
        if block % 20 == 19:
            say(f"{(block + 1) * BLOCK:,} of {rows:,} rows")
    await owner.execute("RESET session_replication_role")


async def _rows(synthetic: Synthetic, block: int, users: int) -> AsyncIterator[bytes]:
    texts, importance = synthetic.texts(block), synthetic.importance(block).tolist()
    vectors = np.ascontiguousarray(shortened(synthetic.vectors(block)), dtype=">f2")
    head = struct.pack(">hh", DIMENSIONS, 0)
    yield _SIGNATURE
    for place, text in enumerate(texts):
        number = block * BLOCK + place
        fields = (
            struct.pack(">q", number + 1),
            text.encode(),
            struct.pack(">f", importance[place]),
            user(number % users).encode(),
            head + vectors[place].tobytes(),
        )
        yield struct.pack(">h", len(fields)) + b"".join(struct.pack(">i", len(one)) + one for one in fields)
    yield struct.pack(">h", -1)
