"""HTTP requests that run to their end although their caller was cancelled.

A recall gives up on a slow embedder, and an API on a disconnected user. Cancelling the HTTP request with them may leave
its connection in the pool for good, neither usable nor free (github.com/encode/httpcore/issues/1093). After many
cancellations the pool is full of such connections, and no request passes although the embedder is well.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class ShieldedRequests:
    """Runs the requests of one client; close it before the client's connections."""

    def __init__(self) -> None:
        self._under_way: set[asyncio.Task[Any]] = set()

    async def run(self, request: Coroutine[Any, Any, T]) -> T:
        """Return the result of the request; if this call is cancelled, the request goes on until its own timeout."""
        task = asyncio.create_task(request)
        self._under_way.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # retrieves what nobody waits for any more, which Python would print

    async def close(self) -> None:
        """Cancel the requests that are under way."""
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
