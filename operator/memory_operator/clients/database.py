"""Read facts about a database through memory_recall's catalog queries, and report errors as problems.

Only this module of the operator connects to databases. It wraps the connection URI in an object that does not print the
URI. A database that does not answer has little time to accept a connection and to answer; the work queue limits how
many objects wait for such databases at the same time. A database that sends too much does not take the operator's
memory: its connection is cut.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from time import monotonic

from memory_operator.api.reasons import Reason
from memory_operator.reconcile.facts import Inspection, Problem
from memory_recall import status
from memory_recall.errors import DatabaseUnreachable, MemoryIndexError, PoolerRefused
from memory_recall.postgres.connection import AnyConnection, DsnText, connect
from memory_recall.postgres.connection_uri import parse
from memory_recall.postgres.pooled_hosts import refuse_pooled_hosts
from memory_recall.postgres.receive_limit import receiving_at_most
from memory_recall.schema.columns.names import ColumnNames

AddressesOf = Callable[[str, str], Awaitable[tuple[str, ...] | Problem]]  # of a host that a namespace's object names
CONNECT_SECONDS = 3.0
QUERY_SECONDS = 30.0  # of all statements together
COUNT_SECONDS = 20.0  # of these, for counting rows, which are estimated in a table that takes longer
RECEIVED_BYTES = 1024 * 1024  # of one observation; about 10 KiB are usual, and 110 KiB with 1,500 columns of long names


class DatabaseClient:
    """Observes databases; keeps no state. `addresses_of` finds the addresses of a host that an object names."""

    def __init__(self, addresses_of: AddressesOf, clock: Callable[[], float] = monotonic) -> None:
        self._addresses_of = addresses_of
        self._clock = clock

    async def inspect(
        self, source: DsnText, table: str, namespace: str, names: ColumnNames | None = None
    ) -> Inspection:
        """Connect to the database that an object of this namespace names and return its catalog facts.

        `names` are what the object calls the table's columns; None takes what is recorded in the database.
        If they cannot be read, a problem is returned in their place.
        """
        addresses = await self._addresses(source, namespace)
        if isinstance(addresses, Problem):
            return Inspection(addresses)
        began = None
        try:
            async with _connected(source, addresses) as connection:
                began = self._clock()
                async with asyncio.timeout(QUERY_SECONDS):
                    found = _writable(await status.inspect(connection, table, names, count_seconds=COUNT_SECONDS))
        except MemoryIndexError as error:
            found = Problem(Reason.from_code(error.reason, Reason.DATABASE_ERROR), error.message, error.remedy)
        except TimeoutError:
            message = f"The database did not answer within {QUERY_SECONDS:g} s."
            found = Problem(Reason.DATABASE_UNREACHABLE, message)
        return Inspection(found, 0.0 if began is None else self._clock() - began)

    async def _addresses(self, source: DsnText, namespace: str) -> Mapping[str, tuple[str, ...]] | Problem:
        """Return the addresses of each host of the connection URI, or the problem if no host has any."""
        try:
            servers = parse(source.dsn).servers
            refuse_pooled_hosts(servers)
        except PoolerRefused as error:
            return Problem(Reason.POOLER_REFUSED, error.message, error.remedy)
        except MemoryIndexError as error:
            return Problem(Reason.SECRET_INVALID, error.message, error.remedy)
        hosts = dict.fromkeys(server.host for server in servers)
        listed = await asyncio.gather(*(self._addresses_of(namespace, host) for host in hosts))
        found = {host: one for host, one in zip(hosts, listed, strict=True) if not isinstance(one, Problem)}
        return found or next(one for one in listed if isinstance(one, Problem))


@asynccontextmanager
async def _connected(source: DsnText, addresses: Mapping[str, tuple[str, ...]]) -> AsyncIterator[AnyConnection]:
    with receiving_at_most(RECEIVED_BYTES, addresses) as loop:
        try:
            connection = await connect(
                source,
                application_name="memory-operator",
                connect_timeout=CONNECT_SECONDS,
                command_timeout=QUERY_SECONDS,
                loop=loop,
            )
        except DatabaseUnreachable as error:
            if type(error) is not DatabaseUnreachable or error.sqlstate:
                raise
            # Whether a port is closed, silent or another server's is not told: the author may not reach it.
            raise DatabaseUnreachable(
                "No Postgres server answers at the host and port of the connection URI.",
                "Check that the server runs, that host and port are right and reachable from the operator's pod, and "
                "that the server offers TLS where TLS is demanded.",
            ) from None
        try:
            yield connection
        finally:
            await connection.close(timeout=2.0)


def _writable(found: status.DatabaseFacts) -> status.DatabaseFacts | Problem:
    if found.in_recovery:
        message = "The connection leads to a replica, which cannot be written."
        return Problem(Reason.DATABASE_UNREACHABLE, message, "Point the connection URI at the -rw service.")
    return found
