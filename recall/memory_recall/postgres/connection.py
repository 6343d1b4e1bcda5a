"""Connections to Postgres, opened in one place.

A connection string may come from a file that is rewritten when a password rotates, so it is read anew for every
connect. The `repr` of a source does not show the connection string, because printed text may end up in a log.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast
from urllib.parse import urlsplit, urlunsplit

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from memory_recall.errors import InvalidConfiguration, ProtocolViolation
from memory_recall.postgres.driver_errors import translated
from memory_recall.postgres.identity_sql import DatabaseIdentity, require_identity
from memory_recall.secret_file import read_secret_file

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
AnyConnection: TypeAlias = "Connection | PoolConnectionProxy[asyncpg.Record]"


class _VersionedConnection(asyncpg.Connection):
    """A connection whose server has said which version of Postgres it is.

    Without this, asyncpg leaves the connection to any other server open and loses it.
    """

    def __init__(self, *arguments: Any) -> None:  # noqa: ANN401  (asyncpg hands its arguments through)
        try:
            super().__init__(*arguments)
        except (AttributeError, TypeError, ValueError):  # no version, or one that is none
            self._abort()  # type: ignore[attr-defined]  # not in the stubs; terminate() needs a complete object
            raise ProtocolViolation(
                "The server that the connection string leads to does not say which version of Postgres it is.",
                "Point the connection string at a Postgres server that you trust.",
            ) from None


class DsnSource(Protocol):
    """A source of the current connection string and, if known, of the only database that it may lead to."""

    @property
    def identity(self) -> DatabaseIdentity | None:
        """The only database that a connection may reach; None if any database is allowed."""
        ...

    def read(self) -> str:
        """Return the current connection string."""
        ...


@dataclass(frozen=True)
class DsnText:
    """A connection string that was given as text and does not change."""

    dsn: str = field(repr=False)
    identity: DatabaseIdentity | None = None

    def read(self) -> str:
        """Return the connection string."""
        return self.dsn


@dataclass(frozen=True)
class DsnFile:
    """A file, such as a mounted Secret, that holds the connection string."""

    path: Path
    identity: DatabaseIdentity | None = None

    def read(self) -> str:
        """Return the present content of the file.

        Raises:
            InvalidConfiguration: the file is missing, unreadable or empty.
        """
        return read_secret_file(self.path, "connection string")


def normalised(dsn: str) -> str:
    """Return the connection string without SQLAlchemy's driver suffix, as in postgresql+asyncpg://.

    Raises:
        InvalidConfiguration: the text is not a postgresql:// URI.
    """
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
    loop: asyncio.AbstractEventLoop | None = None,
) -> Connection:
    """Open one connection, and drop it if it has reached another database than the source's `identity`.

    `loop` is the event loop that opens the connection. The one that `receiving_at_most` yields limits what the server
    may send; each statement is then prepared anew. The default is the running event loop, without a limit, because
    workers read texts of any size.

    Raises:
        DatabaseUnreachable: the server did not answer, or refused the connection.
        AuthenticationFailed: the server refused the credentials; a subclass of `DatabaseUnreachable`.
        InvalidConfiguration: the connection string cannot be understood or names a database that does not exist.
        DatabaseIdentityMismatch: the connection has reached another database than the source's `identity`.
        ProtocolViolation: the server does not say which version of Postgres it is.
    """
    dsn = normalised(source.read())
    with _connecting():
        connection: Connection = await asyncpg.connect(
            dsn,
            connection_class=_VersionedConnection,
            loop=loop,
            timeout=connect_timeout,
            command_timeout=command_timeout,
            statement_cache_size=0 if loop else 100,
            server_settings={"application_name": application_name},
        )
    return await _identified(connection, source)


async def _identified(connection: Connection, source: DsnSource) -> Connection:
    """Return a new connection after checking its database's identity; drop the connection if the check fails."""
    if source.identity is not None:
        try:
            await require_identity(connection, source.identity)
        except BaseException:
            connection.terminate()
            raise
    return connection


@asynccontextmanager
async def opened(source: DsnSource, application_name: str) -> AsyncIterator[Connection]:
    """Open one connection, and drop it when the block ends.

    Raises:
        DatabaseUnreachable, InvalidConfiguration, DatabaseIdentityMismatch: as for `connect`.
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
    """Open a pool of connections. The connection string is read anew for each of them.

    Set `statement_cache_size=0` behind a transaction pooler, where the next transaction may run in a server process
    without the prepared statements.

    Raises:
        DatabaseUnreachable: the first connections could not be opened.
    """

    async def connect_anew(*_arguments: Any, **options: Any) -> Any:  # noqa: ANN401  (asyncpg hands its options through)
        # The pool was given some connection string once; what counts is the one that is valid now.
        return await _identified(await asyncpg.connect(normalised(source.read()), **options), source)

    dsn = normalised(source.read())
    with _connecting():
        pool: Pool = await asyncpg.create_pool(
            dsn,
            init=cast("Any", init),
            min_size=min_size,
            max_size=max_size,
            command_timeout=command_timeout,
            statement_cache_size=statement_cache_size,
            max_cacheable_statement_size=0,  # no limit: the longest recalls are longer than asyncpg's 15 KiB
            server_settings={"application_name": application_name},
            connect=connect_anew,
        )
    return pool
