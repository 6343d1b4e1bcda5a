"""Which object is looked at next: one at a time per object, wake-ups joined, the earliest time wins.

A key that is woken while it is being worked on runs once more afterwards, so that no event is lost; a key that
fails is put back with a growing, jittered delay. Time comes from the event loop, so tests can run it as fast as
they like.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

Key = tuple[str, str]


@dataclass
class WorkQueue:
    """Due times by key, and the keys in work."""

    now: Callable[[], float]
    _due: dict[Key, float] = field(default_factory=dict)
    _running: set[Key] = field(default_factory=set)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def __len__(self) -> int:
        """Keys that are due now and wait for a worker."""
        moment = self.now()
        return sum(1 for key, due in self._due.items() if due <= moment and key not in self._running)

    def wake(self, key: Key, after: float = 0.0) -> None:
        """Look at the key no later than after this many seconds."""
        due = self.now() + after
        if key not in self._due or due < self._due[key]:
            self._due[key] = due
            self._changed.set()

    def forget(self, key: Key) -> None:
        """Look at the key no more unless it is woken."""
        self._due.pop(key, None)

    async def take(self) -> Key:
        """Wait for the next due key that nobody works on, and begin with it."""
        while True:
            self._changed.clear()
            free = [(due, key) for key, due in self._due.items() if key not in self._running]
            if free:
                due, key = min(free)
                wait = due - self.now()
                if wait <= 0:
                    del self._due[key]
                    self._running.add(key)
                    return key
            else:
                wait = None
            await self._sleep(wait)

    def done(self, key: Key) -> None:
        """The work on the key has ended."""
        self._running.discard(key)
        self._changed.set()

    async def _sleep(self, seconds: float | None) -> None:
        try:
            await asyncio.wait_for(self._changed.wait(), seconds)
        except TimeoutError:
            return
