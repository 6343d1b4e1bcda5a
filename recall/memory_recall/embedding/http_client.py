"""The base of the asynchronous HTTP clients, which own their connections and read bounded answers.

A caller may give up on a request: a recall if the embedder is slow, a server if its user disconnects. If the HTTP
request were cancelled then, its connection could stay in the pool for good, neither usable nor free
(github.com/encode/httpcore/issues/1093). Therefore a request runs to its end even if its caller is cancelled.
It is a caller's time budget that ends its waiting, and the request's own time limit that ends the request.

An answer that takes long to parse is parsed in a thread, because the event loop may be that of an API.
"""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

import httpx

from memory_recall.background import BackgroundTasks
from memory_recall.embedding.bounded_answer import Answer, Request, fetch

_SMALL_BYTES = 65_536  # of an answer, which are parsed within a millisecond

T = TypeVar("T")


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
