"""Stores imported memories in one transaction: a temporary table is filled by COPY, then merged.

Other sessions see nothing of an import until all of its lines have been found valid. Importing the same file again
changes nothing. A changed line updates its row, and a trigger of the database then removes the row's vector. A field
that a line does not mention keeps its value. Above all, a row that has become sensitive stays sensitive when an old
export is imported.
"""

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from memory_recall.errors import InvalidInput, SchemaUnsupported
from memory_recall.postgres.connection import Connection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.columns.owners import owner_named
from memory_recall.schema.columns.used import USED_COLUMNS
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
        SchemaUnsupported: there is no table of memories, or its rows can only be written by its own program.
    """
    table.require_exists()
    _require_writable(table)
    reader = CorpusReader(table.key)
    with translated("importing memories"):
        async with connection.transaction():
            await rows_sql.stage(connection, table, _records(table, reader, lines, on_progress))
            for line, first in await rows_sql.repeated_lines(connection):
                reader.complain(line, f"id is that of line {first} already")
            reader.require_clean()
            inserted, updated, sensitive = await rows_sql.merge(connection, table)
    return ImportResult(reader.read, inserted, updated, reader.read - inserted - updated, sensitive)


def _require_writable(table: MemoryTable) -> None:
    """Refuse a table in which a value does not stand in a column of its own, so that we cannot write it.

    Raises:
        SchemaUnsupported: there is such a value.
    """
    sources = {used.name: table.names.of(used.name) for used in USED_COLUMNS}
    composed = [name for name, found in sources.items() if len(found) > 1 or any(source.path for source in found)]
    if composed:
        listed = "; ".join(f"{name} from {table.names.written(name)}" for name in composed)
        raise SchemaUnsupported(
            f"Nothing can be imported into {table.schema}.{table.name}: we read {listed}, and cannot write it.",
            "Add the memories with the program that the table belongs to; memory export reads them.",
        )


async def _records(
    table: MemoryTable, reader: CorpusReader, lines: Iterable[bytes], on_progress: Callable[[int], None]
) -> AsyncIterator[tuple[Any, ...]]:
    for number, memory in reader.memories(lines):
        record = memory.record() | {"id": table.key.checked(memory.id)}
        if memory.is_sensitive and table.names.all_public:
            reader.complain(number, "is_sensitive is true, and the table has no column that would say so")
            continue
        if record["user_id"] is not None and "user_id" in table.columns:
            try:
                record["user_id"] = owner_named(table, record["user_id"])
            except InvalidInput as error:
                reader.complain(number, error.message)
                continue
        yield (number, *record.values())
        on_progress(reader.read)
