"""The base of the asynchronous HTTP clients, which own their connections.

A caller may give up on a request: a recall if the embedder is slow, a server if its user disconnects. If the HTTP
request were cancelled then, its connection could stay in the pool for good, neither usable nor free
(github.com/encode/httpcore/issues/1093). Therefore a request runs to its end even if its caller is cancelled.
"""

import math
from types import TracebackType
from typing import Self

import httpx

from memory_recall.background import BackgroundTasks


class HttpClient:
    """Holds the connections of a client, which must be closed at the end. Its subclasses send by `_requests`."""

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


def retry_after(response: httpx.Response) -> float | None:
    """Return the seconds after which to repeat a request by the header `Retry-After`, or None if it names none.

    A date (RFC 9110, section 10.2.3) counts as none, since both clocks would have to agree.
    """
    try:
        seconds = float(response.headers["retry-after"])
    except (KeyError, ValueError):
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
