"""Limits what a database server may send: all bytes together, and only messages that asyncpg can read safely.

asyncpg stores a message completely before it reads it, whatever length the server announces, and keeps any number of
rows and parameters. It has no setting against this, but it takes the event loop as an argument. The event loop of this
module stands between each connection and asyncpg's protocol: it counts the bytes, checks each message, and closes the
connection before asyncpg sees what is not allowed.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from ssl import SSLContext
from typing import Any, cast

from asyncpg.protocol import Protocol

from memory_recall.errors import ProtocolViolation
from memory_recall.postgres.server_messages import MalformedMessageError, ServerMessages

_FIRST_MESSAGES = (b"R", b"E", b"N", b"v")  # with which Postgres begins: authentication, error, notice, other version


class _Allowance:
    """The bytes that all connections of one event loop may receive; `violation` says how a server broke a limit."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.violation = ""
        self._left = limit

    def take(self, count: int) -> None:
        """Count bytes that were received."""
        self._left -= count
        if self._left < 0:
            self.violation = f"sent more than {self.limit} bytes"


class _LimitedProtocol(asyncio.Protocol):
    """Passes allowed bytes on to asyncpg's protocol, and closes the connection if forbidden bytes arrive."""

    def __init__(self, protocol: asyncio.Protocol, allowance: _Allowance) -> None:
        self.protocol = protocol
        self.transport: asyncio.BaseTransport | None = None
        self._allowance = allowance
        # Another protocol of asyncpg's asks the server for TLS. The answer is one byte and not a message.
        self._messages = ServerMessages(allowance.limit) if isinstance(protocol, Protocol) else None
        self._is_postgres = self._messages is None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, to be able to close it."""
        self.transport = transport
        self.protocol.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Pass on the complete messages, unless a limit has been broken."""
        self._is_postgres = self._is_postgres or data[:1] in _FIRST_MESSAGES
        if not self._is_postgres and self.transport is not None:
            cast("asyncio.Transport", self.transport).abort()  # as if nothing listened there
            return
        self._allowance.take(len(data))
        allowed = data
        if self._messages and not self._allowance.violation:
            try:
                allowed = self._messages.completed_by(data)
            except MalformedMessageError as error:
                self._allowance.violation = str(error)
        if not self._allowance.violation:
            self.protocol.data_received(allowed)
        elif self.transport is not None:
            cast("asyncio.Transport", self.transport).abort()

    def eof_received(self) -> bool | None:
        """Tell asyncpg that the server will send nothing more."""
        return self.protocol.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        """Tell asyncpg that the connection is closed."""
        self.protocol.connection_lost(error)

    def pause_writing(self) -> None:
        """Tell asyncpg to stop sending for a while, because the server reads too slowly."""
        self.protocol.pause_writing()

    def resume_writing(self) -> None:
        """Tell asyncpg that it may send again."""
        self.protocol.resume_writing()


class _LimitedTransport:
    """A transport that also limits a protocol that is set later, as asyncpg does after it has negotiated TLS."""

    def __init__(self, transport: asyncio.Transport, allowance: _Allowance) -> None:
        self.transport = transport
        self._allowance = allowance

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  (everything else is the transport's)
        return getattr(self.transport, name)

    def set_protocol(self, protocol: asyncio.Protocol) -> None:
        """Let a protocol receive what comes from now on."""
        limited = _LimitedProtocol(protocol, self._allowance)
        limited.transport = self.transport
        self.transport.set_protocol(limited)


class _LimitedLoop:
    """The running event loop, except that its connections over TCP are limited and lead to known addresses only."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, allowance: _Allowance, addresses: Mapping[str, Sequence[str]]
    ) -> None:
        self._loop = loop
        self._allowance = allowance
        self._addresses = addresses

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  (everything else is the event loop's)
        return getattr(self._loop, name)

    async def create_connection(
        self, factory: Callable[[], asyncio.Protocol], host: str, port: int, *, ssl: SSLContext | None = None
    ) -> tuple[_LimitedTransport, asyncio.Protocol]:
        """Open a connection to an address of the host, with TLS from its first byte if `ssl` is given.

        Raises:
            OSError: the host has no known address, or none that accepts the connection.
        """
        addresses = self._addresses.get(host, ())
        for number, address in enumerate(addresses, start=1):
            try:
                transport, limited = await self._loop.create_connection(
                    lambda: _LimitedProtocol(factory(), self._allowance), address, port, ssl=ssl
                )
            except OSError:
                if number == len(addresses):
                    raise
            else:
                return _LimitedTransport(transport, self._allowance), limited.protocol
        raise OSError

    async def start_tls(
        self, limited: _LimitedTransport, protocol: asyncio.Protocol, ssl: SSLContext, *, server_hostname: str
    ) -> _LimitedTransport | None:
        """Go on with TLS on an open connection; return None if it was closed meanwhile."""
        transport = await self._loop.start_tls(limited.transport, protocol, ssl, server_hostname=server_hostname)
        return None if transport is None else _LimitedTransport(transport, self._allowance)


@contextmanager
def receiving_at_most(limit: int, addresses: Mapping[str, Sequence[str]]) -> Iterator[asyncio.AbstractEventLoop]:
    """Yield an event loop for `connect`, whose connections are closed once they have received `limit` bytes together.

    A connection is also closed if it receives a malformed message. `addresses` are the IP addresses of each host that
    may be connected to. No name is resolved here, but a certificate is compared with the name.

    Raises:
        ProtocolViolation: the block failed after a connection was closed for one of these reasons.
    """
    allowance = _Allowance(limit)
    try:
        yield cast("asyncio.AbstractEventLoop", _LimitedLoop(asyncio.get_running_loop(), allowance, addresses))
    except Exception:
        if not allowance.violation:
            raise
        raise ProtocolViolation(
            f"The database server {allowance.violation}, so the connection to it was closed.",
            "Point the connection string at a Postgres server that you trust.",
        ) from None
