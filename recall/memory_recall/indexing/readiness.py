"""Tells whether a sync worker could embed a row that is written now.

A worker is ready once it has its table, its lease and an embedder that serves the active model, and while it waits for
none of them again. An embedder that is busy counts as there, since rows only wait for their turn. Companions of the
worker wait for other things, and do not count.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from memory_recall.errors import MemoryIndexError
from memory_recall.indexing.progress import Progress, Tally
from memory_recall.indexing.waits import Waits
from memory_recall.retrying import Awaited


class Readiness:
    """Whether a sync worker is ready. The worker's own thread changes it, and any thread may read it."""

    def __init__(self) -> None:
        self._prepared = False
        self._waits = Waits()

    def is_ready(self) -> bool:
        """Return whether the worker is prepared for the active model and waits for nothing."""
        return self._prepared and not self._waits.current()

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """Count the worker as prepared until the block ends."""
        self._prepared = True
        try:
            yield
        finally:
            self._prepared = False

    def watched(self, progress: Progress) -> Progress:
        """Return a Progress that reports to `progress`, and whose waits count as those of the worker."""
        return _Watched(progress, self._waits)


@dataclass(frozen=True, slots=True)
class _Watched:
    """Passes all reports on, and keeps in `waits` what is waited for."""

    inner: Progress
    waits: Waits

    def started(self, total: int) -> None:
        """Report the number of rows to embed."""
        self.inner.started(total)

    def advanced(self, tally: Tally) -> None:
        """Report what has been done so far."""
        self.inner.advanced(tally)

    def outage_began(self, what: Awaited, error: MemoryIndexError) -> None:
        """Report that the database, the embedder or the lease is away."""
        self.inner.outage_began(what, error)

    def outage_ended(self, what: Awaited, seconds: float) -> None:
        """Report that it is back."""
        self.inner.outage_ended(what, seconds)

    def attempt_failed(self, what: Awaited, error: MemoryIndexError, wait: object) -> None:
        """Report that an attempt to reach it failed."""
        self.waits.attempt_failed(what, error, wait)
        self.inner.attempt_failed(what, error, wait)

    def wait_ended(self, wait: object) -> None:
        """Report that nobody waits any more."""
        self.waits.ended(wait)
        self.inner.wait_ended(wait)
