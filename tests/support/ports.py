"""Loopback ports for programs that cannot choose one themselves, which no other process gets before they open them."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def reserved_ports(count: int) -> Iterator[list[int]]:
    """Reserve so many ports of 127.0.0.1 for the block.

    Each has a socket that never listens. So the kernel gives the port to nobody who asks for any port, and a connection
    is refused. A program that asks for this port with SO_REUSEADDR, as servers do, can listen on it, again and again.
    """
    with ExitStack() as sockets:
        holders = [sockets.enter_context(socket.socket()) for _ in range(count)]
        for holder in holders:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(("127.0.0.1", 0))
        yield [int(holder.getsockname()[1]) for holder in holders]
