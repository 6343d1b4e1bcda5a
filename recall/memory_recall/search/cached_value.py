"""A cached measurement: while it is measured anew in the background, the old value is used."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from memory_recall.background import BackgroundTasks
from memory_recall.errors import MemoryIndexError, SchemaUnsupported

T = TypeVar("T")


class CachedValue(Generic[T]):
    """The last measurement of something that changes slowly, measured anew once it is older than `keep_seconds`."""

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
        self._measured: tuple[T, float] | None = None
        self._tasks = BackgroundTasks()
        self._renewal: asyncio.Task[None] | None = None

    async def get(self) -> T:
        """Return the last measurement. An old measurement is renewed in the background; only the first call waits."""
        measured = self._measured
        if measured is None:
            async with self._lock:
                if self._measured is None:
                    self._measured = (await self._measure(), self._clock())
                return self._measured[0]
        if self._clock() - measured[1] > self._keep and (self._renewal is None or self._renewal.done()):
            self._renewal = self._tasks.start(self._renew())
        return measured[0]

    def forget(self) -> None:
        """Discard the measurement, so that the next call of `get` waits for a new one."""
        self._measured = None

    async def close(self) -> None:
        """Cancel a measurement that runs in the background."""
        await self._tasks.close()

    async def _renew(self) -> None:
        try:
            self._measured = (await self._measure(), self._clock())
        except SchemaUnsupported:  # the next call waits for a new measurement, and so learns the reason
            self.forget()
        except MemoryIndexError:
            pass  # a database that is away is noticed, and reported, by the recall itself
