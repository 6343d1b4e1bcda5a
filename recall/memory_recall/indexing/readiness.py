"""Tells whether a sync worker could embed a row that is written now.

A worker is ready once it has its table, its lease and an embedder that serves the active model, and while it waits for
none of them again. An embedder that is busy counts as there, since rows only wait for their turn. Companions of the
worker wait for other things, and do not count.

A wait may end with an error in place of an end of its outage, as where a connection breaks. So it counts only as long
as its attempts go on failing.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from memory_recall.errors import EmbedderBusy, MemoryIndexError
from memory_recall.indexing.progress import Progress, Tally
from memory_recall.retrying import Awaited

_LONGEST_ATTEMPT = 120.0  # seconds, with the pause before it, after which nobody can be waiting any more


class Readiness:
    """Whether a sync worker is ready. The worker's own thread changes it, and any thread may read it."""

    def __init__(self) -> None:
        self._prepared = False
        self._waiting: dict[tuple[int, Awaited], float] = {}  # the time of the last failed attempt

    def is_ready(self) -> bool:
        """Return whether the worker is prepared for the active model and waits for nothing."""
        failed_at = tuple(self._waiting.values())
        return self._prepared and all(time.monotonic() - at > _LONGEST_ATTEMPT for at in failed_at)

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """Count the worker as prepared until the block ends."""
        self._prepared = True
        try:
            yield
        finally:
            self._prepared = False

    def watched(self, progress: Progress) -> Progress:
        """Return a Progress that reports to `progress`, and after which the worker counts as waiting in an outage.

        Whatever waits by itself, as a session does, needs one of its own, because the end of its outage says nothing
        about the others.
        """
        return _Watched(progress, self._waiting)


@dataclass(frozen=True, slots=True, eq=False)
class _Watched:
    """Passes all reports on, and keeps in `waiting` what is waited for here, with the time of the last attempt."""

    inner: Progress
    waiting: dict[tuple[int, Awaited], float]

    def started(self, total: int) -> None:
        """Report the number of rows to embed."""
        self.inner.started(total)

    def advanced(self, tally: Tally) -> None:
        """Report what has been done so far."""
        self.inner.advanced(tally)

    def outage_began(self, what: Awaited, error: MemoryIndexError) -> None:
        """Report that the database, the embedder or the lease is away."""
        if not isinstance(error, EmbedderBusy):
            self.waiting[id(self), what] = time.monotonic()
        self.inner.outage_began(what, error)

    def attempt_failed(self, what: Awaited, error: MemoryIndexError) -> None:
        """Report that an attempt to reach it failed."""
        if (id(self), what) in self.waiting:
            self.waiting[id(self), what] = time.monotonic()
        self.inner.attempt_failed(what, error)

    def outage_ended(self, what: Awaited, seconds: float) -> None:
        """Report that it is back."""
        self.waiting.pop((id(self), what), None)
        self.inner.outage_ended(what, seconds)
