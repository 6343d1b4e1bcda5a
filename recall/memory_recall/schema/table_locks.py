"""Takes the lock for migrations and index builds, and waits for vacuums before a table is changed.

A statement that waits for an exclusive lock on a table makes all later statements wait, too. Therefore it gives up
soon, lets the later statements pass and tries again. This would fail during a vacuum, because a vacuum of a large
vector index runs for minutes. Therefore a lock that conflicts with vacuums, but neither with readers nor with writers,
is taken first. Postgres cancels an autovacuum that has made a session wait for longer than `deadlock_timeout`.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from memory_recall.errors import LockNotAvailable
from memory_recall.postgres.connection import Connection, DsnSource
from memory_recall.postgres.driver_errors import translated
from memory_recall.postgres.session import opened_session
from memory_recall.postgres.session_sql import apply_settings
from memory_recall.schema.table import MemoryTable

LOCK_TIMEOUT_MS = 100  # nobody waits longer behind a change of the table
MAINTENANCE_TIMEOUT_MS = 5000  # over deadlock_timeout, which is a second unless somebody has changed it
_LOCK_KEY = 0x6D656D6F_72796978  # "memoryix"; one migrator per database


def wait_for_maintenance(table: MemoryTable) -> list[str]:
    """Return statements that wait for vacuums and index builds of the table, and prevent new ones until the commit."""
    return [
        f"SET LOCAL lock_timeout = {MAINTENANCE_TIMEOUT_MS}",
        f"LOCK TABLE {table.qualified} IN SHARE UPDATE EXCLUSIVE MODE",
        f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}",
    ]


@asynccontextmanager
async def locked_session(source: DsnSource, lock_seconds: float) -> AsyncIterator[Connection]:
    """Open a session that holds the lock of the database for changing the schema and building the vector index.

    Raises:
        LockNotAvailable: another session has held the lock for `lock_seconds`.
    """
    async with opened_session(source, "memory-migrate") as connection:
        await apply_settings(connection, {"default_transaction_isolation": "read committed"})
        await _take_lock(connection, lock_seconds)
        yield connection


async def _take_lock(connection: Connection, lock_seconds: float) -> None:
    """Try at intervals to take the lock.

    A statement that waits for the lock would hold a snapshot, and CREATE INDEX CONCURRENTLY would wait for the end of
    this snapshot.
    """
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
