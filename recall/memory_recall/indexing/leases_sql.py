"""Leases: advisory locks that keep two workers from doing the same work.

A lease ends with the database session that holds it. Each backfill worker holds the lease of its share. Therefore
two pods never embed the same rows, even if a replaced pod still runs. The sync worker pauses while any backfill worker
of its table holds a lease. Each table has leases of its own, so the workers of different tables never wait for a lease
of another table. A wait that lasts is reported like an outage, since the worker does nothing meanwhile.
"""

import zlib
from functools import partial

from memory_recall.errors import LockNotAvailable, SwapInProgress
from memory_recall.indexing.queue_sql import WorkerShare
from memory_recall.postgres.connection import Connection
from memory_recall.postgres.driver_errors import translated
from memory_recall.retrying import Awaited, Backoff, OutageListener, caused_by, retry, retry_outage
from memory_recall.schema.table import MemoryTable

_BACKFILL = 0x6D786266
_SYNC = 0x6D787379
_SWAP = 0x6D787377
_STANDBY = 0x6D787374
_POLL = Backoff(first=0.5, longest=0.5)
_LOST_SESSION_SECONDS = 12.0  # within which Postgres ends a session whose client is gone (see `postgres.session`)
_REPORTED_AFTER = 5.0  # seconds; most workers that replace another one have the lease by then
_REMINDED_AFTER = 600.0  # seconds


def _lock_key(kind: int, table: MemoryTable) -> int:
    """Return the first key of the advisory lock for this kind of lease on the table.

    The schema, and the suffix of the names of the table's own relations, are hashed into the key. No name in Postgres
    holds the character between them.
    """
    return (kind ^ zlib.crc32(f"{table.schema}\0{table.suffix}".encode())) & 0x7FFFFFFF


async def lease_share(connection: Connection, table: MemoryTable, share: WorkerShare, listener: OutageListener) -> None:
    """Wait until this session holds the lease of one share of the table's backfill; report a wait that lasts."""
    await _lease(connection, _lock_key(_BACKFILL, table), share.index, listener)


async def lease_sync(connection: Connection, table: MemoryTable, listener: OutageListener) -> None:
    """Wait until this session holds the lease of the table's sync worker; report a wait that lasts."""
    await _lease(connection, _lock_key(_SYNC, table), 0, listener)


async def lease_swap(connection: Connection, table: MemoryTable) -> None:
    """Take the lease that only the process that carries out the table's swap holds.

    A process that was killed, or has lost its connection, may hold it for as long as Postgres does not look for its
    client. Only so long is waited for.

    Raises:
        SwapInProgress: another process holds the lease.
    """
    try:
        await retry(
            partial(_take, connection, _lock_key(_SWAP, table), 0),
            on=caused_by(LockNotAvailable),
            give_up_after=_LOST_SESSION_SECONDS,
            backoff=_POLL,
        )
    except LockNotAvailable:
        raise SwapInProgress(
            "Another process is carrying out a swap.", "Let it go on (memory swap status), or end it first."
        ) from None


async def try_lease_standby(connection: Connection, table: MemoryTable) -> bool:
    """Take the lease for filling the standby column if it is free. Return whether this session holds the lease now."""
    with translated("looking at the lease"):
        mine: bool = await connection.fetchval(
            "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() "
            "AND classid = $1::bigint::oid)",
            _lock_key(_STANDBY, table),
        )
    return mine or await _try(connection, _lock_key(_STANDBY, table), 0)


async def release_standby(connection: Connection, table: MemoryTable) -> None:
    """Release the lease for filling the standby column."""
    with translated("releasing a lease"):
        await connection.execute("SELECT pg_advisory_unlock($1::int, 0)", _lock_key(_STANDBY, table))


async def backfill_runs(connection: Connection, table: MemoryTable) -> bool:
    """Return whether any backfill worker of the table holds a lease."""
    with translated("looking for a running backfill"):
        found: bool = await connection.fetchval(
            "SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database "
            "WHERE d.datname = current_database() AND l.locktype = 'advisory' AND l.granted "
            "AND l.classid = $1::bigint::oid)",
            _lock_key(_BACKFILL, table),
        )
    return found


async def _lease(connection: Connection, kind: int, number: int, listener: OutageListener) -> None:
    # No deadline: a worker that replaces another one waits until that one has finished its batch.
    await retry_outage(
        partial(_take, connection, kind, number),
        Awaited.LEASE,
        listener,
        on=caused_by(LockNotAvailable),
        give_up_after=None,
        backoff=_POLL,
        reported_after=_REPORTED_AFTER,
        reminded_after=_REMINDED_AFTER,
    )


async def _take(connection: Connection, kind: int, number: int) -> None:
    if not await _try(connection, kind, number):
        raise LockNotAvailable("Another worker holds the lease.", "It ends with that worker's session.")


async def _try(connection: Connection, kind: int, number: int) -> bool:
    with translated("taking a lease"):
        taken: bool = await connection.fetchval("SELECT pg_try_advisory_lock($1::int, $2::int)", kind, number)
    return taken
