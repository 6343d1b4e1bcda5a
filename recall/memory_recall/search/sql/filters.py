"""The filters of a recall, each with its check, its help text and its SQL, in this one place.

The library, the router, the command line and the SQLite recall take their parameters from the fields of `Filters`.
Conditions are written only for filters that are set, so that Postgres plans each combination for itself instead of one
generic plan full of `OR $n IS NULL`.
"""

import json
from collections.abc import Container, Iterator
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Annotated, get_type_hints

from pydantic import AfterValidator, AwareDatetime, Field
from pydantic_core import PydanticCustomError

from memory_recall.errors import InvalidInput
from memory_recall.schema.columns.moments import moment_value
from memory_recall.schema.table import MemoryTable
from memory_recall.search.validation import check_fields


def _storable(text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise PydanticCustomError("surrogate", "Input should not contain a lone surrogate") from None
    if "\x00" in text:
        raise PydanticCustomError("nul", "Input should not contain a NUL character")
    return text


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise PydanticCustomError("utc", "Input should be from the year 1 to 9999 in UTC, too") from None


Text = Annotated[str, AfterValidator(_storable)]
Moment = Annotated[AwareDatetime, AfterValidator(_in_utc)]
"""A time in UTC. One that the calendar of UTC does not have is refused, because the driver cannot send it."""


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition that a filter puts on the row `m`: its column, its help text, and its SQL for Postgres and SQLite.

    In the SQL, `{value}` stands for the filter's value. In that for Postgres, `{column}` stands for the column, which
    the user's table may call otherwise, `{compared}` for the same where every difference of texts counts, `{moment}`
    for a time as the column has it, and `{type}` for the type of the column in the searched table. The value is cast to
    this type because 0.7 in a column of type `real` would be less than 0.7 in double precision.
    """

    column: str
    help: str
    postgres: str
    sqlite: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Which of a user's memories may be recalled. A filter that is None or empty excludes nothing.

    Raises:
        InvalidInput: a filter is of the wrong type, contains a character that no database stores, or is a time without
            a time zone or before the year 1 or after 9999 in UTC.
    """

    category: Annotated[
        Text | None,
        Condition("category", "Only this category.", "{column} = {value}::{type}", "m.category = {value}"),
    ] = None
    tags: Annotated[
        tuple[Text, ...],
        Field(strict=False),
        Condition(
            "tags",
            "Only memories with one of these tags.",
            "EXISTS (SELECT FROM unnest(string_to_array({compared}, ',')) t WHERE btrim(t) = ANY ({value}::text[]))",
            "EXISTS (SELECT 1 FROM json_each('[' || replace(json_quote(m.tags), ',', '\",\"') || ']') t"
            " WHERE trim(t.value) IN (SELECT value FROM json_each({value})))",
        ),
    ] = ()
    since: Annotated[
        Moment | None,
        Condition(
            "created_at",
            "Only memories created at this time (ISO 8601 with a time zone) or later.",
            "{column} >= {moment}",
            "julianday(m.created_at) >= julianday({value})",
        ),
    ] = None
    until: Annotated[
        Moment | None,
        Condition(
            "created_at",
            "Only memories created before this time (ISO 8601 with a time zone).",
            "{column} < {moment}",
            "julianday(m.created_at) < julianday({value})",
        ),
    ] = None

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def selective(self) -> bool:
        """Whether any filter is set."""
        return any(True for _ in self.conditions())

    def conditions(self) -> Iterator[tuple[Condition, object]]:
        """Yield the condition of each filter that is set, with the filter's value."""
        for field in fields(self):
            value = getattr(self, field.name)
            if value not in {None, ()}:
                yield filter_condition(field.name), value


NO_FILTERS = Filters()

FILTER_TYPES = get_type_hints(Filters, include_extras=True)
"""The annotated type of each filter by its name, for those who derive parameters from them."""


def filter_condition(name: str) -> Condition:
    """Return the condition that the annotation of a filter's field holds; `name` is the filter's name."""
    found: Condition = next(one for one in FILTER_TYPES[name].__metadata__ if isinstance(one, Condition))
    return found


class Arguments:
    """Collects the arguments of a statement, and gives a placeholder for each."""

    def __init__(self) -> None:
        self.values: list[object] = []

    def add(self, value: object, kind: str) -> str:
        """Append one argument and return its placeholder with a cast, so that Postgres need not guess its type."""
        return f"{self.placeholder(value)}::{kind}"

    def placeholder(self, value: object) -> str:
        """Append one argument and return its placeholder without a cast, which the caller has to add."""
        self.values.append(value)
        return f"${len(self.values)}"


def postgres_conditions(filters: Filters, arguments: Arguments, table: MemoryTable) -> str:
    """Return the filters' conditions on the row `m`, each after an AND; the text is empty if no filter is set.

    Raises:
        InvalidInput: the table lacks the column of a filter.
    """
    clauses = []
    for condition, value in filters.conditions():
        _require_column(condition, table.columns)
        placeholder = arguments.placeholder(list(value) if isinstance(value, tuple) else value)
        written = condition.postgres.format(
            column=table.row("m").column(condition.column),
            compared=table.row("m").compared(condition.column)[0],
            value=placeholder,
            moment=moment_value(table, condition.column, f"{placeholder}::timestamptz"),
            type=table.columns[condition.column],
        )
        clauses.append(f" AND {written}")
    return "".join(clauses)


def sqlite_conditions(filters: Filters, columns: Container[str]) -> tuple[str, list[object]]:
    """Return the SQLite condition that a row `m` must meet, with the values of its placeholders.

    Raises:
        InvalidInput: the table lacks the column of a filter.
    """
    clauses, values = list[str](), list[object]()
    for condition, value in filters.conditions():
        _require_column(condition, columns)
        clauses.append(f" AND {condition.sqlite.format(value='?')}")
        values.append(_for_sqlite(value))
    return "".join(clauses), values


def _for_sqlite(value: object) -> object:
    if isinstance(value, tuple):
        return json.dumps(value)
    return value.isoformat() if isinstance(value, datetime) else value


def _require_column(condition: Condition, columns: Container[str]) -> None:
    if condition.column not in columns:
        raise InvalidInput(
            f"The table of memories has no column {condition.column} to filter by.", "Leave this filter out."
        )
