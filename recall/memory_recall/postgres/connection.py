"""Connections to Postgres, opened in one place.

A connection string may come from a file that is rewritten when a password rotates, so it is read anew for every
connect, and so are the certificates of the server's authority. The `repr` of a source does not show the connection
string, because printed text may end up in a log.

The driver gets every argument that it would otherwise take from a variable or a file of this machine, and it gets one
server at a time: which server is next, and whether a connection is tried without TLS, is decided here.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, cast

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from memory_recall.errors import ProtocolViolation
from memory_recall.postgres.connection_uri import ConnectionUri, Server, parse
from memory_recall.postgres.driver_errors import translated
from memory_recall.postgres.identity_sql import DatabaseIdentity, require_identity
from memory_recall.postgres.tls import AS_WRITTEN, DatabaseTls, TlsMode
from memory_recall.secret_file import read_secret_file

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
AnyConnection: TypeAlias = "Connection | PoolConnectionProxy[asyncpg.Record]"

CONNECT_SECONDS = 10.0
# The connection ends a minute after the server's node has died without a word. Without these, a client that waits for
# the result of a statement has nothing to send and waits for ever: an index build of hours cannot have a time limit.
_KEEP_ALIVE = {
    "TCP_KEEPIDLE": 30,  # seconds
    "TCP_KEEPINTVL": 10,  # seconds
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 60_000,  # milliseconds that data which was sent may be unacknowledged
}
_CONNECTING = "connecting to the database"
_NOT_ABOUT_TLS = (ConnectionRefusedError, ConnectionAbortedError, BrokenPipeError, asyncpg.InvalidPasswordError)


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


@dataclass(frozen=True)
class DsnText:
    """A connection string that was given as text and does not change."""

    dsn: str = field(repr=False)
    identity: DatabaseIdentity | None = None
    tls: DatabaseTls = AS_WRITTEN

    def read(self) -> str:
        """Return the connection string."""
        return self.dsn


@dataclass(frozen=True)
class DsnFile:
    """A file, such as a mounted Secret, that holds the connection string."""

    path: Path
    identity: DatabaseIdentity | None = None
    tls: DatabaseTls = AS_WRITTEN

    def read(self) -> str:
        """Return the present content of the file.

        Raises:
            InvalidConfiguration: the file is missing, unreadable or empty.
        """
        return read_secret_file(self.path, "connection string")


DsnSource: TypeAlias = DsnText | DsnFile


def driver_arguments(uri: ConnectionUri, server: Server, tls: ssl.SSLContext | None, session: str) -> dict[str, Any]:
    """Return the arguments of the driver for one server, so that it reads no variable and opens no file.

    An argument that is None, as a password would be, has the driver look for a value elsewhere.
    """
    return {
        "dsn": None,
        "host": server.host,
        "port": server.port,
        "user": uri.user,
        "password": uri.password,
        "database": uri.database,
        "ssl": tls or False,
        "direct_tls": False,
        "target_session_attrs": session,
        "krbsrvname": "postgres",
        "gsslib": "gssapi",
    }


def _keep_alive(connection: Connection) -> Connection:
    """Have the kernel ask a server whether it is still there while nothing is sent; return the connection.

    An option that this kernel does not have is left out. A socket in the file system needs none, and one that is closed
    already has none.
    """
    used: socket.socket | None = connection._transport.get_extra_info("socket")  # type: ignore[attr-defined]
    if used is not None and used.family != socket.AF_UNIX:
        used.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEP_ALIVE.items():
            if hasattr(socket, name):
                used.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return connection


async def _connect_to(
    uri: ConnectionUri, server: Server, tls: DatabaseTls, session: str, options: Mapping[str, Any]
) -> Connection:
    """Connect to one server; where TLS is preferred and not demanded, also without it."""
    mode = tls.mode_of(uri.mode)
    context = None if server.is_socket else tls.context(mode)
    try:
        return await asyncpg.connect(**driver_arguments(uri, server, context, session), **options)
    except (ConnectionError, ssl.SSLError, asyncpg.InvalidAuthorizationSpecificationError) as error:
        # What is plainly a ConnectionError is of the driver: the server has no TLS, or ended the connection over it.
        if mode is not TlsMode.PREFER or context is None or isinstance(error, _NOT_ABOUT_TLS):
            raise
    return await asyncpg.connect(**driver_arguments(uri, server, None, session), **options)


async def _connect(source: DsnSource, seconds: float, options: Mapping[str, Any]) -> Connection:
    """Connect to the first server of the connection string that accepts a session of the wanted kind."""
    uri = parse(source.read())
    sessions = ("standby", "any") if uri.session == "prefer-standby" else (uri.session,)
    attempts = [(server, session) for session in sessions for server in uri.servers]
    shared = {**options, "timeout": seconds / len(attempts)}
    async with asyncio.timeout(seconds):
        for number, (server, session) in enumerate(attempts, start=1):
            try:
                return _keep_alive(await _connect_to(uri, server, source.tls, session, shared))
            except (OSError, asyncpg.CannotConnectNowError, asyncpg.TargetServerAttributeNotMatched):
                if number == len(attempts):
                    raise
    raise AssertionError  # a connection string has at least one server


async def connect(
    source: DsnSource,
    *,
    application_name: str = "memory-index",
    connect_timeout: float = CONNECT_SECONDS,
    command_timeout: float | None = None,
    loop: asyncio.AbstractEventLoop | None = None,
) -> Connection:
    """Open one connection, and drop it if it has reached another database than the source's `identity`.

    `loop` is the event loop that opens the connection. The one that `receiving_at_most` yields limits what the server
    may send; each statement is then prepared anew. The default is the running event loop, without a limit, because
    workers read texts of any size.

    Raises:
        DatabaseUnreachable: the server did not answer, or refused the connection.
        ServerNotVerified: the server's certificate was refused; a subclass of `DatabaseUnreachable`.
        AuthenticationFailed: the server refused the credentials; a subclass of `DatabaseUnreachable`.
        InvalidConfiguration: the connection string cannot be used, or names a database that does not exist.
        DatabaseIdentityMismatch: the connection has reached another database than the source's `identity`.
        ProtocolViolation: the server does not say which version of Postgres it is.
    """
    options = {
        "connection_class": _VersionedConnection,
        "loop": loop,
        "command_timeout": command_timeout,
        "statement_cache_size": 0 if loop else 100,
        "server_settings": {"application_name": application_name},
    }
    with translated(_CONNECTING):
        connection = await _connect(source, connect_timeout, options)
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


@asynccontextmanager
async def borrowed(pool: Pool, seconds: float) -> AsyncIterator[AnyConnection]:
    """Take a connection from a pool, and return it when the block ends; after `seconds` it is closed.

    Raises:
        DatabaseUnreachable: no connection could be opened, or the connection could not be returned.
    """
    with translated("connecting to the database"):
        connection = await pool.acquire()
    cut = asyncio.get_running_loop().call_later(seconds, connection.terminate)
    try:
        yield connection
    finally:
        try:
            with translated("returning a connection"):
                await pool.release(connection)
        finally:
            cut.cancel()


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
        InvalidConfiguration: the connection string cannot be used.
    """

    async def connect_anew(*_arguments: Any, **options: Any) -> Any:  # noqa: ANN401  (asyncpg hands its options through)
        return await _identified(await _connect(source, CONNECT_SECONDS, options), source)

    with translated(_CONNECTING):
        pool: Pool = await asyncpg.create_pool(
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
