"""Holds more connections open than the server accepts, and replaces each connection that the server closes.

Most clients never finish a request. A few clients request large answers and do not read them.
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
_UNREAD_CLIENTS = 4
_UNREAD_SECONDS = 30
_UNREAD_WINDOW_BYTES = 4096
_HEAD = b"POST /v1/embeddings HTTP/1.1\r\nhost: embedder\r\ncontent-type: application/json\r\n"
_LARGE_ANSWER = json.dumps({"input": ["a"] * 2048}).encode()


@dataclass(frozen=True, slots=True)
class Kind:
    """One way to stall a connection.

    `clients` clients stall a connection in this way. Each client sends `first` once and `trickle` every second. The
    server must close the connection within `longest_seconds`.
    """

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
    """The lifetimes of held connections: for each kind, how many were opened, and the longest lifetime in seconds."""

    opened: dict[str, int] = field(default_factory=dict)
    longest_seconds: dict[str, float] = field(default_factory=dict)

    @property
    def all_ended(self) -> bool:
        """Whether the server closed each connection within the time limit of the connection's kind."""
        return all(self.longest_seconds[kind.name] <= kind.longest_seconds for kind in KINDS)

    def record(self, kind: Kind, seconds: float) -> None:
        """Record a connection that has ended after `seconds`."""
        self.opened[kind.name] = self.opened.get(kind.name, 0) + 1
        self.longest_seconds[kind.name] = round(max(self.longest_seconds.get(kind.name, 0.0), seconds), 1)


async def hold_connections(port: int, flooding: Callable[[], bool], share: float) -> Held:
    """Hold connections of every kind open while the flood lasts, then wait until the server has closed them all.

    `share`, above 0 and at most 1, is the fraction of each kind's clients that take part.
    """
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

    async def read_nothing() -> None:
        while flooding():
            with suppress(OSError):
                await _leave_answer(port, flooding)

    await asyncio.gather(
        *(never_finish(kind) for kind in KINDS for _ in range(_part(share, kind.clients))),
        *(read_nothing() for _ in range(_part(share, _UNREAD_CLIENTS))),
    )
    return held


def _part(share: float, clients: int) -> int:
    return max(1, round(share * clients))


async def _until_ended(port: int, kind: Kind) -> None:
    """Hold one connection open until the server closes it.

    Raises:
        OSError: the server resets or refuses the connection.
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
    """Request a large answer and keep the connection open for a while without reading the answer.

    Raises:
        OSError: the server resets or refuses the connection.
    """
    loop = asyncio.get_running_loop()
    with socket.socket() as connection:
        connection.settimeout(0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _UNREAD_WINDOW_BYTES)
        await loop.sock_connect(connection, ("127.0.0.1", port))
        head = _HEAD + b"content-length: %d\r\n\r\n" % len(_LARGE_ANSWER)
        await loop.sock_sendall(connection, head + _LARGE_ANSWER)
        for _ in range(_UNREAD_SECONDS):
            if flooding():
                await asyncio.sleep(1)
