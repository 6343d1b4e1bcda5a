"""Reads and writes the times of a table, whose columns may have a time zone or none.

A `timestamp` without time zone is read as UTC. Postgres would read it in the time zone of the session, so that the same
row would have been made at another time for another client.
"""

from memory_recall.schema.table import MemoryTable

_NAIVE = "timestamp without time zone"


def moment(table: MemoryTable, name: str, row: str = "m") -> str:
    """Return SQL for a time of a row as `timestamptz`; it is NULL if the table has no such column."""
    if name not in table.columns:
        return "NULL::timestamptz"
    value = table.row(row).column(name)
    return f"({value} AT TIME ZONE 'UTC')" if table.columns[name] == _NAIVE else value


def moment_value(table: MemoryTable, name: str, time: str) -> str:
    """Return SQL for the value that the column has at a time; `time` is SQL for a `timestamptz`."""
    return f"({time} AT TIME ZONE 'UTC')" if table.columns[name] == _NAIVE else time
