"""Records what the parts of a worker wait for, as its readiness and its metrics say it."""

import time

from memory_recall.errors import DatabaseFull, EmbedderBusy, MemoryIndexError
from memory_recall.retrying import Awaited

LONGEST_ATTEMPT_SECONDS = 180.0  # more than an attempt and the pause before it, which may take 130 s


class Waits:
    """The waits that have not ended. One thread changes them, and any thread may read them.

    A wait counts until it ends, and no longer than three minutes after its last failed attempt: an attempt that
    succeeds may be work of an hour, which ends the wait only when it is done.
    """

    def __init__(self) -> None:
        self._failed: dict[object, tuple[Awaited, float]] = {}  # by wait, the last failed attempt

    def attempt_failed(self, what: Awaited, error: MemoryIndexError, wait: object) -> None:
        """Record that an attempt failed now. A busy embedder does its work, so nobody waits for one."""
        if isinstance(error, EmbedderBusy):
            self.ended(wait)
        else:
            self._failed[wait] = lacking(what, error), time.monotonic()

    def ended(self, wait: object) -> None:
        """Forget a wait."""
        self._failed.pop(wait, None)

    def current(self) -> frozenset[Awaited]:
        """Return what is waited for now."""
        oldest = time.monotonic() - LONGEST_ATTEMPT_SECONDS
        return frozenset(what for what, failed_at in tuple(self._failed.values()) if failed_at > oldest)


def lacking(what: Awaited, error: MemoryIndexError) -> Awaited:
    """Return what to name as lacking: the disk in place of a database whose disk is full."""
    return Awaited.DISK if isinstance(error, DatabaseFull) else what
