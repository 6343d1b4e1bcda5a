"""Takes the locks for migrations and index builds, and waits for vacuums before a table is changed.

A statement that waits for an exclusive lock on a table makes all later statements wait, too. Therefore it gives up
soon, lets the later statements pass and tries again. This would fail during a vacuum, because a vacuum of a large
vector index runs for minutes. Therefore a lock that conflicts with vacuums, but neither with readers nor with writers,
is taken first. Postgres cancels an autovacuum that has made a session wait for longer than `deadlock_timeout`.
"""

import asyncio
import time
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import StrEnum

from memory_recall.errors import LockNotAvailable
from memory_recall.postgres.connection import Connection, DsnSource
from memory_recall.postgres.driver_errors import translated
from memory_recall.postgres.session import opened_session
from memory_recall.postgres.session_sql import apply_settings
from memory_recall.schema.table import GUARDED, GUARDED_WRITER, MemoryTable, locate

LOCK_TIMEOUT_MS = 100  # nobody waits longer behind a change of the table
MAINTENANCE_TIMEOUT_MS = 5000  # over deadlock_timeout, which is a second unless somebody has changed it
_REVISIONS_KEY = 0x6D656D6F_72796978  # "memoryix"
_BUILDS_KEY = 0x6D656D6F_72796962  # "memoryib"
_TABLE_KEYS = 0x6D656D74_00000000  # "memt", and a hash of the table's name


def wait_for_maintenance(table: MemoryTable) -> list[str]:
    """Return statements that wait for vacuums and index builds of the table, and prevent new ones until the commit."""
    return [
        f"SET LOCAL lock_timeout = {MAINTENANCE_TIMEOUT_MS}",
        f"LOCK TABLE {table.qualified} IN SHARE UPDATE EXCLUSIVE MODE",
        f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}",
    ]


async def try_table_lock(connection: Connection, table: MemoryTable) -> None:
    """Take the lock of a table until the end of the transaction, without waiting for it.

    Raises:
        LockNotAvailable: another session changes the table's schema or builds its vector index.
    """
    if not await connection.fetchval("SELECT pg_try_advisory_xact_lock($1)", _table_key(table.schema, table.name)):
        raise LockNotAvailable(f"Another session changes {table.schema}.{table.name} or builds its vector index.")


class Work(StrEnum):
    """What a session is to do with a table while it holds the table's lock."""

    CHANGE = "change"
    MIGRATION = "migration"
    INDEX_BUILD = "index build"


@asynccontextmanager
async def locked_session(source: DsnSource, table: str, lock_seconds: float, work: Work) -> AsyncIterator[Connection]:
    """Open a session that holds the lock of a table, which need not exist.

    Each change of the table's schema and each build of its vector index holds this lock, and a swap holds it for as
    long as it exchanges columns. Of all tables of the database, moreover, only one is migrated at a time, since the
    first one of a schema gets the plain names, and only one has its index built, since a build may take as much memory
    as the server's page cache. An index build can last hours, in which other tables are migrated. The locks are always
    taken in one order, so that no two sessions wait for one another.

    Raises:
        LockNotAvailable: other sessions have held a lock for `lock_seconds`.
        DatabaseRejected: the search path names no schema that exists.
    """
    async with opened_session(source, "memory-migrate") as connection:
        await apply_settings(connection, {"default_transaction_isolation": "read committed", GUARDED_WRITER: GUARDED})
        schema, name = await locate(connection, table)
        deadline = time.monotonic() + lock_seconds
        if work is Work.INDEX_BUILD:
            await _take_lock(connection, _BUILDS_KEY, deadline, "Another vector index of this database is being built")
        changed = f"Another session changes table {schema}.{name} or builds its vector index"
        await _take_lock(connection, _table_key(schema, name), deadline, changed)
        if work is Work.MIGRATION:
            await _take_lock(connection, _REVISIONS_KEY, deadline, "Another table of this database is being migrated")
        yield connection


def _table_key(schema: str, name: str) -> int:
    """Return the key of a table's lock. No name in Postgres holds the character between schema and name."""
    return _TABLE_KEYS | zlib.crc32(f"{schema}\0{name}".encode())


async def _take_lock(connection: Connection, key: int, deadline: float, otherwise: str) -> None:
    """Try at intervals to take a lock, at least once, until `deadline` (of `time.monotonic`).

    A statement that waits for the lock would hold a snapshot, and CREATE INDEX CONCURRENTLY would wait for the end of
    this snapshot.
    """
    began = time.monotonic()
    while True:
        with translated("taking the migration lock"):
            if await connection.fetchval("SELECT pg_try_advisory_lock($1)", key):
                return
        if time.monotonic() >= deadline:
            waited = time.monotonic() - began
            raise LockNotAvailable(f"{otherwise}, {waited:.0f} s by now.", "Let it end, or end its session.")
        await asyncio.sleep(0.25)
