"""The work queue: decides which MemoryIndex a worker reconciles next.

At most one worker reconciles an object at a time, and at most NAMESPACE_LIMIT workers for one namespace, so that
objects whose servers answer slowly do not delay those of other namespaces. If an object is scheduled several times, the
earliest time counts. An object that is scheduled during its reconcile is reconciled once more afterwards, so that no
event is lost. Time comes from the event loop.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

Key = tuple[str, str]

NAMESPACE_LIMIT = 6  # fewer than there are workers, and than databases that are observed at the same time


@dataclass
class WorkQueue:
    """Holds the due time of each key, and the keys that workers have taken."""

    now: Callable[[], float]
    _due: dict[Key, float] = field(default_factory=dict)
    _running: set[Key] = field(default_factory=set)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def __len__(self) -> int:
        """Return the number of due keys that wait for a worker."""
        moment = self.now()
        return sum(1 for key, due in self._due.items() if due <= moment and key not in self._running)

    def schedule(self, key: Key, after: float = 0.0) -> None:
        """Make the key due no later than `after` seconds from now."""
        due = self.now() + after
        if key not in self._due or due < self._due[key]:
            self._due[key] = due
            self._changed.set()

    async def take(self) -> Key:
        """Wait until a key is due that no other worker has taken, then take and return it."""
        while True:
            self._changed.clear()
            free = [(due, key) for key, due in self._due.items() if self._is_free(key)]
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
        """Give a taken key back, so that it can be taken again."""
        self._running.discard(key)
        self._changed.set()

    def _is_free(self, key: Key) -> bool:
        of_namespace = sum(namespace == key[0] for namespace, _ in self._running)
        return key not in self._running and of_namespace < NAMESPACE_LIMIT

    async def _sleep(self, seconds: float | None) -> None:
        try:
            await asyncio.wait_for(self._changed.wait(), seconds)
        except TimeoutError:
            return
