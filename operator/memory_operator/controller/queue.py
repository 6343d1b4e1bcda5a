"""The work queue: decides which MemoryIndex a worker reconciles next. A key is the namespace and name of a MemoryIndex.

A key is urgent if somebody waits for the reconcile, for example after an edit, or after a change of an object that
belongs to the MemoryIndex. Resyncs, checks of progress and retries are not urgent. Urgent keys come first, but after
URGENT_RUN urgent keys a key that is not urgent follows, so that no key waits for ever. Among keys of equal urgency, a
key of the namespace that occupies the fewest workers comes first, and then the key that has been due longest.

At most one worker reconciles a MemoryIndex at a time. At most NAMESPACE_LIMIT workers reconcile objects of one
namespace, so that slow servers of one namespace do not delay other namespaces. A key is slow if its last reconcile took
SLOW_SECONDS or more, as with a database that does not answer, and until its first reconcile has ended, unless it is
expected to be quick. At most SLOW_LIMIT workers, and NAMESPACE_SLOW_LIMIT for one namespace, take slow keys, so that
the others are always there for keys that were quick. A key without a worker waits before anything is read for it.

If a key is scheduled several times, the earliest time counts, and the key is urgent if it was urgent at least once. A
key that is scheduled during its reconcile is reconciled once more afterwards, so that no event is lost. The clock is
that of the event loop.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

Key = tuple[str, str]

NAMESPACE_LIMIT = 6  # of twelve workers
SLOW_LIMIT = 8
NAMESPACE_SLOW_LIMIT = 4
SLOW_SECONDS = 1.0  # a reconcile takes a tenth of it, and a connection that nobody accepts three times
URGENT_RUN = 4


@dataclass(frozen=True)
class _Taken:
    """A key that a worker has: when it was taken, for how many seconds it had been due, and whether it was slow."""

    at: float
    waited: float
    slow: bool


@dataclass
class WorkQueue:
    """Holds the due time of each key, the keys that are urgent, those that are quick, and those that workers have."""

    now: Callable[[], float]
    _due: dict[Key, float] = field(default_factory=dict)
    _urgent: set[Key] = field(default_factory=set)
    _quick: set[Key] = field(default_factory=set)
    _running: dict[Key, _Taken] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _urgent_run: int = 0

    def __len__(self) -> int:
        """Return the number of due keys that wait for a worker."""
        moment = self.now()
        return sum(1 for key, due in self._due.items() if due <= moment and key not in self._running)

    def schedule(self, key: Key, after: float = 0.0, *, urgent: bool = False, quick: bool = False) -> None:
        """Make the key due no later than `after` seconds from now, and urgent if `urgent` is True.

        `quick` says that the next reconcile of a key that has had none is expected to be quick.
        """
        due = self.now() + after
        if quick:
            self._quick.add(key)
        if urgent:
            self._urgent.add(key)
        if urgent or key not in self._due or due < self._due[key]:
            self._due[key] = min(due, self._due.get(key, due))
            self._changed.set()

    async def take(self) -> Key:
        """Wait until a key is due that a worker may take, then take and return this key."""
        while True:
            self._changed.clear()
            key = self.take_now()
            if key is not None:
                return key
            times, moment = [self._due[free] for free in self._free()], self.now()
            await self._sleep(min(times) - moment if times else None)

    def take_now(self) -> Key | None:
        """Take and return a key that is due and that a worker may take; return None if there is none."""
        moment, taken = self.now(), Counter(namespace for namespace, _ in self._running)
        first = self._urgent_run < URGENT_RUN  # whether urgent keys come first now
        due = [
            ((key in self._urgent) != first, taken[key[0]], self._due[key], key)
            for key in self._free()
            if self._due[key] <= moment
        ]
        return self._taken(min(due)[-1], moment) if due else None

    def waited(self, key: Key) -> float:
        """Return for how many seconds a taken key had been due when it was taken."""
        return self._running[key].waited

    def done(self, key: Key) -> None:
        """Release a taken key after its reconcile, so that a worker can take the key again.

        A key that is not scheduled again is forgotten, because its MemoryIndex no longer exists.
        """
        taken = self._running.pop(key)
        if key in self._due and self.now() - taken.at < SLOW_SECONDS:
            self._quick.add(key)
        else:
            self._quick.discard(key)
        self._changed.set()

    def _taken(self, key: Key, moment: float) -> Key:
        self._urgent_run = self._urgent_run + 1 if key in self._urgent else 0
        self._urgent.discard(key)
        self._running[key] = _Taken(moment, moment - self._due.pop(key), slow=key not in self._quick)
        return key

    def _free(self) -> list[Key]:
        """Return the keys that a worker may take as soon as they are due."""
        taken = Counter(namespace for namespace, _ in self._running)
        slow = Counter(namespace for (namespace, _), one in self._running.items() if one.slow)
        no_slow = slow.total() >= SLOW_LIMIT
        return [
            key
            for key in self._due
            if key not in self._running
            and taken[key[0]] < NAMESPACE_LIMIT
            and (key in self._quick or not (no_slow or slow[key[0]] >= NAMESPACE_SLOW_LIMIT))
        ]

    async def _sleep(self, seconds: float | None) -> None:
        try:
            await asyncio.wait_for(self._changed.wait(), seconds)
        except TimeoutError:
            return
