"""Background tasks whose failure nobody waits for."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class BackgroundTasks:
    """Keeps tasks alive until they end, and retrieves what they raise, which Python would otherwise print."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def start(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine as a task. Whoever awaits the task gets its exception all the same."""
        task = asyncio.create_task(coroutine)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    async def run_shielded(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine, which goes on to its end when this call is cancelled."""
        return await asyncio.shield(self.start(coroutine))

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as retrieved

    async def close(self) -> None:
        """Cancel what still runs and wait for its end; what is being cleaned up after a cancellation is left to it."""
        for task in self._running:
            if not task.cancelling():
                task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
