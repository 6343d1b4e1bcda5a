"""A fact that is measured now and then; the old measurement serves while a new one is made in the background."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from memory_recall.errors import MemoryIndexError

T = TypeVar("T")


class Snapshot(Generic[T]):
    """The last measurement of something that changes slowly."""

    def __init__(
        self,
        measure: Callable[[], Awaitable[T]],
        keep_seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._measure = measure
        self._keep = keep_seconds
        self._clock = clock
        self._lock = asyncio.Lock()
        self._held: tuple[T, float] | None = None
        self._refresh: asyncio.Task[None] | None = None

    async def get(self) -> T:
        """The measurement; only the first caller, and those who come while it measures, wait for one."""
        held = self._held
        if held is None:
            async with self._lock:
                if self._held is None:
                    self._held = (await self._measure(), self._clock())
                return self._held[0]
        if self._clock() - held[1] > self._keep and (self._refresh is None or self._refresh.done()):
            self._refresh = asyncio.create_task(self._measure_again())
        return held[0]

    def forget(self) -> None:
        """Measure anew before the next use."""
        self._held = None

    async def close(self) -> None:
        """End the background measurement."""
        if self._refresh is not None:
            self._refresh.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._refresh

    async def _measure_again(self) -> None:
        # A database that is away is noticed, and reported, by the recall itself.
        with contextlib.suppress(MemoryIndexError):
            self._held = (await self._measure(), self._clock())
