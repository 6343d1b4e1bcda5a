"""The work queue: decides which MemoryIndex a worker reconciles next. A key is the namespace and name of a MemoryIndex.

A key is urgent if somebody waits for the reconcile, for example after an edit, or after a change of an object that
belongs to the MemoryIndex. Resyncs, checks of progress and retries are not urgent. Urgent keys come first, but after
URGENT_RUN urgent keys a key that is not urgent follows, so that no key waits for ever. Among keys of equal urgency, the
key that has been due longest comes first.

At most one worker reconciles a MemoryIndex at a time. At most NAMESPACE_LIMIT workers reconcile objects of one
namespace, so that slow servers of one namespace do not delay other namespaces. If a key is scheduled several times, the
earliest time counts, and the key is urgent if it was urgent at least once. A key that is scheduled during its reconcile
is reconciled once more afterwards, so that no event is lost. The clock is that of the event loop.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

Key = tuple[str, str]

NAMESPACE_LIMIT = 6  # fewer than there are workers, and than databases that are observed at the same time
URGENT_RUN = 4


@dataclass
class WorkQueue:
    """Holds the due time of each key, the keys that are urgent, and those that workers have taken."""

    now: Callable[[], float]
    _due: dict[Key, float] = field(default_factory=dict)
    _urgent: set[Key] = field(default_factory=set)
    _running: set[Key] = field(default_factory=set)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _urgent_run: int = 0

    def __len__(self) -> int:
        """Return the number of due keys that wait for a worker."""
        moment = self.now()
        return sum(1 for key, due in self._due.items() if due <= moment and key not in self._running)

    def schedule(self, key: Key, after: float = 0.0, *, urgent: bool = False) -> None:
        """Make the key due no later than `after` seconds from now, and urgent if `urgent` is True."""
        due = self.now() + after
        if urgent:
            self._urgent.add(key)
        if urgent or key not in self._due or due < self._due[key]:
            self._due[key] = min(due, self._due.get(key, due))
            self._changed.set()

    async def take(self) -> Key:
        """Wait until a key is due that a worker may take, then take and return this key."""
        while True:
            self._changed.clear()
            moment, free = self.now(), self._free()
            first = self._urgent_run < URGENT_RUN  # whether urgent keys come first now
            due = [((key in self._urgent) != first, at, key) for at, key in free if at <= moment]
            if due:
                return self._taken(min(due)[2])
            await self._sleep(min(free)[0] - moment if free else None)

    def done(self, key: Key) -> None:
        """Release a taken key after its reconcile, so that a worker can take the key again."""
        self._running.discard(key)
        self._changed.set()

    def _taken(self, key: Key) -> Key:
        self._urgent_run = self._urgent_run + 1 if key in self._urgent else 0
        self._urgent.discard(key)
        del self._due[key]
        self._running.add(key)
        return key

    def _free(self) -> list[tuple[float, Key]]:
        """Return the due time and the key of each MemoryIndex that a worker may take."""
        taken = Counter(namespace for namespace, _ in self._running)
        full = {namespace for namespace, count in taken.items() if count >= NAMESPACE_LIMIT}
        return [(at, key) for key, at in self._due.items() if key not in self._running and key[0] not in full]

    async def _sleep(self, seconds: float | None) -> None:
        try:
            await asyncio.wait_for(self._changed.wait(), seconds)
        except TimeoutError:
            return
