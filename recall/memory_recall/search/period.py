"""The period of time that a query is about, and how close a memory's time of creation is to it.

Closeness raises a memory's score but never excludes a memory: what was said in June about May is often the very memory
that was wanted.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from memory_recall.errors import InvalidInput

FADE = 2.0  # how many lengths of the period beyond its ends closeness takes to fade away


@dataclass(frozen=True, slots=True)
class Period:
    """A period of time that includes `start` and excludes `end`; both have a time zone.

    Raises:
        InvalidInput: a time has no time zone, or the period does not end after its start.
    """

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        if self.start.tzinfo is None or self.end.tzinfo is None or self.start >= self.end:
            raise InvalidInput("A period needs a time zone at both ends and a start before its end.", "Correct it.")

    @property
    def seconds(self) -> float:
        """The length of the period in seconds."""
        return (self.end - self.start).total_seconds()

    def closeness(self, moment: datetime) -> float:
        """Return 1 for a moment in the period, falling to 0 at `FADE` lengths of the period from its nearer end."""
        gap = max((self.start - moment).total_seconds(), (moment - self.end).total_seconds(), 0.0)
        return max(0.0, 1.0 - gap / (FADE * self.seconds))


PeriodFinder = Callable[[str, datetime], Period | None]
"""Gives the period that a query names, seen from `now`; None where it names none."""
