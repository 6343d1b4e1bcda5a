"""The lock of migrations and index builds, and how long a change of the shared table may wait, and for whom.

A statement that waits for the whole table makes all later ones wait behind it, so it gives up soon, lets them pass and
tries again. Behind a vacuum that would be in vain: one of a large vector index runs for minutes. So vacuums are waited
for by a lock that conflicts with them but neither with readers nor with writers; and Postgres ends an autovacuum that
somebody has waited for longer than `deadlock_timeout`.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from memory_recall.errors import LockNotAvailable
from memory_recall.postgres.connection import Connection, DsnSource, opened
from memory_recall.postgres.driver_errors import translated
from memory_recall.postgres.session_sql import require_session
from memory_recall.schema.table import MemoryTable

LOCK_TIMEOUT_MS = 100  # nobody waits longer behind a change of the table
MAINTENANCE_TIMEOUT_MS = 5000  # over deadlock_timeout, which is a second unless somebody has changed it
_LOCK_KEY = 0x6D656D6F_72796978  # "memoryix"; one migrator per database


def wait_for_maintenance(table: MemoryTable) -> list[str]:
    """Waits until no vacuum or index build works on the table, and lets none begin before the transaction ends."""
    return [
        f"SET LOCAL lock_timeout = {MAINTENANCE_TIMEOUT_MS}",
        f"LOCK TABLE {table.qualified} IN SHARE UPDATE EXCLUSIVE MODE",
        f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}",
    ]


@asynccontextmanager
async def locked_session(source: DsnSource, lock_seconds: float) -> AsyncIterator[Connection]:
    """A session that alone in its database may change the schema or build the vector index.

    Raises:
        LockNotAvailable: another session has been at it for `lock_seconds`.
    """
    async with opened(source, "memory-migrate") as connection:
        await require_session(connection)
        await _take_lock(connection, lock_seconds)
        yield connection


async def _take_lock(connection: Connection, lock_seconds: float) -> None:
    """Try, rather than wait inside Postgres: a waiting statement would hold back CREATE INDEX CONCURRENTLY."""
    deadline = time.monotonic() + lock_seconds
    while True:
        with translated("taking the migration lock"):
            if await connection.fetchval("SELECT pg_try_advisory_lock($1)", _LOCK_KEY):
                return
        if time.monotonic() >= deadline:
            raise LockNotAvailable(
                f"Another migration has been running for {lock_seconds:.0f} s.", "Let it end, or end its session."
            )
        await asyncio.sleep(0.25)
