"""An HTTP server that limits the number of connections and the time for which a connection waits for its client.

The server is built on uvicorn, which limits only how long a connection may be idle between two requests. A client that
sends the head of a request a byte at a time, stops in the middle of a body or does not read its answer would keep its
connection, and with it an open file, for as long as it likes. A few hundred such clients would leave no connection for
other clients.

Therefore a connection waits only for a limited time until its client has sent the head of a request, has sent the body,
has read the answer or has begun the next request. When all connections are taken, a new connection replaces one that
has waited for its client for a second. Therefore a client that sends its request at once is still served, whoever
holds connections. Where none has waited so long, the new request is answered by 429, and so is that of the client that
had to make room, if it had not sent it yet: a client that is reset cannot tell a full service from a broken network.

A connection that is closed while its client still sends is reset, and the client loses the answer. Therefore, behind
such an answer, only the server's direction ends: what still comes is read and forgotten until the client closes the
connection, for at most 10 s. Such a connection takes no place from others, as one that is refused takes none.
"""

import asyncio
import json
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from memory_embedder.errors import EmbedderError, ErrorKind, connections_taken, malformed_http
from memory_embedder.http.waiting import Step, Waiting

_CLOSING_SECONDS = 10  # in which the server itself closes an idle connection
_UPGRADE = re.compile(rb"(?im)^upgrade(?=:)")
_SMALL_PIECE_BYTES = 64
_REFUSED_SECONDS = 10.0  # in which a client that was refused, or still sends, reads the last answer and closes
REFUSAL = "refusal"
"""The key in the state of a request of the error that has been its answer before the end of its body."""
_LOOK_SECONDS = 0.5  # between two looks at all connections


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of the connections to one port: their number, the seconds of each wait, and the size of a head.

    The head of a request is its request line and its header fields; the chunk sizes, extensions and trailers of a
    chunked body have the same limit. `refused` is the number of further connections at one time: those that are
    answered by 429, and those without TLS whose client still sends behind the last answer. `held_seconds` is how long a
    connection may wait for its client before it makes room for another. `unread_seconds` count from the moment at which
    the client stops reading its answer, or at which the server, which has written all of it, begins to close the
    connection. `pipelined` is the number of requests that may wait for the answer to a request before them, and
    `handshakes` that of the connections whose TLS has not begun. `body_pieces` is the number of pieces that a body may
    have if they are small, with fewer than 64 bytes each on the average: each takes about a microsecond during which no
    other request is served.
    """

    connections: int
    body_seconds: float
    refused: int = 2048
    held_seconds: float = 1.0
    head_seconds: float = 10.0
    idle_seconds: float = 75.0
    unread_seconds: float = 60.0
    head_bytes: int = 64 << 10
    head_fields: int = 100
    pipelined: int = 16
    handshakes: int = 64
    body_pieces: int = 4096


class BoundedConfig(uvicorn.Config):
    """The configuration of a uvicorn server, with limits for its connections.

    `on_refusal` is called for each request that never reaches the application, since it is malformed or all connections
    are taken. One whose body is refused while the application reads it has the error in its state, under `REFUSAL`.
    """

    def __init__(
        self,
        app: ASGIApp,
        host: str,
        port: int,
        limits: ConnectionLimits,
        drain_seconds: float,
        *,
        on_refusal: Callable[[ErrorKind], None],
    ) -> None:
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
        self.refused: dict[BoundedProtocol, None] = {}  # the oldest comes first
        self.on_refusal = on_refusal


class BoundedProtocol(HttpToolsProtocol):
    """One connection. It records what the server waits for on it, and since when.

    `ended` says that all is written, and that what its client still sends is forgotten.

    The parser calls the methods `on_*`. Where one of them raises `ValueError`, it reports a malformed request.
    """

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
        self._refused = config.refused
        self._on_refusal = config.on_refusal
        self._step = Step.HEAD
        self._since = time.monotonic()
        self._arriving: Step | None = None  # the part of a request that is arriving
        self._answering = False
        self._answered: RequestResponseCycle | None = None
        self._unread_since: float | None = None
        self._closing = False
        self.ended = False
        self._malformed = False
        self.dropped = False
        self._progressed = False  # whether the last bytes received began a head, or began or continued a body
        self._bytes_without_progress = 0  # received since then
        self._field_bytes = 0
        self._body_bytes = 0
        self._body_pieces = 0

    def is_overdue(self, now: float) -> bool:
        """Return whether the connection has waited for its client longer than the limits allow.

        `now` is in seconds of the monotonic clock.
        """
        limits = self._limits
        if self in self._refused:
            return now - self._since > (_REFUSED_SECONDS if self.ended else limits.head_seconds)
        if self.transport.is_closing():
            if not self._closing:
                self._closing, self._since = True, now
            return now - (self._unread_since or self._since) > limits.unread_seconds
        if self._unread_since is not None:
            return now - self._unread_since > limits.unread_seconds
        allowed = {
            Step.HEAD: limits.head_seconds,
            Step.BODY: limits.body_seconds,
            Step.REQUEST: limits.idle_seconds + _CLOSING_SECONDS,
        }.get(self._step)
        return not self._answering and allowed is not None and now - self._since > allowed

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as the base class has it
        """Accept a new connection. If there are now too many, close another that has waited long for its client.

        If there is none, the new connection is refused: its request is answered by 429. If too many are refused at the
        moment, the oldest of them is closed.
        """
        super().connection_made(transport)
        now = time.monotonic()
        if len(self.connections) - len(self._refused) > self._limits.connections:
            held = self._waiting.longest(now, self._limits.held_seconds)
            if held is None:
                self._refuse_from_now_on()
                return
            held.make_room()
        self._waiting.put(self, self._step, self._step)

    def has_held(self, now: float, seconds: float) -> bool:
        """Return whether the connection has waited for the same for so many seconds.

        `now` is in seconds of the monotonic clock.
        """
        return now - self._since >= seconds

    def make_room(self) -> None:
        """Give this connection's place to another one: refuse a request that is still arriving, or close it at once.

        It is refused only if no answer has begun and none is due before it: a 429 in the place of another answer, or
        behind one, would be taken for that of another request.
        """
        if self._step is Step.HEAD and not self._answering:
            self._refuse_from_now_on()
        elif self._step is Step.BODY and self._answered is self.cycle and not self.cycle.response_started:
            self._refuse_from_now_on()
            self._refuse(connections_taken(), of_application=True)
        else:
            self.drop()

    def drop(self) -> None:
        """Close the connection at once, without what its client has not read yet."""
        self.dropped = True
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a closed connection, and tell the request that is being answered on it.

        The base class tells only the last one that arrived.
        """
        self.dropped = True
        self._refused.pop(self, None)
        self._waiting.remove(self, self._step)
        self._tell_of_disconnection()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass received bytes to the parser; close the connection if a head or the framing of a body becomes too large.

        The framing of a chunked body are its chunk sizes, extensions and trailers, of which the parser keeps an
        unfinished one however long it is. What a refused client sends is not read, nor what comes behind a malformed
        request.
        """
        if self in self._refused:
            self._refuse(connections_taken())
        if self.ended or self._malformed or self in self._refused:
            return
        self._progressed = False
        if self._arriving is None:
            self._arriving = Step.HEAD
            data = without_upgrade(data)
        super().data_received(data)
        if self._progressed:
            self._bytes_without_progress = 0
        elif self._arriving is not None:
            self._bytes_without_progress += len(data)
            if self._bytes_without_progress > self._limits.head_bytes:
                self.drop()
        self._wait(again=self._arriving is Step.BODY)

    def send_400_response(self, _msg: str) -> None:
        """Answer a malformed request in the envelope of all errors, and close the connection.

        Nothing is written where an answer has begun or is due before: the client would take it for a part of that, or
        for the answer to another request. The connection is then closed behind that answer.
        """
        self._malformed = True
        of_application = self._arriving is Step.BODY and self._answered is self.cycle
        if not (self.cycle.response_started if of_application else self._answering):
            self._refuse(malformed_http(), of_application=of_application)
            return
        if not of_application:
            self._on_refusal(ErrorKind.MALFORMED_HTTP)
        if self.pipeline and self.pipeline[0][0] is self.cycle:  # it waits behind the answer, and is never complete
            self.pipeline.popleft()
            if self.pipeline:
                self.cycle = self.pipeline[0][0]
            elif self._answered is not None:
                self.cycle = self._answered
        self.cycle.keep_alive = False
        if self.cycle.response_complete:
            self.finish()

    def finish(self) -> None:
        """Close the connection behind its last answer, in a way that lets a client read it that is still sending."""
        if self._malformed or self._arriving is not None:
            self._end()
        else:
            self.transport.close()

    def shutdown(self) -> None:
        """Close the connection once what is being answered on it has been answered, since the server stops."""
        if self.ended:
            self.transport.close()
        else:
            super().shutdown()

    def on_message_begin(self) -> None:
        """Record that a request head begins."""
        super().on_message_begin()
        self._arriving = Step.HEAD
        self._progressed, self._field_bytes = True, 0

    def on_url(self, url: bytes) -> None:
        """Record a part of the URL.

        Raises:
            ValueError: the head is too large; the parser then reports a malformed request.
        """
        self._count_in_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Record one header field.

        Raises:
            ValueError: the head is too large or has too many fields; the parser then reports a malformed request.
        """
        if len(self.headers) >= self._limits.head_fields:
            raise ValueError
        self._count_in_head(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Record that the head has ended and that the body, which may be empty, begins.

        Raises:
            ValueError: too many requests wait for an answer, so the connection is closed, or the request asks for
                another protocol.
        """
        if self.parser.should_upgrade():
            raise ValueError
        if len(self.pipeline) >= self._limits.pipelined:
            self.drop()
            raise ValueError
        super().on_headers_complete()
        self._answering = True
        self._arriving = Step.BODY
        self._progressed = True
        self._body_bytes = self._body_pieces = 0

    def on_body(self, body: bytes) -> None:
        """Receive a piece of a body.

        Raises:
            ValueError: the body has too many small pieces; the parser then reports a malformed request.
        """
        self._progressed = True
        self._body_pieces += 1
        self._body_bytes += len(body)
        if self._body_pieces > max(self._limits.body_pieces, self._body_bytes // _SMALL_PIECE_BYTES):
            raise ValueError
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Record that the body has ended."""
        super().on_message_complete()
        self._arriving = None

    def on_response_complete(self) -> None:
        """Record that the answer has been written; the body of a refused request may still be arriving."""
        super().on_response_complete()
        self._answering = not self.cycle.response_complete  # another request may have come right behind
        if not self.flow.write_paused:
            self._unread_since = None
        self._since = time.monotonic()
        self._wait(again=True)

    def pause_writing(self) -> None:
        """Stop writing an answer, because the client does not read it."""
        super().pause_writing()
        if self._unread_since is None:
            self._unread_since = time.monotonic()
        self._wait()

    def resume_writing(self) -> None:
        """Go on writing an answer, because the client reads it again."""
        super().resume_writing()
        if not self._answering:
            self._unread_since = None
        self._wait()

    def _tell_of_disconnection(self) -> None:
        """Tell the request that is being answered that nobody waits for its answer any more."""
        if self._answered is not None and not self._answered.response_complete:
            self._answered.disconnected = True
            self._answered.message_event.set()

    def _refuse_from_now_on(self) -> None:
        """Give up the place among the connections; where too many have done so, the oldest of those is closed.

        What the client sends from now on is answered by 429, or forgotten if the last answer is written.
        """
        self._waiting.remove(self, self._step)
        if len(self._refused) >= self._limits.refused:
            oldest = next(iter(self._refused))
            del self._refused[oldest]
            oldest.drop()
        self._refused[self] = None

    def _refuse(self, error: EmbedderError, *, of_application: bool = False) -> None:
        """Answer a request by an error instead of its application, which learns of it if it has begun the request."""
        if self.ended:
            return
        if of_application and self._answered is not None:
            self._answered.scope["state"][REFUSAL] = error
            self._tell_of_disconnection()
        else:
            self._on_refusal(error.kind)
        self.transport.write(_answer(error))
        self._end()

    def _end(self) -> None:
        """End what is written, but not the connection, whose client would lose the answer with it."""
        if self.ended or self.transport.is_closing():
            return
        self.ended = True
        self._since = time.monotonic()
        self.pipeline.clear()
        if self.transport.get_extra_info("sslcontext") is None:
            if self not in self._refused:
                self._refuse_from_now_on()
            self.flow.resume_reading()
            self.transport.write_eof()
        else:  # TLS cannot end one direction, and reads until the client has ended the other
            self.transport.close()

    def _count_in_head(self, size: int) -> None:
        self._field_bytes += size
        if self._field_bytes > self._limits.head_bytes:
            raise ValueError

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGIApp) -> None:  # type: ignore[override]  # as the base class has it
        self._answered = cycle
        cycle.transport = _Answering(self)
        super()._start_asgi_task(cycle, app)  # type: ignore[arg-type]  # the same

    def _wait(self, *, again: bool = False) -> None:
        """Record what has to happen next on this connection, and since when the server waits for that.

        Connections that wait for the same stand in a queue. With `again` True, this one moves to the end of its queue,
        even if the server waits for the same as before.
        """
        if self.dropped or self in self._refused:
            return
        if self.transport.is_closing():
            step = Step.ANSWER  # a connection closes as soon as its client has read everything
        elif self._arriving is not None:
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


