"""Remembers rows of which nothing could be stored because another session had locked them, so that they rest a while.

Such a row stays pending. Without a rest it would be embedded again at once, and again for as long as it is locked. A
transaction may lock millions of rows, more than can be remembered, and a pass over them takes longer than they rest. So
once a row was locked, further rows are only embedded if they are found free.
"""

import math
import time
from collections.abc import Callable, Iterable

from memory_recall.schema.columns.keys import MemoryId

_FIRST_SECONDS = 1.0
_LONGEST_SECONDS = 60.0
_EXPECTED_SECONDS = 120.0  # for which further rows are expected to be locked, as by the same transaction

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
        self._found_at = -math.inf  # when a row was last found to be locked
        self._pause = _FIRST_SECONDS  # until rows are due that the present pass finds locked
        self._finds_locked = False

    def add(self, rows: Iterable[KnownRow]) -> None:
        """Let these rows rest from now on."""
        now = self._clock()
        self._rests = {row: rest for row, rest in self._rests.items() if now - rest[1] < _LONGEST_SECONDS}
        for row in rows:
            self._found_at = now
            seconds = min(4 * self._rests[row][0], _LONGEST_SECONDS) if row in self._rests else _FIRST_SECONDS
            self._rests[row] = seconds, now + seconds

    def begin_pass(self) -> None:
        """Forget which rows the pass before has left out."""
        self._pause = min(4 * self._pause, _LONGEST_SECONDS) if self._finds_locked else _FIRST_SECONDS
        self._finds_locked = False
        self._first_due = math.inf

    def are_expected(self) -> bool:
        """Return whether a row was locked lately, so that others are to be looked at before they are embedded."""
        return self._clock() - self._found_at < _EXPECTED_SECONDS

    def found_before_embedding(self) -> None:
        """Note that this pass leaves out rows that were found locked before they were embedded.

        They are not remembered one by one, and are due after a second, or four times as late as after the pass before
        if that left such rows out, too, up to a minute.
        """
        self._finds_locked = True
        self._found_at = self._clock()
        self._first_due = min(self._first_due, self._found_at + self._pause)

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
