"""Reads and writes the times of a table, whose columns may have a time zone or none.

A `timestamp` without time zone is read as UTC. Postgres would read it in the time zone of the session, so that the same
row would have been made at another time for another client.

Postgres knows times that Python does not: from the year 4714 BC to 294276, and infinite ones. They are read as NULL, as
other values are that cannot be read, because the driver fails at the whole answer that holds one of them.
"""

from memory_recall.schema.table import MemoryTable

_NAIVE = "timestamp without time zone"
_DAYS = "'0001-01-01' AND '9999-12-31'"
_TIMES = "'0001-01-01 00:00:00{zone}' AND '9999-12-31 23:59:59.999999{zone}'"
_READABLE = {
    "date": _DAYS,
    _NAIVE: _TIMES.format(zone=""),
    "timestamp with time zone": _TIMES.format(zone="+00"),
}
"""Between which values a value of a type is one that Python knows."""


def moment(table: MemoryTable, name: str, row: str = "m") -> str:
    """Return SQL for a time of a row as `timestamptz`, which is NULL if the table has no such column.

    It is NULL, too, if Python does not know the time. No index on the column serves a condition on it.
    """
    if name not in table.columns:
        return "NULL::timestamptz"
    value, kind = table.row(row).column(name), table.columns[name]
    known = f"CASE WHEN {value} BETWEEN {_READABLE[kind]} THEN {value} END"
    return f"(({known}) AT TIME ZONE 'UTC')" if kind == _NAIVE else f"({known})"


def readable(value: str, kind: str) -> str:
    """Return SQL for a value of a type, which is NULL if it is a finite time or date that Python does not know.

    The driver gives infinite ones as the first and the last that Python knows.
    """
    if kind not in _READABLE:
        return value
    return f"CASE WHEN NOT isfinite({value}) OR {value} BETWEEN {_READABLE[kind]} THEN {value} END"


def moment_value(table: MemoryTable, name: str, time: str) -> str:
    """Return SQL for the value that the column has at a time; `time` is SQL for a `timestamptz`."""
    return f"({time} AT TIME ZONE 'UTC')" if table.columns[name] == _NAIVE else time
