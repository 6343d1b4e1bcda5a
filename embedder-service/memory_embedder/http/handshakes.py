"""An HTTP server that speaks TLS, with limits for connections whose handshake has not ended.

A protocol of uvicorn learns of a connection only once its handshake has ended, so the limits of `BoundedServer` do not
count a client that connects and says nothing. Each such client would keep an open file, and a quarter of a megabyte of
buffers, for a minute. Therefore this server accepts connections itself: a handshake has as long as the head of a
request, and when too many are under way, the one that has waited longest makes room. A handshake takes milliseconds,
so that of a client that speaks at once ends before others have taken its place.

Each handshake uses the certificate that is in use when it begins.
"""

import asyncio
import socket

from memory_embedder.http.certificate import ServingCertificate
from memory_embedder.http.connections import BoundedConfig, BoundedServer
from memory_embedder.telemetry.metrics import Metrics

_SHUTDOWN_SECONDS = 5.0  # in which a client has to answer that the connection ends
_NO_FILES_SECONDS = 0.5  # until a connection is accepted again where there were too many open files
_TICKS = 10  # of the server's tenths of a second between two comparisons of the files


class TlsServer(BoundedServer):
    """Serves HTTPS on one listening socket, which `serve` is given."""

    def __init__(self, config: BoundedConfig, certificate: ServingCertificate, metrics: Metrics) -> None:
        super().__init__(config)
        self._limits = config.limits
        self._certificate = certificate
        self._failures = metrics.handshake_failures
        self._accepting: list[asyncio.Task[None]] = []
        self._handshakes: dict[asyncio.Task[None], None] = {}  # the oldest comes first

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections on the sockets."""
        await super().startup(sockets=[])
        for listening in sockets or ():
            listening.settimeout(0)
            listening.listen(self.config.backlog)
            self._accepting.append(asyncio.create_task(self._accept(listening)))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, and wait until the requests of those that are open are answered."""
        for task in (*self._accepting, *self._handshakes):
            task.cancel()
        await asyncio.gather(*self._accepting, *self._handshakes, return_exceptions=True)
        await super().shutdown(sockets=sockets)

    async def on_tick(self, counter: int) -> bool:
        """Read the certificate each second, beside what the server does at each tick."""
        if counter % _TICKS == 0:
            self._certificate.refresh()
        return await super().on_tick(counter)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except ConnectionAbortedError:
                continue
            except OSError:  # too many open files
                await asyncio.sleep(_NO_FILES_SECONDS)
                continue
            if len(self._handshakes) >= self._limits.handshakes:
                oldest = next(iter(self._handshakes))
                del self._handshakes[oldest]
                oldest.cancel()
            task = asyncio.create_task(self._begin(connection))
            self._handshakes[task] = None
            task.add_done_callback(lambda done: self._handshakes.pop(done, None))

    async def _begin(self, connection: socket.socket) -> None:
        """Do the handshake of a connection, and give the connection to a protocol that serves HTTP on it."""
        context = self._certificate.context
        if context is None:
            connection.close()
            return
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._protocol,
                connection,
                ssl=context,
                ssl_handshake_timeout=self._limits.head_seconds,
                ssl_shutdown_timeout=_SHUTDOWN_SECONDS,
            )
        except OSError:  # also of TLS: plain HTTP, a client that trusts another authority, one that has gone
            self._failures.inc()
            connection.close()

    def _protocol(self) -> asyncio.Protocol:
        return self.config.http_protocol_class(  # type: ignore[call-arg]  # as uvicorn makes its protocols
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
