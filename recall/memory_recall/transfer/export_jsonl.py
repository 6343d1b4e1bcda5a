"""Reads the memories that may leave the database, in the form that an import takes.

An export reads one snapshot through a cursor, a few rows at a time. Therefore the process's memory does not grow with
the table, but with its longest texts alone, and the changes of another transaction are in the export either completely
or not at all. A line has no field `is_sensitive`, because only rows that are not sensitive are exported. An import of
such a line keeps the mark of an existing row, so an old export cannot make a row public that became sensitive since.
"""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from memory_recall.postgres.connection import Connection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.table import MemoryTable
from memory_recall.transfer.rows_sql import count_statement, export_statement

_PREFETCH_ROWS = 10  # of which each may be as long as a text in Postgres


@dataclass(frozen=True)
class ExportCounts:
    """Counts of the rows that may be exported, of the deleted rows, and of the sensitive rows that are not deleted."""

    shareable: int
    sensitive: int
    deleted: int


class Export:
    """An export from one snapshot of the table: its counts, then its memories in the order of their ids."""

    def __init__(self, connection: Connection, table: MemoryTable, counts: ExportCounts) -> None:
        self._connection = connection
        self._table = table
        self.counts = counts
        self.exported = 0
        self.blank = 0

    async def memories(self) -> AsyncIterator[dict[str, Any]]:
        """Yield each memory as a JSON object.

        Left out are fields that the table lacks, NULL, and numbers that JSON cannot write, such as NaN. A row without
        text is counted in `blank` but not yielded, because an import would refuse it.
        """
        with translated("exporting memories"):
            async for row in self._connection.cursor(export_statement(self._table), prefetch=_PREFETCH_ROWS):
                if not (row["content"] or "").strip():
                    self.blank += 1
                    continue
                self.exported += 1
                yield {name: _plain(value) for name, value in row.items() if _is_written(value)}


@asynccontextmanager
async def exporting(connection: Connection, table: MemoryTable) -> AsyncIterator[Export]:
    """Open a snapshot of the table for an export, and close it when the block ends."""
    with translated("exporting memories"):
        snapshot = connection.transaction(isolation="repeatable_read", readonly=True)
        await snapshot.start()
        row = await connection.fetchrow(count_statement(table))
    assert row is not None  # noqa: S101  (an aggregate yields one row)
    try:
        yield Export(connection, table, ExportCounts(**row))
    finally:
        with translated("exporting memories"):
            await snapshot.rollback()


def _is_written(value: object) -> bool:
    return math.isfinite(value) if isinstance(value, float) else value is not None


def _plain(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else value
