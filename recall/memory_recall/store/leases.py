"""Who works on what: advisory locks that end with the session of their holder.

Each backfill worker leases its partition, so a pod that was replaced but still runs and its successor never embed the
same rows. The sync worker stands aside while any backfill holds a lease.
"""

import asyncio

from memory_recall.store.connection import Connection
from memory_recall.store.pending import Partition
from memory_recall.store.translation import translated

_BACKFILL = 0x6D786266
_SYNC = 0x6D787379


async def lease_partition(connection: Connection, partition: Partition) -> None:
    """Wait until this session is the only one that backfills the partition."""
    await _lease(connection, _BACKFILL, partition.index)


async def lease_sync(connection: Connection) -> None:
    """Wait until this session is the only sync worker."""
    await _lease(connection, _SYNC, 0)


async def backfill_runs(connection: Connection) -> bool:
    """Whether any backfill worker is at work in this database."""
    with translated("looking for a running backfill"):
        found: bool = await connection.fetchval(
            "SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database "
            "WHERE d.datname = current_database() AND l.locktype = 'advisory' AND l.granted "
            "AND l.classid = $1::bigint::oid)",
            _BACKFILL,
        )
    return found


async def _lease(connection: Connection, kind: int, number: int) -> None:
    while True:
        with translated("taking a lease"):
            if await connection.fetchval("SELECT pg_try_advisory_lock($1::int, $2::int)", kind, number):
                return
        await asyncio.sleep(0.5)
