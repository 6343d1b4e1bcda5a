"""Clients that hold connections: more of them than a server takes, and renewed as soon as it closes one.

Most never finish a request. A few ask for large answers and take nothing of them.
"""

import asyncio
import json
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

_TRICKLE_SECONDS = 1.0
_RENEWAL_SECONDS = 0.5
_UNTAKEN_CLIENTS = 4
_UNTAKEN_SECONDS = 30
_UNTAKEN_WINDOW_BYTES = 4096
_HEAD = b"POST /v1/embeddings HTTP/1.1\r\nhost: embedder\r\ncontent-type: application/json\r\n"
_LARGE_ANSWER = json.dumps({"input": ["a"] * 2048}).encode()


@dataclass(frozen=True, slots=True)
class Kind:
    """A way never to finish: what is sent first, what is sent each second, and the seconds that the server may wait."""

    name: str
    clients: int
    first: bytes
    trickle: bytes
    longest_seconds: float


KINDS = (
    Kind("silent", 150, b"", b"", 20.0),
    Kind("half a head", 300, _HEAD, b"x: y\r\n", 20.0),
    Kind("half a body", 250, _HEAD + b'content-length: 100000\r\n\r\n{"input": "', b"a", 45.0),
)


@dataclass(slots=True)
class Held:
    """What became of the connections: for each kind how many were opened, and the longest life in seconds."""

    opened: dict[str, int] = field(default_factory=dict)
    longest_seconds: dict[str, float] = field(default_factory=dict)

    @property
    def all_ended(self) -> bool:
        """Whether the server ended each connection in the time that its client had for the next step."""
        return all(self.longest_seconds[kind.name] <= kind.longest_seconds for kind in KINDS)

    def record(self, kind: Kind, seconds: float) -> None:
        """Record the life of one connection."""
        self.opened[kind.name] = self.opened.get(kind.name, 0) + 1
        self.longest_seconds[kind.name] = round(max(self.longest_seconds.get(kind.name, 0.0), seconds), 1)


async def hold_connections(port: int, flooding: Callable[[], bool]) -> Held:
    """Hold connections of every kind while the flood lasts, then wait until the server has closed the last ones."""
    held = Held()

    async def never_finish(kind: Kind) -> None:
        while True:
            opened = time.monotonic()
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(2 * kind.longest_seconds):
                    await _until_ended(port, kind)
            held.record(kind, time.monotonic() - opened)
            if not flooding():
                return
            await asyncio.sleep(_RENEWAL_SECONDS)

    async def take_nothing() -> None:
        while flooding():
            with suppress(OSError):
                await _leave_answer(port, flooding)

    await asyncio.gather(
        *(never_finish(kind) for kind in KINDS for _ in range(kind.clients)),
        *(take_nothing() for _ in range(_UNTAKEN_CLIENTS)),
    )
    return held


async def _until_ended(port: int, kind: Kind) -> None:
    """Hold one connection until the server ends it.

    Raises:
        OSError: the server has ended it, or does not take it.
    """
    loop = asyncio.get_running_loop()
    with socket.socket() as connection:
        connection.settimeout(0)
        await loop.sock_connect(connection, ("127.0.0.1", port))
        await loop.sock_sendall(connection, kind.first)
        ended = False
        while not ended:
            with suppress(TimeoutError):
                async with asyncio.timeout(_TRICKLE_SECONDS):
                    ended = not await loop.sock_recv(connection, 4096)
            await loop.sock_sendall(connection, kind.trickle)


async def _leave_answer(port: int, flooding: Callable[[], bool]) -> None:
    """Ask for a large answer and take nothing of it for a while.

    Raises:
        OSError: the server does not take the connection.
    """
    loop = asyncio.get_running_loop()
    with socket.socket() as connection:
        connection.settimeout(0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _UNTAKEN_WINDOW_BYTES)
        await loop.sock_connect(connection, ("127.0.0.1", port))
        head = _HEAD + b"content-length: %d\r\n\r\n" % len(_LARGE_ANSWER)
        await loop.sock_sendall(connection, head + _LARGE_ANSWER)
        for _ in range(_UNTAKEN_SECONDS):
            if flooding():
                await asyncio.sleep(1)
