"""Stores imported memories in one transaction: a temporary table is filled by COPY, then merged.

Other sessions see nothing of an import until all of its lines have been found valid. Importing the same file again
changes nothing. A changed line updates its row, and a trigger of the database then removes the row's vector. A field
that a line does not mention keeps its value. Above all, a row that has become sensitive stays sensitive when an old
export is imported.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import asyncpg

from memory_recall.errors import DatabaseRejected, InvalidInput, SchemaUnsupported
from memory_recall.postgres.connection import Connection
from memory_recall.postgres.driver_errors import translate, translated
from memory_recall.schema.columns.owners import owner_named
from memory_recall.schema.columns.used import USED_COLUMNS
from memory_recall.schema.table import MemoryTable, quoted_if_needed
from memory_recall.transfer import rows_sql
from memory_recall.transfer.jsonl import CorpusReader

_IMPORTING = "importing memories"


@dataclass(frozen=True)
class ImportResult:
    """The number of lines that were read, and how many of them inserted a row, updated a row, or changed nothing.

    `sensitive` is the number of lines whose memory is marked as sensitive. `not_stored` names, in
    alphabetical order, the fields that lines have and the table has no column for.
    """

    read: int
    inserted: int
    updated: int
    unchanged: int
    sensitive: int
    not_stored: tuple[str, ...]


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
        DatabaseRejected: a key of the table forbids a line, or another session or a trigger kept one out.
        SchemaUnsupported: there is no table of memories, or its rows can only be written by its own program.
    """
    table.require_exists()
    _require_writable(table)
    reader = CorpusReader(table.key)
    with translated(_IMPORTING):
        try:
            async with connection.transaction():
                longest = await rows_sql.longest_texts(connection, table)
                await rows_sql.stage(connection, table, _records(table, reader, lines, longest, on_progress))
                for line, first in await rows_sql.repeated_lines(connection):
                    reader.complain(line, f"id is that of line {first} already")
                reader.require_clean()
                merged = await rows_sql.merge(connection, table)
                _require_complete(table, merged.lost)
        except (asyncpg.UniqueViolationError, asyncpg.ExclusionViolationError) as error:
            raise await _conflict(connection, table, error) from None
    not_stored = tuple(sorted(reader.fields - table.columns.keys() - {"is_sensitive"}))
    return ImportResult(reader.read, merged.inserted, merged.updated, merged.unchanged, merged.sensitive, not_stored)


def _require_complete(table: MemoryTable, lost: int) -> None:
    """Refuse an import of which a line was not stored.

    Raises:
        DatabaseRejected: there are such lines.
    """
    if lost:
        raise DatabaseRejected(
            f"Nothing was imported: the table {table.schema}.{table.name} did not take {lost:,} of the lines.",
            "Import the file again, since another session may have written the same memories meanwhile; if it is "
            "refused again, look for triggers, rules and policies of the table that keep rows out.",
        )


async def _conflict(
    connection: Connection, table: MemoryTable, error: asyncpg.UniqueViolationError | asyncpg.ExclusionViolationError
) -> DatabaseRejected:
    """Return the error for a line with values that a key of the table has already.

    The key is named only if the table has it, because a trigger can write anything into the name in an error.
    """
    name, sqlstate = error.constraint_name or "", error.sqlstate or ""
    translate(error, _IMPORTING)  # clears what quotes the row
    key = f"the key {quoted_if_needed(name)}" if await rows_sql.is_key(connection, table, name) else "a key"
    return DatabaseRejected(
        f"Nothing was imported: a line has values that {key} of {table.schema}.{table.name} has in another row "
        f"(SQLSTATE {sqlstate}).",
        "Correct the line, or change or delete the other row, and import the file again. If it is the key of the id, "
        "another session has inserted the same memory meanwhile: import the file again.",
        sqlstate=sqlstate,
    )


def _length(value: object) -> int:
    """Return how many characters a text has, or the longest text of a list."""
    texts = value if isinstance(value, list) else [value]
    return max((len(text) for text in texts if isinstance(text, str)), default=0)


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
    table: MemoryTable,
    reader: CorpusReader,
    lines: Iterable[bytes],
    longest: Mapping[str, int],
    on_progress: Callable[[int], None],
) -> AsyncIterator[tuple[Any, ...]]:
    """Yield what is copied of each line. `longest` has the most characters of the columns that have such a limit."""
    for number, memory in reader.memories(lines):
        record = memory.record() | {"id": table.key.checked(memory.id)}
        if memory.is_sensitive and table.names.all_public:
            reader.complain(number, "is_sensitive is true, and the table has no column that would say so")
            continue
        if record["user_id"] is not None:
            if "user_id" not in table.columns:
                reader.complain(number, "it names a user, and the table has no column that would say so")
                continue
            try:
                record["user_id"] = owner_named(table, record["user_id"])
            except InvalidInput as error:
                reader.complain(number, error.message)
                continue
        too_long = [name for name, most in longest.items() if _length(record[name]) > most]
        if too_long:
            listed = ", ".join(f"{name}: string should have at most {longest[name]:,} characters" for name in too_long)
            reader.complain(number, f"{listed}, as the column has")
            continue
        keywords = record["expanded_keywords"]
        if keywords is not None and not rows_sql.lists_keywords(table):
            record["expanded_keywords"] = ",".join(one for one in keywords if one is not None)
        yield (number, *record.values())
        on_progress(reader.read)
