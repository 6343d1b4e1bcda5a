"""Requests that end by themselves although their caller has given up.

A recall gives up on a slow embedder, an API on a user who has left. Cancelling the HTTP request with them may leave its
connection in the pool for good, neither usable nor free (github.com/encode/httpcore/issues/1093); a busy hour of that
and the pool is full of them, and no request passes any more although the embedder is well.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LastingRequests:
    """The requests of one client; close it before the client's connections."""

    def __init__(self) -> None:
        self._under_way: set[asyncio.Task[Any]] = set()

    async def answer(self, request: Coroutine[Any, Any, T]) -> T:
        """What the request gives; if this is cancelled the request goes on until its own timeout, unheard."""
        task = asyncio.create_task(request)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """End what is still under way."""
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
