"""Asyncio tasks that may outlive the call that started them."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class BackgroundTasks:
    """Holds tasks until they end, and retrieves their exceptions, which Python would otherwise print."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def start(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine as a task and return the task. Awaiting the task raises its exception as usual."""
        task = asyncio.create_task(coroutine)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    async def run_shielded(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Await a coroutine and return its result. If this call is cancelled, the coroutine still runs to its end."""
        return await asyncio.shield(self.start(coroutine))

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as retrieved

    async def close(self) -> None:
        """Cancel the running tasks, except those that are being cancelled already, and wait until all have ended."""
        for task in self._running:
            if not task.cancelling():
                task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
