"""An HTTP server that limits the number of connections and the time of every step that a client has to take.

The server is built on uvicorn, which limits only how long a connection may be idle between two requests. A client that
sends the head of a request a byte at a time, stops in the middle of a body or does not read its answer would keep its
connection, and with it an open file, for as long as it likes. A few hundred such clients would leave no connection for
others. Here each step of a client has a time limit. When all connections are taken, a new connection replaces one that
waits for its client, so that a client that sends its request at once is served even then.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

_TICKS = 5  # of the server's tenths of a second between two looks at all connections


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of the connections to one port: their number, seconds for each step of a client, and size of a head.

    A head is the request line and the header fields. `unread_seconds` count from the first time that the client does
    not read its answer, `closing_seconds` from the time that the server begins to close the connection.
    """

    connections: int
    body_seconds: float
    head_seconds: float = 10.0
    idle_seconds: float = 75.0
    unread_seconds: float = 60.0
    closing_seconds: float = 10.0
    head_bytes: int = 64 << 10
    head_fields: int = 100


class Arriving(IntEnum):
    """The part of a request that the server is receiving."""

    HEAD = 0
    BODY = 1
    NOTHING = 2


class BoundedConfig(uvicorn.Config):
    """The configuration of a uvicorn server, with the limits of its connections."""

    def __init__(self, app: ASGIApp, host: str, port: int, limits: ConnectionLimits, drain_seconds: float) -> None:
        super().__init__(
            app,
            host=host,
            port=port,
            http=BoundedProtocol,
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=int(limits.idle_seconds),
            timeout_graceful_shutdown=int(drain_seconds),
        )
        self.limits = limits


class BoundedProtocol(HttpToolsProtocol):
    """One connection, which records for how long its client has kept the server waiting."""

    def __init__(
        self,
        config: BoundedConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits = config.limits
        self._arriving = Arriving.HEAD
        self._since = self._last_step = time.monotonic()
        self._answering = False
        self._held_up_since: float | None = None
        self._closing = False
        self._head_began = False
        self._head_bytes = 0

    @property
    def waits_for_client(self) -> bool:
        """Whether the connection is open and the client has to take the next step."""
        stuck = self._arriving is not Arriving.NOTHING or not self._answering or self.flow.write_paused
        return stuck and not self.transport.is_closing()

    @property
    def precedence(self) -> tuple[Arriving, bool, float]:
        """Sort key: the connection with the least key is closed first to make room for a new one.

        Connections that receive a head come first, then those that receive a body, idle ones, and those with an unread
        answer; within each group, the longest wait comes first.
        """
        return self._arriving, self._answering, self._last_step

    def is_overdue(self, now: float) -> bool:
        """Return whether the client has exceeded the time limit of its step.

        `now` is in seconds of the monotonic clock.
        """
        if self.transport.is_closing():
            if not self._closing:
                self._closing, self._since = True, now
            return now - self._since > self._limits.closing_seconds
        if self._held_up_since is not None:
            return now - self._held_up_since > self._limits.unread_seconds
        allowed = {
            Arriving.HEAD: self._limits.head_seconds,
            Arriving.BODY: self._limits.body_seconds,
            Arriving.NOTHING: self._limits.idle_seconds + self._limits.closing_seconds,  # the server closes it before
        }[self._arriving]
        return not self._answering and now - self._since > allowed

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as the base class has it
        """Accept a new connection; if there are too many, close the one that is first by `precedence`.

        Only connections that wait for their clients are closed. If there is none, the new one is closed.
        """
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections:
            others = [
                other
                for other in bounded_connections(self.server_state)
                if other is not self and other.waits_for_client
            ]
            min(others, key=lambda other: other.precedence, default=self).transport.abort()

    def data_received(self, data: bytes) -> None:
        """Pass received bytes to the parser; close the connection if a request head becomes too large."""
        if self._arriving is Arriving.NOTHING:
            self._enter(Arriving.HEAD)
        self._head_began = False
        super().data_received(data)
        if self._arriving is Arriving.BODY:
            self._last_step = time.monotonic()
        if self._arriving is Arriving.HEAD and not self._head_began:
            self._head_bytes += len(data)
            if self._head_bytes > self._limits.head_bytes:
                self.transport.abort()

    def on_message_begin(self) -> None:
        """Record that a request head begins."""
        super().on_message_begin()
        self._enter(Arriving.HEAD)
        self._head_began, self._head_bytes = True, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Record one header field.

        Raises:
            ValueError: the head has too many fields; the parser then reports a malformed request.
        """
        if len(self.headers) >= self._limits.head_fields:
            raise ValueError
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Record that the head has ended and that the body, which may be empty, begins."""
        super().on_headers_complete()
        self._answering = True
        self._enter(Arriving.BODY)

    def on_message_complete(self) -> None:
        """Record that the body has ended."""
        super().on_message_complete()
        self._enter(Arriving.NOTHING)

    def on_response_complete(self) -> None:
        """Record that the answer has been written; the body of a refused request may still be arriving."""
        super().on_response_complete()
        self._answering = not self.cycle.response_complete  # another request may have come right behind
        self._held_up_since = None
        self._since = self._last_step = time.monotonic()

    def pause_writing(self) -> None:
        """Stop writing an answer that the client does not read."""
        super().pause_writing()
        if self._held_up_since is None:
            self._held_up_since = time.monotonic()

    def _enter(self, arriving: Arriving) -> None:
        self._arriving = arriving
        self._since = self._last_step = time.monotonic()


def bounded_connections(state: ServerState) -> list[BoundedProtocol]:
    """Return the connections of a server."""
    return [connection for connection in state.connections if isinstance(connection, BoundedProtocol)]


class BoundedServer(uvicorn.Server):
    """An HTTP server on one port that closes connections whose clients are overdue; it handles no signals itself."""

    async def on_tick(self, counter: int) -> bool:
        """Close overdue connections, every half second."""
        if counter % _TICKS == 0:
            now = time.monotonic()
            for connection in bounded_connections(self.server_state):
                if connection.is_overdue(now):
                    connection.transport.abort()
        return await super().on_tick(counter)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers: those of two servers in one process would replace each other."""
        yield
