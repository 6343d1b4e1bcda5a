"""When a query is about: a period of time, and how close a memory's own time comes to it.

Closeness is a boost, never a filter: what was said in June about May is often the very memory that was wanted.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

FADE = 2.0  # how many lengths of the period beyond its ends closeness takes to fade away


@dataclass(frozen=True, slots=True)
class Period:
    """From `start` up to, but without, `end`; both with a time zone."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        if self.start.tzinfo is None or self.end.tzinfo is None or self.start >= self.end:
            raise ValueError("a period needs time zones and must end after it starts")

    @property
    def seconds(self) -> float:
        """How long it lasts."""
        return (self.end - self.start).total_seconds()

    def closeness(self, moment: datetime) -> float:
        """From one inside the period down to zero at `FADE` lengths from its nearer end."""
        gap = max((self.start - moment).total_seconds(), (moment - self.end).total_seconds(), 0.0)
        return max(0.0, 1.0 - gap / (FADE * self.seconds))


PeriodFinder = Callable[[str, datetime], Period | None]
"""Gives the period that a query names, seen from `now`; None where it names none."""
