"""Serves metrics to Prometheus, and to the kubelet whether the process lives and whether it is ready.

All is served from one thread and a fixed number of connections.

Any pod may open connections to this port. The server of `prometheus_client` starts a thread for each and keeps idle
ones for ever. Here one thread with an event loop of its own serves all, so that metrics are answered while the event
loop of the process is busy. A connection ends if the head of a request, or the next request, does not come in time, or
if its answer is not read in time. When all are taken, a new connection replaces the one that has waited longest.
Therefore a scrape that sends its request at once is always answered.
"""

import asyncio
import errno
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, choose_encoder

_PATH, _HEALTH_PATH, _READINESS_PATH = b"/metrics", b"/healthz", b"/readyz"


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """The number of connections, the bytes of a request's head, and how many seconds each wait may take."""

    connections: int = 32
    head_bytes: int = 8192
    head_seconds: float = 10.0
    idle_seconds: float = 75.0  # longer than Prometheus waits between two scrapes by default
    answer_seconds: float = 10.0


class MetricsServer:
    """Answers `GET /metrics` on a port with the metrics of a registry until it is closed. With port 0, any is used.

    Without a host, it answers at every address of the machine, of IPv6 and of IPv4, since Prometheus is another pod.
    With `is_alive`, it answers `GET /healthz`, too: 200 while that returns True, and 503 while it returns False. With
    `is_ready`, it answers `GET /readyz` in the same way. Both are called in the server's thread.

    Raises:
        OSError: the port cannot be opened.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        port: int,
        *,
        host: str | None = None,
        is_alive: Callable[[], bool] | None = None,
        is_ready: Callable[[], bool] | None = None,
        limits: ServerLimits | None = None,
    ) -> None:
        self._registry = registry
        self._checks: dict[bytes, tuple[Callable[[], bool], bytes, bytes]] = {}  # with the bodies for True and False
        if is_alive is not None:
            self._checks[_HEALTH_PATH] = is_alive, b"alive\n", b"standing still\n"
        if is_ready is not None:
            self._checks[_READINESS_PATH] = is_ready, b"ready\n", b"waiting\n"
        self._limits = limits or ServerLimits()
        self._connections: dict[asyncio.StreamWriter, None] = {}  # that which waits longest comes first
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="metrics", daemon=True)
        self._thread.start()
        try:
            self._server = asyncio.run_coroutine_threadsafe(self._start(host, port), self._loop).result()
        except OSError:
            self._end()
            raise
        self.port: int = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Close the port and all connections."""
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._end()

    async def _start(self, host: str | None, port: int) -> asyncio.Server:
        listening = _listen_everywhere(port) if host is None else socket.create_server((host, port))
        return await asyncio.start_server(self._serve, sock=listening, limit=self._limits.head_bytes)

    async def _stop(self) -> None:
        self._server.close()
        for writer in self._connections:
            writer.transport.abort()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections[writer] = None
        if len(self._connections) > self._limits.connections:
            longest = next(iter(self._connections))
            del self._connections[longest]
            longest.transport.abort()
        writer.transport.set_write_buffer_limits(high=0)  # an answer counts as read once the system has taken all of it
        try:
            while await self._answer(reader, writer):
                self._connections[writer] = self._connections.pop(writer, None)  # to the end
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError):  # TimeoutError is an OSError
            writer.transport.abort()  # the client has gone, is too slow, or sends what is no request
        finally:
            self._connections.pop(writer, None)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Read a request and answer it; return whether the connection stays open for the next."""
        async with asyncio.timeout(self._limits.idle_seconds):
            first = await reader.readexactly(1)
        async with asyncio.timeout(self._limits.head_seconds):
            head = first + await reader.readuntil(b"\r\n\r\n")
        request, *lines = head[:-4].split(b"\r\n")
        method, target, version = request.split(b" ")
        fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
        keeps = version == b"HTTP/1.1" and fields.get(b"connection", b"").lower() != b"close"
        if b"content-length" in fields or b"transfer-encoding" in fields:
            keeps = False  # its body is not read
        status, kind, body = self._page(method, target.partition(b"?")[0], fields.get(b"accept", b"").decode("latin-1"))
        writer.write(
            b"HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: %s\r\n\r\n"
            % (status, kind.encode("latin-1"), len(body), b"keep-alive" if keeps else b"close")
            + (b"" if method == b"HEAD" else body)
        )
        async with asyncio.timeout(self._limits.answer_seconds):
            await writer.drain()
        return keeps

    def _page(self, method: bytes, path: bytes, accept: str) -> tuple[bytes, str, bytes]:
        if method not in {b"GET", b"HEAD"}:
            return b"405 Method Not Allowed\r\nAllow: GET, HEAD", "text/plain", b"Only GET is answered.\n"
        if path in self._checks:
            check, yes, no = self._checks[path]
            status, said = (b"200 OK", yes) if check() else (b"503 Service Unavailable", no)
            return status, "text/plain", said
        if path != _PATH:
            return b"404 Not Found", "text/plain", b"The metrics are at /metrics.\n"
        try:
            encode, kind = choose_encoder(accept)
            return b"200 OK", kind, encode(self._registry)
        except (ValueError, TypeError):  # the client asks for a version that is none
            return b"200 OK", CONTENT_TYPE_PLAIN_0_0_4, generate_latest(self._registry)


def _listen_everywhere(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
        except OSError as error:
            if error.errno not in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}:  # IPv6 is switched off
                raise
    return socket.create_server(("", port))
