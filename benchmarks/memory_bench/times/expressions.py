"""Finds the periods that a memory's text names, seen from its time of creation.

`find_periods` of the library knows the expressions of queries. Texts say others as well, such as "tomorrow" or "last
summer"; these are computed here with the calendar alone. Weeks begin on Monday, and seasons are the northern
meteorological ones, which begin on the first of March, June, September and December.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Literal, get_args

from memory_recall.search.dates import SEARCHED, find_periods, period_around
from memory_recall.search.period import Period

Finder = Literal["query's", "text's"]
FINDERS: tuple[Finder, ...] = get_args(Finder)

_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}  # the month in which each begins
_MONTHS_OF_A_SEASON = 3
_SATURDAY = 5
_DAYS = {"tomorrow": 1, "last night": -1}  # and today for what else the expression names
_WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_SPANS = {"couple": (2, 2), "few": (2, 5), "several": (3, 7)}
"""The least and the greatest number that a vague word stands for."""
_VAGUE = r"(?:a\s+couple(?:\s+of)?|a\s+few|several)"
_UNIT = "day|week|month|year"
_EXPRESSION = re.compile(
    rf"""\b(?:
      (?P<day>tomorrow|tonight|last\s+night|this\s+(?:morning|afternoon|evening))
      | next\s+(?P<next>week|month|year)
      | (?P<which>last|this|next)\s+(?P<span>weekend|{"|".join(_SEASONS)})
      | (?P<near>this|next|on)\s+(?P<weekday>{"|".join(_WEEKDAYS)})
      | (?P<past>{_VAGUE})\s+(?P<past_unit>{_UNIT})s?\s+ago
      | in\s+(?P<future>\d{{1,3}}|an?|{"|".join(_WORDS)}|{_VAGUE})\s+(?P<future_unit>{_UNIT})s?
    )\b""",
    re.IGNORECASE | re.VERBOSE,
)


def periods_of(text: str, created: datetime, finder: Finder) -> tuple[Period, ...]:
    """Return the different periods that a text of this time of creation names; `created` must have a time zone."""
    found = find_periods(text, created)
    if finder == "text's":
        found += _said(text[:SEARCHED], created)
    return tuple(dict.fromkeys(found))


def _said(text: str, created: datetime) -> Iterator[Period]:
    """Yield the periods of the expressions that texts have and queries do not; years out of the calendar have none."""
    for found in _EXPRESSION.finditer(text):
        parts = {name: value.lower() for name, value in found.groupdict().items() if value}
        with suppress(OverflowError, ValueError):
            yield _period(parts, created)


def _period(parts: dict[str, str], created: datetime) -> Period:
    """Return the period of one expression, whose parts are in lower case, by the name of their group."""
    if "past" in parts:
        least, most = _numbers(parts["past"])
        return _between(created, parts["past_unit"], -most, -least)
    if "future" in parts:
        return _between(created, parts["future_unit"], *_numbers(parts["future"]))
    if "next" in parts:
        return shifted(created, parts["next"], 1)
    return _of_the_calendar(parts, created)


def _of_the_calendar(parts: dict[str, str], created: datetime) -> Period:
    if "weekday" in parts:
        return _weekday(created, _WEEKDAYS.index(parts["weekday"]), parts["near"])
    if "day" in parts:
        return shifted(created, "day", _DAYS.get(" ".join(parts["day"].split()), 0))
    if parts["span"] == "weekend":
        return _weekend(created, {"last": -1, "this": 0, "next": 1}[parts["which"]])
    return _season(created, parts["span"], parts["which"])


def shifted(moment: datetime, unit: str, count: int) -> Period:
    """Return the day, week, month or year, as `unit` says, that lies `count` units after that of the moment.

    Raises:
        OverflowError, ValueError: it lies outside of the calendar.
    """
    start = period_around(moment, unit).start
    if unit in {"day", "week"}:
        return period_around(start + timedelta(days=count if unit == "day" else 7 * count), unit)
    months = start.year * 12 + start.month - 1 + count * (12 if unit == "year" else 1)
    return period_around(start.replace(year=months // 12, month=months % 12 + 1), unit)


def _between(moment: datetime, unit: str, first: int, last: int) -> Period:
    return Period(shifted(moment, unit, first).start, shifted(moment, unit, last).end)


def _numbers(words: str) -> tuple[int, int]:
    """Return the least and the greatest number that "3", "a", "three" or "a few" stands for."""
    for word, span in _SPANS.items():
        if word in words:
            return span
    exact = int(words) if words.isdigit() else _WORDS.index(words) + 1 if words in _WORDS else 1
    return exact, exact


def _weekend(moment: datetime, weeks: int) -> Period:
    """Return Saturday and Sunday of the moment's week, or of one so many weeks later."""
    week = shifted(moment, "week", weeks)
    return Period(week.start + timedelta(days=_SATURDAY), week.end)


def _weekday(moment: datetime, weekday: int, which: str) -> Period:
    """Return the weekday of this week, the next one after the moment's day, or with "on" the latest one before it."""
    if which == "this":
        return shifted(period_around(moment, "week").start, "day", weekday)
    ahead = (weekday - moment.weekday()) % 7
    return shifted(moment, "day", (ahead or 7) if which == "next" else ahead - 7)


def _season(moment: datetime, season: str, which: str) -> Period:
    """Return the latest season that had ended, the nearest one, or the first one that has not begun."""
    month = _SEASONS[season]
    starts = [shifted(moment.replace(month=month, day=1), "year", years).start for years in (-2, -1, 0, 1)]
    all_of_them = [_between(start.replace(month=month), "month", 0, _MONTHS_OF_A_SEASON - 1) for start in starts]
    if which == "last":
        return [one for one in all_of_them if one.end <= moment][-1]
    if which == "next":
        return next(one for one in all_of_them if one.start > moment)
    return min(all_of_them, key=lambda one: max(one.start - moment, moment - one.end))
