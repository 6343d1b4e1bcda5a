"""Reads the memories that may leave the database, in the form that an import takes.

An export reads one snapshot through a cursor. So the process's memory does not grow with the table, and what another
transaction writes meanwhile is in the export either completely or not at all. A line does not mention `is_sensitive`:
only rows that are not sensitive are written, and an import of an old export must not make a row public that has become
sensitive since.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from memory_recall.postgres.connection import Connection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.table import MemoryTable
from memory_recall.transfer.rows_sql import count_statement, export_statement

_PREFETCH_ROWS = 500


@dataclass(frozen=True)
class ExportCounts:
    """Counts of the rows that may be exported and of those that may not; `deleted` rows may be sensitive too."""

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
        """Yield each memory as a JSON object, without fields that are NULL or that the table lacks.

        A row without text, which an import would refuse, is only counted.
        """
        with translated("exporting memories"):
            async for row in self._connection.cursor(export_statement(self._table), prefetch=_PREFETCH_ROWS):
                if not row["content"].strip():
                    self.blank += 1
                    continue
                self.exported += 1
                yield {name: _plain(value) for name, value in row.items() if value is not None}


@asynccontextmanager
async def exporting(connection: Connection, table: MemoryTable) -> AsyncIterator[Export]:
    """Open a snapshot of the table for an export; the snapshot ends with the block."""
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


def _plain(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else value
