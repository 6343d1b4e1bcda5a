"""Which time a query names, and how close a memory's own time comes to it."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_recall.contrib.dates import find_period
from memory_recall.errors import InvalidInput
from memory_recall.search.period import FADE, SEARCHED, UNDERSTOOD, Period, iso_period

NOW = datetime(2023, 11, 15, 10, 30, tzinfo=UTC)  # a Wednesday
MOMENTS = st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001  (Hypothesis adds the zone)
PERIODS = st.builds(
    lambda start, length: Period(start, start + length),
    MOMENTS,
    st.timedeltas(timedelta(minutes=1), timedelta(days=400)),
)


def period_of(start: str, days: int) -> Period:
    first = datetime.fromisoformat(start).replace(tzinfo=UTC)
    return Period(first, first + timedelta(days=days))


@pytest.mark.parametrize(
    ("text", "start", "days"),
    [
        ("what did we decide on 8 May 2021?", "2021-05-08", 1),
        ("what broke on May 8th", "2023-05-08", 1),
        ("who came on the 3rd of December", "2022-12-03", 1),
        ("the outage of 2023-02-01", "2023-02-01", 1),
        ("what did I read in May 2023", "2023-05-01", 31),
        ("what did I read in May 2021", "2021-05-01", 31),
        ("what did I read in December", "2022-12-01", 31),
        ("where did I work in 2020", "2020-01-01", 366),
        ("what did I do yesterday", "2023-11-14", 1),
        ("the dongle that failed last week", "2023-11-06", 7),
        ("everything from last month", "2023-10-01", 31),
        ("our holiday last year", "2022-01-01", 365),
        ("what happened last Friday", "2023-11-10", 1),
        ("the bug of two weeks ago", "2023-10-30", 7),
        ("what have I written this week", "2023-11-13", 7),
        ("this year, on 2 March, in the lab", "2023-03-02", 1),
    ],
)
def test_the_narrowest_period_that_a_query_names_is_found(text: str, start: str, days: int) -> None:
    """Days, weeks from Monday, months and years; without a year the latest past one."""
    assert find_period(text, NOW) == period_of(start, days)


@pytest.mark.parametrize(
    "text",
    [
        "what may I do",
        "march on",
        "in a second",
        "version 1.2.3 of 12 parts",
        "the 31 February release",
        "",
        "port 2023",
    ],
)
def test_words_that_only_look_like_a_date_name_no_period(text: str) -> None:
    assert find_period(text, NOW) is None


def test_days_begin_in_the_time_zone_of_the_query() -> None:
    """Half past ten in the evening in New York is the next day in London."""
    new_york = timezone(timedelta(hours=-5))
    found = find_period("today", datetime(2023, 11, 15, 22, 30, tzinfo=new_york))
    assert found == Period(datetime(2023, 11, 15, tzinfo=new_york), datetime(2023, 11, 16, tzinfo=new_york))


def test_only_the_first_of_many_times_are_parsed() -> None:
    """A list of dates must not hold up a recall."""
    found = find_period("on 3 May 2020 " * UNDERSTOOD + "yesterday", NOW)
    assert found == find_period("on 3 May 2020", NOW)


def test_only_the_beginning_of_a_text_is_searched_for_times() -> None:
    assert find_period("x" * SEARCHED + " yesterday", NOW) is None


@given(st.text(alphabet=st.sampled_from("0123456789 -/,.inoflastweekmaymonthyearago'ſİ"), max_size=80), MOMENTS)
def test_any_text_yields_a_period_or_none(text: str, now: datetime) -> None:
    """No text raises an exception."""
    found = find_period(text, now)
    assert found is None or found.start < found.end


@given(st.integers(0, 999), st.sampled_from(["day", "week", "month", "year"]), MOMENTS)
def test_any_number_of_units_yields_a_period_or_none(count: int, unit: str, now: datetime) -> None:
    """This holds for years before the first one of the calendar, too."""
    found = find_period(f"{count} {unit}s ago", now)
    assert found is None or found.start <= now


@given(PERIODS, MOMENTS)
def test_closeness_is_one_inside_a_period_and_falls_to_zero_outside(period: Period, moment: datetime) -> None:
    close = period.closeness(moment)
    gap = max(period.start - moment, moment - period.end)
    assert 0 <= close <= 1
    assert (close == 1) == (gap <= timedelta(0))
    assert gap < FADE * (period.end - period.start) or close == 0


@given(PERIODS, MOMENTS, st.timedeltas(timedelta(seconds=1), timedelta(days=400)))
def test_closeness_never_grows_with_the_distance(period: Period, moment: datetime, step: timedelta) -> None:
    away = moment - step if moment < period.start else moment + step
    assert (moment < period.end and moment >= period.start) or period.closeness(away) <= period.closeness(moment)


@pytest.mark.parametrize("end", [NOW, NOW - timedelta(days=1), (NOW + timedelta(days=1)).replace(tzinfo=None)])
def test_a_period_without_duration_or_time_zone_is_refused(end: datetime) -> None:
    with pytest.raises(InvalidInput, match="A period needs"):
        Period(NOW, end)


@pytest.mark.parametrize(
    ("text", "start", "days"),
    [
        ("der Ausfall vom 2023-02-01", "2023-02-01", 1),
        ("2023-02-01T10:30 \u306e\u969c\u5bb3", "2023-02-01", 1),
        ("backup-Datei 2024-02.", "2024-02-01", 29),
        ("zwischen 2023-05 und 2023-05-08", "2023-05-08", 1),
    ],
)
def test_dates_in_iso_form_are_understood_in_any_language(text: str, start: str, days: int) -> None:
    """Days and months; the shorter wins."""
    assert iso_period(text, NOW) == find_period(text, NOW) == period_of(start, days)


@pytest.mark.parametrize(
    "text",
    ["2023-02-30", "2023-13", "CVE-2023-05", "2023-05-081", "2023-05/06", "1234-05", "", "gestern"],
)
def test_what_is_no_date_of_the_calendar_in_iso_form_names_no_period(text: str) -> None:
    """Versions, identifiers, days that no month has, and words."""
    assert iso_period(text, NOW) is None


def test_of_a_long_query_the_beginning_alone_is_searched_for_iso_dates() -> None:
    """What a query costs is bounded."""
    assert iso_period("x" * SEARCHED + " 2023-05-08", NOW) is None
    assert iso_period("2023-05 " * UNDERSTOOD + "2023-05-08", NOW) == iso_period("2023-05", NOW)
