"""Read facts about a database through memory_recall's catalog queries, and report errors as problems.

Only this module of the operator connects to databases. It wraps the connection URI in an object that does not print the
URI. A database that does not answer has little time to accept a connection and to answer; the work queue limits how
many objects wait for such databases at the same time. A database that sends too much does not take the operator's
memory: its connection is cut.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import monotonic

from memory_operator.api.reasons import Reason
from memory_operator.reconcile.facts import Inspection, Problem
from memory_recall import status
from memory_recall.errors import MemoryIndexError
from memory_recall.postgres.connection import AnyConnection, DsnText, connect
from memory_recall.postgres.receive_limit import receiving_at_most

CONNECT_SECONDS = 3.0
QUERY_SECONDS = 20.0  # of all statements together
RECEIVED_BYTES = 1024 * 1024  # of one observation; about 10 KiB are usual, and 110 KiB with 1,500 columns of long names


class DatabaseClient:
    """Observes databases; keeps no state."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock

    async def inspect(self, dsn: str, table: str) -> Inspection:
        """Connect to the database and return its catalog facts, or a problem if they cannot be read."""
        began = None
        try:
            async with _connected(dsn) as connection:
                began = self._clock()
                async with asyncio.timeout(QUERY_SECONDS):
                    found = _writable(await status.inspect(connection, table))
        except MemoryIndexError as error:
            found = Problem(Reason.from_code(error.reason, Reason.DATABASE_ERROR), error.message, error.remedy)
        except TimeoutError:
            message = f"The database did not answer within {QUERY_SECONDS:g} s."
            found = Problem(Reason.DATABASE_UNREACHABLE, message)
        return Inspection(found, 0.0 if began is None else self._clock() - began)


@asynccontextmanager
async def _connected(dsn: str) -> AsyncIterator[AnyConnection]:
    with receiving_at_most(RECEIVED_BYTES) as loop:
        connection = await connect(
            DsnText(dsn),
            application_name="memory-operator",
            connect_timeout=CONNECT_SECONDS,
            command_timeout=QUERY_SECONDS,
            loop=loop,
        )
        try:
            yield connection
        finally:
            await connection.close(timeout=2.0)


def _writable(found: status.DatabaseFacts) -> status.DatabaseFacts | Problem:
    if found.in_recovery:
        message = "The connection leads to a replica, which cannot be written."
        return Problem(Reason.DATABASE_UNREACHABLE, message, "Point the connection URI at the -rw service.")
    return found
