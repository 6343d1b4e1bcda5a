"""A cached measurement: while it is measured anew in the background, the old value is used."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextvars import Context
from copy import copy
from typing import Generic, TypeVar

from memory_recall.background import BackgroundTasks
from memory_recall.errors import MemoryIndexError, SchemaUnsupported

T = TypeVar("T")


_RETRY_SHARE = 0.1  # of the time that a measurement is kept, after which one that failed is repeated in the background


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
        self._failure: MemoryIndexError | None = None
        self._measured: tuple[T, float] | None = None  # and when it is to be renewed
        self._tasks = BackgroundTasks()
        self._renewal: asyncio.Task[None] | None = None

    async def get(self) -> T:
        """Return the last measurement. An old measurement is renewed in the background; only the first calls wait.

        All that wait for one measurement fail with it, because each of them would otherwise repeat it in turn.
        """
        measured = self._measured
        if measured is None:
            return await self._first(self._failure)
        if self._clock() > measured[1] and (self._renewal is None or self._renewal.done()):
            self._renewal = Context().run(self._tasks.start, self._renew())  # it belongs to no recall
        return measured[0]

    def assume(self, value: T) -> T:
        """Use a value until a measurement that has failed is repeated in the background, and return it.

        If a measurement has succeeded meanwhile, its value is returned instead.
        """
        if self._measured is None:
            self._measured = self._until_repeated(value)
        return self._measured[0]

    def forget(self) -> None:
        """Discard the measurement, so that the next call of `get` waits for a new one."""
        self._measured = None

    async def close(self) -> None:
        """Cancel a measurement that runs in the background."""
        await self._tasks.close()

    async def _first(self, known: MemoryIndexError | None) -> T:
        """Measure, unless another call has done so meanwhile; `known` is the last failure before this call."""
        async with self._lock:
            if self._measured is None:
                if self._failure is not None and self._failure is not known:
                    raise copy(self._failure)
                try:
                    self._measured = (await self._measure(), self._clock() + self._keep)
                except MemoryIndexError as error:
                    self._failure = copy(error)  # without the frames of the callers, whose variables hold queries
                    raise
            return self._measured[0]

    async def _renew(self) -> None:
        try:
            self._measured = (await self._measure(), self._clock() + self._keep)
        except SchemaUnsupported:  # the next call waits for a new measurement, and so learns the reason
            self.forget()
        except MemoryIndexError:  # a database that is away is noticed, and reported, by the recall itself
            if self._measured is not None:
                self._measured = self._until_repeated(self._measured[0])

    def _until_repeated(self, value: T) -> tuple[T, float]:
        return value, self._clock() + self._keep * _RETRY_SHARE
