"""Finds the period that an English query names ("last week", "in May 2023", "on 8 May"), with the library `dateparser`.

This module decides which words may name a date, since a library that looks for dates anywhere in a text also finds them
in "may", "second" or a bare number. The library decides what the words mean.

Needs the extra `memory-recall[temporal]`; without it, the import of this module is refused with `MissingExtra`.
"""

import re
from datetime import datetime, timedelta
from itertools import islice

from memory_recall.errors import importing_extra
from memory_recall.search.period import Period

with importing_extra("temporal", "find_period"):
    from dateparser.date import DateDataParser

SEARCHED = 2_000  # characters; a longer query is a document rather than a question
UNDERSTOOD = 8  # expressions; each costs one to three milliseconds

_MONTHS = "January February March April May June July August September October November December"
_MONTH = "(?:" + "|".join(f"{name}|{name[:3]}" for name in _MONTHS.split()) + r"|Sept)\b\.?"
_DAY = r"\d{1,2}(?:st|nd|rd|th)?"
_YEAR = r"(?:19|20)\d\d"
_WEEKDAY = "(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day"
_COUNT = "(?:\\d{1,3}|an?|one|two|three|four|five|six|seven|eight|nine|ten)"
_EXPRESSION = re.compile(
    rf"""\b(?:
      (?P<date>{_YEAR}-\d\d-\d\d
        | {_DAY}\s+(?:of\s+)?{_MONTH}(?:,?\s+{_YEAR})?
        | {_MONTH}\s+{_DAY}\b(?:,?\s+{_YEAR})?
        | {_MONTH},?\s+{_YEAR}
        | yesterday | today
        | {_COUNT}\s+(?:day|week|month|year)s?\s+ago
        | last\s+(?:week|month|year|{_WEEKDAY}))
      | (?:in|since|during|of)\s+(?P<after>{_MONTH}|{_YEAR})(?!-|,?\s+\d)
      | this\s+(?P<this>week|month|year))\b""",
    re.IGNORECASE | re.VERBOSE,
)

# Reads the language's data, a third of a second, before a recall has to wait for it.
DateDataParser(languages=["en"]).get_date_data("1 May 2020")


def find_period(text: str, now: datetime) -> Period | None:
    """Return the shortest period that the text names, or None if it names none.

    Only the first `SEARCHED` characters are read, and of these the first `UNDERSTOOD` expressions. Of equally short
    periods, the first in the text is returned. A date without a year is taken to be in the past, as late as possible.
    `now` must have a time zone; days begin at midnight in this zone.
    """
    found = (_period(one, now) for one in islice(_EXPRESSION.finditer(text[:SEARCHED]), UNDERSTOOD))
    return min((period for period in found if period), key=lambda period: period.seconds, default=None)


def _period(found: re.Match[str], now: datetime) -> Period | None:
    if found["this"]:
        return period_around(now, found["this"].lower())
    settings = {"RELATIVE_BASE": now.replace(tzinfo=None), "PREFER_DATES_FROM": "past"}
    data = DateDataParser(languages=["en"], settings=settings).get_date_data(found["date"] or found["after"])
    return period_around(data.date_obj.replace(tzinfo=now.tzinfo), data.period or "day") if data.date_obj else None


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
