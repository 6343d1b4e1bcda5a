"""A server whose connections are bounded in number and time.

The HTTP server that this builds on bounds only how long a connection may be idle between two requests. A client that
sends the head of a request a byte at a time, stops in the middle of a body or does not take its answer would keep its
connection, and with it an open file, for as long as it likes; a few hundred of them would leave none for others. Here
each step that a client has to take has a time limit. When all connections are taken, the one that has waited longest
for its client makes room, so that a client that sends its request at once is served even then.
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
    """Bounds of the connections to one port: their number, seconds for each step of a client, and the size of a head.

    `unread_seconds` count from the first time that the client holds up its answer, `closing_seconds` from the end of
    the last answer.
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
    """The part of a request that is arriving."""

    HEAD = 0
    BODY = 1
    NOTHING = 2


class BoundedConfig(uvicorn.Config):
    """Configuration of a server, with the bounds of its connections."""

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
    """One connection, and since when it has waited for its client."""

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
        """Whether the connection is open and the next step is the client's."""
        stuck = self._arriving is not Arriving.NOTHING or not self._answering or self.flow.write_paused
        return stuck and not self.transport.is_closing()

    @property
    def precedence(self) -> tuple[Arriving, bool, float]:
        """Order in which connections make room: heads, bodies, idle ones, answers; those that wait longest first."""
        return self._arriving, self._answering, self._last_step

    def is_overdue(self, now: float) -> bool:
        """Return whether the client has taken longer for its step than it may."""
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
        """Take a new connection; when there are too many, the one that has waited longest for its client is closed."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections:
            others = [other for other in bounded(self.server_state) if other is not self and other.waits_for_client]
            min(others, key=lambda other: other.precedence, default=self).transport.abort()

    def data_received(self, data: bytes) -> None:
        """Feed the parser; a head that does not end has a limit."""
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
        """Begin a head."""
        super().on_message_begin()
        self._enter(Arriving.HEAD)
        self._head_began, self._head_bytes = True, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a field of the head.

        Raises:
            ValueError: there are too many; the parser turns this into a malformed request.
        """
        if len(self.headers) >= self._limits.head_fields:
            raise ValueError
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """End the head and begin the body, which may be empty."""
        super().on_headers_complete()
        self._answering = True
        self._enter(Arriving.BODY)

    def on_message_complete(self) -> None:
        """End the body."""
        super().on_message_complete()
        self._enter(Arriving.NOTHING)

    def on_response_complete(self) -> None:
        """End the answer; the body of a refused request may still be arriving."""
        super().on_response_complete()
        self._answering = not self.cycle.response_complete  # another request may have come right behind
        self._held_up_since = None
        self._since = self._last_step = time.monotonic()

    def pause_writing(self) -> None:
        """Stop writing an answer that the client does not take."""
        super().pause_writing()
        if self._held_up_since is None:
            self._held_up_since = time.monotonic()

    def _enter(self, arriving: Arriving) -> None:
        self._arriving = arriving
        self._since = self._last_step = time.monotonic()


def bounded(state: ServerState) -> list[BoundedProtocol]:
    """Return the connections of a server, which are all bounded."""
    return [connection for connection in state.connections if isinstance(connection, BoundedProtocol)]


class BoundedServer(uvicorn.Server):
    """A server on one port, which closes connections whose clients are overdue; signals are left to its owner."""

    async def on_tick(self, counter: int) -> bool:
        """Look after the connections, every half second."""
        if counter % _TICKS == 0:
            now = time.monotonic()
            for connection in bounded(self.server_state):
                if connection.is_overdue(now):
                    connection.transport.abort()
        return await super().on_tick(counter)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle no signals: two servers of one process would take them from each other."""
        yield
