"""Stores imported memories in one transaction: a temporary table is filled by COPY, then merged.

Other sessions see nothing of an import until all of its lines have been found valid. Importing the same file again
changes nothing. A changed line updates its row, and a trigger of the database then removes the row's vector. A field
that a line does not mention keeps its value. Above all, a row that has become sensitive stays sensitive when an old
export is imported.
"""

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from memory_recall.errors import InvalidInput
from memory_recall.postgres.connection import Connection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.columns.owners import owner_named
from memory_recall.schema.table import MemoryTable
from memory_recall.transfer import rows_sql
from memory_recall.transfer.jsonl import CorpusReader


@dataclass(frozen=True)
class ImportResult:
    """The number of lines that were read, and how many of them inserted a row, updated a row, or changed nothing.

    `sensitive` is the number of lines whose memory is marked as sensitive.
    """

    read: int
    inserted: int
    updated: int
    unchanged: int
    sensitive: int


async def import_memories(
    connection: Connection,
    table: MemoryTable,
    lines: Iterable[bytes],
    *,
    on_progress: Callable[[int], None] = lambda _count: None,
) -> ImportResult:
    """Store the memories of a file, all of them or none.

    Raises:
        InvalidInput: a line is malformed; the message names the line, and nothing was stored.
        SchemaUnsupported: there is no table of memories.
    """
    table.require_exists()
    reader = CorpusReader()
    with translated("importing memories"):
        async with connection.transaction():
            await rows_sql.stage(connection, _records(table, reader, lines, on_progress))
            await _complain_about_ids(connection, table, reader)
            reader.require_clean()
            inserted, updated, sensitive = await rows_sql.merge(connection, table)
    return ImportResult(reader.read, inserted, updated, reader.read - inserted - updated, sensitive)


async def _records(
    table: MemoryTable, reader: CorpusReader, lines: Iterable[bytes], on_progress: Callable[[int], None]
) -> AsyncIterator[tuple[Any, ...]]:
    for number, memory in reader.memories(lines):
        record = memory.record()
        if record["user_id"] is not None and "user_id" in table.columns:
            try:
                record["user_id"] = owner_named(table, record["user_id"])
            except InvalidInput as error:
                reader.complain(number, error.message)
                continue
        yield (number, *record.values())
        on_progress(reader.read)


async def _complain_about_ids(connection: Connection, table: MemoryTable, reader: CorpusReader) -> None:
    largest = {"smallint": 2**15, "integer": 2**31, "bigint": 2**63}[table.columns["id"]] - 1
    for line in await rows_sql.lines_above(connection, largest):
        reader.complain(line, f"id is larger than the table's {table.columns['id']} key can be")
    for line, first in await rows_sql.repeated_lines(connection):
        reader.complain(line, f"id is that of line {first} already")
