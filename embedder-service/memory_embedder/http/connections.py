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

    `untaken_seconds` count from the first time that the client holds up its answer, `closing_seconds` from the end of
    the last answer.
    """

    connections: int
    body_seconds: float
    head_seconds: float = 10.0
    idle_seconds: float = 75.0
    untaken_seconds: float = 60.0
    closing_seconds: float = 10.0
    head_bytes: int = 64 << 10
    head_fields: int = 100


class Step(IntEnum):
    """The step of a client that a connection waits for, in the order in which connections make room for others.

    `NONE` is a connection that waits for this service.
    """

    HEAD = 0
    BODY = 1
    REQUEST = 2
    ANSWER = 3
    NONE = 4


class Waiting:
    """The connections to one port by the step that they wait for, those that wait longest first."""

    def __init__(self) -> None:
        self._by_step: dict[Step, dict[BoundedProtocol, None]] = {step: {} for step in Step}

    def put(self, connection: BoundedProtocol, old: Step, new: Step) -> None:
        """Put a connection behind all others that wait for the same step."""
        self._by_step[old].pop(connection, None)
        self._by_step[new][connection] = None

    def remove(self, connection: BoundedProtocol, step: Step) -> None:
        """Forget a connection."""
        self._by_step[step].pop(connection, None)

    def first(self, newest: BoundedProtocol) -> BoundedProtocol:
        """Return the connection that makes room: one that waits for its client, `newest` only if no other does."""
        for step, connections in self._by_step.items():
            if step is not Step.NONE:
                for connection in connections:
                    if connection is not newest and not connection.transport.is_closing():
                        return connection
        return newest


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
        self.waiting = Waiting()


class BoundedProtocol(HttpToolsProtocol):
    """One connection, and since when it has waited for which step of its client."""

    def __init__(
        self,
        config: BoundedConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits = config.limits
        self._waiting = config.waiting
        self._step = Step.HEAD
        self._since = time.monotonic()
        self._arriving: Step | None = None  # the part of a request that is arriving
        self._answering = False
        self._untaken_since: float | None = None
        self._closing = False
        self._head_began = False
        self._head_bytes = 0

    def is_overdue(self, now: float) -> bool:
        """Return whether the client has taken longer for its step than it may."""
        limits = self._limits
        if self.transport.is_closing():
            if not self._closing:
                self._closing, self._since = True, now
            return now - self._since > limits.closing_seconds
        if self._untaken_since is not None:
            return now - self._untaken_since > limits.untaken_seconds
        allowed = {
            Step.HEAD: limits.head_seconds,
            Step.BODY: limits.body_seconds,
            Step.REQUEST: limits.idle_seconds + limits.closing_seconds,  # the server itself closes it before
        }.get(self._step)
        return not self._answering and allowed is not None and now - self._since > allowed

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as the base class has it
        """Take a new connection; when there are too many, the one that has waited longest for its client is closed."""
        super().connection_made(transport)
        self._waiting.put(self, self._step, self._step)
        if len(self.connections) > self._limits.connections:
            self._waiting.first(self).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        self._waiting.remove(self, self._step)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Feed the parser; a head that does not end has a limit."""
        self._head_began = False
        if self._arriving is None:
            self._arriving = Step.HEAD
        super().data_received(data)
        if self._arriving is Step.HEAD and not self._head_began:
            self._head_bytes += len(data)
            if self._head_bytes > self._limits.head_bytes:
                self.transport.abort()
        self._wait(again=self._arriving is Step.BODY)

    def on_message_begin(self) -> None:
        """Begin a head."""
        super().on_message_begin()
        self._arriving = Step.HEAD
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
        self._arriving = Step.BODY

    def on_message_complete(self) -> None:
        """End the body."""
        super().on_message_complete()
        self._arriving = None

    def on_response_complete(self) -> None:
        """End the answer; the body of a refused request may still be arriving."""
        super().on_response_complete()
        self._answering = not self.cycle.response_complete  # another request may have come right behind
        self._untaken_since = None
        self._since = time.monotonic()
        self._wait(again=True)

    def pause_writing(self) -> None:
        """Stop writing an answer that the client does not take."""
        super().pause_writing()
        if self._untaken_since is None:
            self._untaken_since = time.monotonic()
        self._wait()

    def resume_writing(self) -> None:
        """Go on with an answer."""
        super().resume_writing()
        self._wait()

    def _wait(self, *, again: bool = False) -> None:
        """Wait for the step that is next; `again` puts this behind others that wait for the same one."""
        if self.transport.is_closing():
            return
        if self._arriving is not None:
            step = self._arriving
        elif self._answering:
            step = Step.ANSWER if self.flow.write_paused else Step.NONE
        else:
            step = Step.REQUEST
        if step is not self._step:
            self._since = time.monotonic()
        if step is not self._step or again:
            self._waiting.put(self, self._step, step)
            self._step = step


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
