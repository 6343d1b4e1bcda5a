"""The period of time that a query is about, and how close a memory's time of creation is to it.

Closeness raises a memory's score but never excludes a memory, because what was said in June about May is often exactly
the memory that is wanted.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from memory_recall.errors import InvalidInput

FADE = 2.0  # how many lengths of the period beyond its ends closeness takes to fade away
SEARCHED = 2_000  # characters; a longer query is a document rather than a question
UNDERSTOOD = 8  # expressions of one query
_ISO_DATE = re.compile(r"(?<![\w.:/-])(?P<year>(?:19|20)\d\d)-(?P<month>\d\d)(?:-(?P<day>\d\d))?(?![\d/-]|[.:]\d)")


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


def iso_period(text: str, now: datetime) -> Period | None:
    """Return the shortest period that the text names in the form of ISO 8601, whatever its language.

    "2023-05-08" is a day and "2023-05" a month, in the time zone of `now`. Only the first `SEARCHED` characters are
    read, and of these the first `UNDERSTOOD` dates. Of equally short periods, the first in the text is returned. None
    is returned where the text names no date of the calendar. `now` must have a time zone.
    """
    found = (_iso_period(one, now) for one in islice(_ISO_DATE.finditer(text[:SEARCHED]), UNDERSTOOD))
    return min((period for period in found if period), key=lambda period: period.seconds, default=None)


def _iso_period(found: re.Match[str], now: datetime) -> Period | None:
    year, month, day = int(found["year"]), int(found["month"]), int(found["day"] or 1)
    try:
        return period_around(datetime(year, month, day, tzinfo=now.tzinfo), "day" if found["day"] else "month")
    except ValueError:  # the calendar has no such day
        return None


def period_around(moment: datetime, unit: str) -> Period:
    """Return the day, week from Monday, month or year, as `unit` says, that contains the moment."""
    day = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    if unit == "week":
        start = day - timedelta(days=day.weekday())
        return Period(start, start + timedelta(days=7))
    if unit == "month":
        start = day.replace(day=1)
        return Period(start, (start + timedelta(days=32)).replace(day=1))
    if unit == "year":
        start = day.replace(month=1, day=1)
        return Period(start, start.replace(year=start.year + 1))
    return Period(day, day + timedelta(days=1))
