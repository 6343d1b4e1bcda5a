"""Remembers rows of which nothing could be stored because another session had locked them, so that they rest a while.

Such a row stays pending. Without a rest it would be embedded again at once, and again for as long as it is locked.
"""

import math
import time
from collections.abc import Callable, Iterable

from memory_recall.schema.columns.keys import MemoryId

_FIRST_SECONDS = 1.0
_LONGEST_SECONDS = 60.0

KnownRow = tuple[MemoryId, str]
"""The id of a row and the hash of its text: an edited row is another one, and is due at once."""


class LockedRows:
    """The rows that rest in one process, and when each may be tried again.

    A row rests for a second at first, and each further time four times as long, up to a minute.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._rests: dict[KnownRow, tuple[float, float]] = {}  # how long a row rests, and until when
        self._first_due = math.inf  # of those that the present pass has left out

    def add(self, rows: Iterable[KnownRow]) -> None:
        """Let these rows rest from now on."""
        now = self._clock()
        self._rests = {row: rest for row, rest in self._rests.items() if now - rest[1] < _LONGEST_SECONDS}
        for row in rows:
            seconds = min(4 * self._rests[row][0], _LONGEST_SECONDS) if row in self._rests else _FIRST_SECONDS
            self._rests[row] = seconds, now + seconds

    def begin_pass(self) -> None:
        """Forget which rows the pass before has left out."""
        self._first_due = math.inf

    def leaves_out(self, row: KnownRow) -> bool:
        """Return whether a row that is pending still rests, so that this pass leaves it out."""
        _, due = self._rests.get(row, (0.0, -math.inf))
        if due <= self._clock():
            return False
        self._first_due = min(self._first_due, due)
        return True

    def seconds_until_due(self) -> float | None:
        """Return the time until the first row that the pass has left out is due, or None if it has left out none."""
        return None if math.isinf(self._first_due) else max(self._first_due - self._clock(), 0.0)
