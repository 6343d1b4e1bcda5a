"""Finds the period that an English query names ("last week", "in May 2023", "on 8 May"), with the library `dateparser`.

This module decides which words may name a date, since a library that looks for dates anywhere in a text also finds them
in "may", "second" or a bare number. The library decides what the words mean.

Needs the extra `memory-recall[consolidation]`; without it, the import of this module is refused with `MissingExtra`.
Dates in the form of ISO 8601 need no library: `memory_recall.iso_period` finds them in a query of any language.
"""

import re
from datetime import datetime
from itertools import islice

from memory_recall.errors import importing_extra
from memory_recall.search.period import SEARCHED, UNDERSTOOD, Period, iso_period, period_around

with importing_extra("consolidation", "find_period"):
    from dateparser.date import DateDataParser

_MONTHS = "January February March April May June July August September October November December"
_MONTH = "(?:" + "|".join(f"{name}|{name[:3]}" for name in _MONTHS.split()) + r"|Sept)\b\.?"
_DAY = r"\d{1,2}(?:st|nd|rd|th)?"
_YEAR = r"(?:19|20)\d\d"
_WEEKDAY = "(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day"
_COUNT = "(?:\\d{1,3}|an?|one|two|three|four|five|six|seven|eight|nine|ten)"
_EXPRESSION = re.compile(
    rf"""\b(?:
      (?P<date>{_DAY}\s+(?:of\s+)?{_MONTH}(?:,?\s+{_YEAR})?
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

    Only the first `SEARCHED` characters are read, and of these the first `UNDERSTOOD` expressions, each of which costs
    one to three milliseconds. Of equally short periods, one in the form of ISO 8601 is returned, or else the first in
    the text. A date without a year is taken to be in the past, as late as possible.
    `now` must have a time zone; days begin at midnight in this zone.
    """
    found = [iso_period(text, now)]
    found += [_period(one, now) for one in islice(_EXPRESSION.finditer(text[:SEARCHED]), UNDERSTOOD)]
    return min((period for period in found if period), key=lambda period: period.seconds, default=None)


def _period(found: re.Match[str], now: datetime) -> Period | None:
    if found["this"]:
        return period_around(now, found["this"].lower())
    settings = {"RELATIVE_BASE": now.replace(tzinfo=None), "PREFER_DATES_FROM": "past"}
    data = DateDataParser(languages=["en"], settings=settings).get_date_data(found["date"] or found["after"])
    return period_around(data.date_obj.replace(tzinfo=now.tzinfo), data.period or "day") if data.date_obj else None
