"""The base of the asynchronous HTTP clients, which own their connections and read bounded answers.

A caller may give up on a request: a recall if the embedder is slow, a server if its user disconnects. If the HTTP
request were cancelled then, its connection could stay in the pool for good, neither usable nor free
(github.com/encode/httpcore/issues/1093). Therefore a request runs to its end even if its caller is cancelled.
It is a caller's time budget that ends its waiting, and the request's own time limit that ends the request.

An answer that takes long to parse is parsed in a thread, because the event loop may be that of an API.

What a worker has sent is looked up in the database just before. Where the network loses it, the kernel would go on to
send it for minutes, when a row may long be sensitive. Therefore a connection to an address in the cluster ends once
nothing has acknowledged its data for ten seconds. An address beyond it may be behind a proxy, whose acknowledgements
would say nothing.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

import httpx

from memory_recall.background import BackgroundTasks
from memory_recall.embedding.address_policy import is_beyond_cluster
from memory_recall.embedding.bounded_answer import Answer, Request, fetch

_UNACKNOWLEDGED_MS = 10_000
_USER_TIMEOUT = getattr(socket, "TCP_USER_TIMEOUT", None)  # of Linux
_SMALL_BYTES = 65_536  # of an answer, which are parsed within a millisecond

T = TypeVar("T")


def direct_socket_options(base_url: str) -> list[tuple[int, int, int]] | None:
    """Return the options of sockets to an address in the cluster, by which the kernel does not send data for long.

    It is None for any other address, and where the kernel has no such option.
    """
    if is_beyond_cluster(base_url) or _USER_TIMEOUT is None:
        return None
    return [(socket.IPPROTO_TCP, _USER_TIMEOUT, _UNACKNOWLEDGED_MS)]


def direct_transport(
    base_url: str, verify: ssl.SSLContext | bool, limits: httpx.Limits
) -> httpx.AsyncBaseTransport | None:
    """Return a transport to an address in the cluster that does not send data again for long; None to any other."""
    options = direct_socket_options(base_url)
    if options is None:
        return None
    return httpx.AsyncHTTPTransport(verify=verify, trust_env=False, limits=limits, socket_options=options)


class HttpClient:
    """Holds the connections of a client, which must be closed at the end. Its subclasses send by `_exchange`."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self._requests = BackgroundTasks()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the requests and close the connections."""
        await self._requests.close()
        await self._http.aclose()

    async def _exchange(self, http: httpx.AsyncClient, request: Request, read: Callable[[Answer], T]) -> T:
        """Send a request and return what `read` makes of the answer.

        Raises:
            UnusableAnswerError, TimeoutError, httpx.HTTPError, httpx.InvalidURL: as of `bounded_answer.fetch`.
        """
        answer = await self._requests.run_shielded(fetch(http, request))
        return read(answer) if len(answer.body) <= _SMALL_BYTES else await asyncio.to_thread(read, answer)
