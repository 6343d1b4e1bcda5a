"""A server on a loopback port for tests, which serves each connection in a task of its own and can vanish at once."""

import asyncio
import socket
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Self


class LoopbackServer(ABC):
    """Listens on a port of this machine, which stays the same when the server is started again."""

    host = "127.0.0.1"
    port = 0

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None
        self._reserved: socket.socket | None = None  # which keeps the port of a stopped server from other processes
        self._tasks: set[asyncio.Task[None]] = set()

    @abstractmethod
    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, which is cut at the end; that the client has gone may be left to raise an error."""

    async def listen(self) -> asyncio.Server:
        """Begin to listen."""
        return await asyncio.start_server(self._accepted, self.host, self.port)

    async def start(self) -> None:
        """Listen and serve."""
        self._release()
        self._server = await self.listen()
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Vanish like a deleted pod: the port is closed and every connection is cut."""
        if self._server is not None:
            self._server.close()
            self._server = None
            self._reserved = socket.socket(socket.AF_INET6 if ":" in self.host else socket.AF_INET)
            self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._reserved.bind((self.host, self.port))  # without listening, so that connections are refused
        for task in list(self._tasks):
            task.cancel()
        await self.left()

    async def left(self) -> None:
        """Wait until every connection has ended."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.stop()
        self._release()

    def _release(self) -> None:
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._served(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _served(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, asyncio.IncompleteReadError):  # the client has gone
                await self.serve(reader, writer)
        finally:
            writer.transport.abort()