class _Answering(asyncio.Transport):
    """What uvicorn writes an answer to, and closes behind the last one."""

    def __init__(self, connection: BoundedProtocol) -> None:
        super().__init__()
        self._connection = connection

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write a piece of an answer."""
        self._connection.transport.write(data)

    def is_closing(self) -> bool:
        """Return whether nothing more may be written."""
        return self._connection.ended or self._connection.transport.is_closing()

    def close(self) -> None:
        """Close the connection behind what has been written."""
        self._connection.finish()


def _answer(error: EmbedderError) -> bytes:
    body = json.dumps(error.envelope()).encode()
    status, seconds = HTTPStatus(error.kind.status), error.retry_after_seconds
    head = f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
    head += f"content-length: {len(body)}\r\n" + (f"retry-after: {seconds}\r\n" if seconds else "")
    return f"{head}connection: close\r\n\r\n".encode() + body


def without_upgrade(data: bytes) -> bytes:
    """Rename the header `Upgrade` of a request, so that the offer of another protocol is ignored.

    Some clients offer HTTP/2 with the first request of every connection, and a server may ignore that. The parser would
    take such a request to have no body. Headers that arrive in several pieces are not changed, and the request is then
    refused.
    """
    end = data.find(b"\r\n\r\n")
    return data if end < 0 else _UPGRADE.sub(b"ignored", data[:end]) + data[end:]


def bounded_connections(state: ServerState) -> list[BoundedProtocol]:
    """Return the connections of a uvicorn server that are `BoundedProtocol`s."""
    return [connection for connection in state.connections if isinstance(connection, BoundedProtocol)]


class BoundedServer(uvicorn.Server):
    """An HTTP server on one port. It closes connections that wait too long for a client, and handles no signals."""

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until `should_exit` is set. After that, overdue connections are closed until none is left.

        If the task that closes overdue connections fails, the server ends and raises its error.
        """
        closing = asyncio.create_task(self._close_overdue())
        closing.add_done_callback(self._stop_serving)
        try:
            await super().serve(sockets)
        finally:
            closing.cancel()
        with suppress(asyncio.CancelledError):
            await closing

    def _stop_serving(self, _: object) -> None:
        self.should_exit = True

    async def _close_overdue(self) -> None:
        while True:
            now = time.monotonic()
            for connection in bounded_connections(self.server_state):
                if connection.is_overdue(now):
                    connection.drop()
            await asyncio.sleep(_LOOK_SECONDS)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers, because two servers in one process would replace each other's handlers."""
        yield
