"""The period of time that a query is about, and how close a memory's time of creation is to it.

Closeness raises a memory's score but never excludes a memory, because what was said in June about May is often exactly
the memory that is wanted.
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
        """Return how close a moment is to the period, from 0 to 1.

        A moment within the period has 1. Outside, the value falls to 0 at a distance of `FADE` times the period's
        length.
        """
        gap = max((self.start - moment).total_seconds(), (moment - self.end).total_seconds(), 0.0)
        return max(0.0, 1.0 - gap / (FADE * self.seconds))


PeriodFinder = Callable[[str, datetime], Period | None]
"""Gives the period that a query names, seen from `now`; None where it names none."""
