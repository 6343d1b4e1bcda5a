"""Counts what the database reads: buffers by Postgres' statistics, and bytes that the kernel fetched from the disk.

A buffer (8 KiB) that Postgres has to read may still lie in the kernel's page cache, and readahead fetches more than was
asked for. So buffers do not say how much was read from the disk. The kernel says it for each process, as `read_bytes`
in `/proc/PID/io`: bytes that the process caused to be fetched from the storage, readahead included, pages found in the
page cache excluded. The main process of Postgres has there also what its ended children caused, so the sum over it and
its running children is what the whole server caused since it started, by its sessions, parallel workers and I/O workers
alike.
"""

from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Any, Self

import asyncpg
import psutil

from memory_bench.postgres import MeasuredServer


@dataclass(frozen=True, slots=True)
class Reads:
    """Buffers that were found in shared memory and buffers that were not, and bytes read from the disk.

    They are sums since some beginning, or differences or means of such sums.
    """

    buffers_hit: float
    buffers_read: float
    disk_bytes: float

    def __add__(self, other: Self) -> "Reads":
        """Return the sum of both."""
        return Reads(
            self.buffers_hit + other.buffers_hit,
            self.buffers_read + other.buffers_read,
            self.disk_bytes + other.disk_bytes,
        )

    def __sub__(self, earlier: Self) -> "Reads":
        """Return what was read since `earlier`."""
        return Reads(
            self.buffers_hit - earlier.buffers_hit,
            self.buffers_read - earlier.buffers_read,
            self.disk_bytes - earlier.disk_bytes,
        )

    def per(self, count: int) -> "Reads":
        """Return each number divided by `count`, such as the number of recalls."""
        return Reads(self.buffers_hit / count, self.buffers_read / count, self.disk_bytes / count)


async def count_reads(server: MeasuredServer, database: str, pool: Any) -> Reads:  # noqa: ANN401  (asyncpg's pool)
    """Return what has been read so far: buffers in one database, and bytes from the disk by the whole server.

    The sessions of `pool` (asyncpg's), none of which may be in use, report what they have counted first.
    """
    await _report_statistics(pool)
    # A session of another database, whose own reads of the catalogue do not count.
    connection: Any = await asyncpg.connect(server.dsn())
    try:
        row = await connection.fetchrow("SELECT blks_hit, blks_read FROM pg_stat_database WHERE datname = $1", database)
    finally:
        await connection.close()
    return Reads(row["blks_hit"], row["blks_read"], disk_bytes(server.process))


async def _report_statistics(pool: Any) -> None:  # noqa: ANN401  (asyncpg's pool)
    async with AsyncExitStack() as stack:
        sessions = [await stack.enter_async_context(pool.acquire()) for _ in range(pool.get_size())]
        for session in sessions:
            # By itself a session reports at most once a second.
            await session.execute("SELECT pg_stat_force_next_flush()")


def disk_bytes(process: psutil.Process) -> int:
    """Return the bytes that a process and its children, ended ones included, caused to be read from the disk.

    Raises:
        psutil.NoSuchProcess: the process itself has ended.
    """
    while True:
        with suppress(_ChildEndedError):
            return _disk_bytes(process)


class _ChildEndedError(Exception):
    """A child ended while it was counted, so that its part may already be in that of its parent."""


def _disk_bytes(process: psutil.Process) -> int:
    total = int(process.io_counters().read_bytes)
    for child in process.children(recursive=True):
        try:
            total += int(child.io_counters().read_bytes)
        except psutil.NoSuchProcess as error:
            raise _ChildEndedError from error
    return total
