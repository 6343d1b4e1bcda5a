"""Connections to Postgres, opened in one place.

A connection string may come from a file that is rewritten when a password rotates, so it is read anew for every
connect. Sources hide their content from `repr`, because whatever is printed ends in a log.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast
from urllib.parse import urlsplit, urlunsplit

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from memory_recall.errors import DatabaseUnreachable, InvalidConfiguration, PoolerRefused
from memory_recall.postgres.driver_errors import translated
from memory_recall.secret_file import read_secret_file

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
AnyConnection: TypeAlias = "Connection | PoolConnectionProxy[asyncpg.Record]"


class DsnSource(Protocol):
    """Something that knows the current connection string."""

    def read(self) -> str:
        """The connection string as of now."""
        ...


@dataclass(frozen=True)
class DsnText:
    """A connection string that was given once."""

    dsn: str = field(repr=False)

    def read(self) -> str:
        """The connection string."""
        return self.dsn


@dataclass(frozen=True)
class DsnFile:
    """A file (a mounted Secret) that holds the connection string."""

    path: Path

    def read(self) -> str:
        """The file's content as of now.

        Raises:
            InvalidConfiguration: the file is missing, unreadable or empty.
        """
        return read_secret_file(self.path, "connection string")


def normalised(dsn: str) -> str:
    """The same connection string without SQLAlchemy's driver suffix, as API deployments often have one."""
    try:
        parts = urlsplit(dsn)
        _ = parts.port  # raises when it is no number
    except ValueError:
        parts = None
    if parts is None or parts.scheme.partition("+")[0] not in {"postgres", "postgresql"}:
        raise InvalidConfiguration(
            "The connection string is not a postgresql:// URI.",
            "Use postgresql://USER:PASSWORD@HOST:5432/DATABASE.",
        ) from None
    return urlunsplit(("postgresql", *parts[1:]))


@contextmanager
def _connecting() -> Iterator[None]:
    try:
        with translated("connecting to the database"):
            yield
    except ValueError:  # asyncpg's word for parts of a connection string that it cannot use
        raise InvalidConfiguration(
            "The connection string cannot be understood.", "Use postgresql://USER:PASSWORD@HOST:5432/DATABASE."
        ) from None


async def connect(
    source: DsnSource,
    *,
    application_name: str = "memory-index",
    connect_timeout: float = 10.0,
    command_timeout: float | None = None,
) -> Connection:
    """Open one connection.

    Raises:
        DatabaseUnreachable: no connection (AuthenticationFailed when the credentials were refused).
        InvalidConfiguration: the connection string cannot be understood or names a database that does not exist.
    """
    dsn = normalised(source.read())
    with _connecting():
        connection: Connection = await asyncpg.connect(
            dsn,
            timeout=connect_timeout,
            command_timeout=command_timeout,
            server_settings={"application_name": application_name},
        )
    return connection


@asynccontextmanager
async def opened(source: DsnSource, application_name: str) -> AsyncIterator[Connection]:
    """Open one connection for the block, and drop it at its end.

    Raises:
        DatabaseUnreachable, InvalidConfiguration: see `connect`.
    """
    connection = await connect(source, application_name=application_name)
    try:
        yield connection
    finally:
        connection.terminate()


async def create_pool(
    source: DsnSource,
    *,
    min_size: int = 1,
    max_size: int = 10,
    application_name: str = "memory-recall",
    command_timeout: float | None = 30.0,
    init: Callable[[Connection], Awaitable[None]] | None = None,
    statement_cache_size: int = 100,
) -> Pool:
    """Open a pool whose every new connection reads the connection string anew.

    Set `statement_cache_size=0` behind a transaction pooler, where a prepared statement may not be there next time.

    Raises:
        DatabaseUnreachable: the first connections could not be opened.
    """

    async def connect_anew(*_arguments: Any, **options: Any) -> Any:  # noqa: ANN401  (asyncpg hands its options through)
        # The pool was given some connection string once; what counts is the one that is valid now.
        return await asyncpg.connect(normalised(source.read()), **options)

    dsn = normalised(source.read())
    with _connecting():
        pool: Pool = await asyncpg.create_pool(
            dsn,
            init=cast("Any", init),
            min_size=min_size,
            max_size=max_size,
            command_timeout=command_timeout,
            statement_cache_size=statement_cache_size,
            server_settings={"application_name": application_name},
            connect=connect_anew,
        )
    return pool


async def require_session(connection: Connection) -> None:
    """Refuse a pooler and a replica: locks, LISTEN and CONCURRENTLY belong to one session of the primary.

    Postgres tells a client its process id when the session starts. A pooler makes one up, because the client may get
    another server process for each transaction; so a difference gives every kind of pooler away.

    Raises:
        PoolerRefused: the server process is not the one that we connected to.
        DatabaseUnreachable: this server is in recovery.
    """
    with translated("looking at the session"):
        row = await connection.fetchrow("SELECT pg_backend_pid() AS pid, pg_is_in_recovery() AS in_recovery")
    if row is None or row["pid"] != connection.get_server_pid():
        raise PoolerRefused(
            "A connection pooler stands between this process and Postgres.",
            "Use the cluster's -rw service (port 5432 of the primary) instead of the pooler.",
        )
    if row["in_recovery"]:
        raise DatabaseUnreachable(
            "The server is a replica and takes no writes.", "Connect to the primary (the -rw service)."
        )
