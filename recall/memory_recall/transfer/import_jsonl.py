"""Stores imported memories in one transaction: a temporary table is filled by COPY, then merged.

Nothing is visible before every line is found valid. Importing the same file again changes nothing; a changed line
updates its row, whose vector the database then removes by itself. A field that a line does not mention keeps its value:
above all, a row that has become sensitive stays so when an old export is imported.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from memory_recall.postgres.connection import Connection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.table import MemoryTable
from memory_recall.transfer.jsonl import CorpusReader

_TYPES = {
    "line": "bigint",
    "id": "bigint",
    "content": "text",
    "category": "text",
    "tags": "text",
    "expanded_keywords": "text",
    "importance": "real",
    "is_sensitive": "boolean",
    "user_id": "text",
    "created_at": "timestamptz",
}
_ABSENT = {
    "category": "'facts'",
    "tags": "''",
    "expanded_keywords": "''",
    "importance": "0.5",
    "user_id": "'default'",
    "created_at": "now()",
}
_STAGING = "memory_index_import"


@dataclass(frozen=True)
class ImportResult:
    """How many lines were read, inserted, updated and unchanged; `sensitive` ones are marked as sensitive."""

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
            columns = ", ".join(f"{name} {kind}" for name, kind in _TYPES.items())
            await connection.execute(f"CREATE TEMP TABLE {_STAGING} ({columns}) ON COMMIT DROP")
            records = _records(reader, lines, on_progress)
            await connection.copy_records_to_table(
                _STAGING, schema_name="pg_temp", records=_asynchronously(records), columns=list(_TYPES)
            )
            await _complain_about_ids(connection, table, reader)
            reader.require_clean()
            return await _merge(connection, table, reader.read)


def _records(
    reader: CorpusReader, lines: Iterable[bytes], on_progress: Callable[[int], None]
) -> Iterator[tuple[Any, ...]]:
    for number, memory in reader.memories(lines):
        yield (number, *memory.record().values())
        on_progress(reader.read)


async def _asynchronously(records: Iterator[tuple[Any, ...]]) -> AsyncIterator[tuple[Any, ...]]:
    for record in records:
        yield record


async def _complain_about_ids(connection: Connection, table: MemoryTable, reader: CorpusReader) -> None:
    largest = {"smallint": 2**15, "integer": 2**31, "bigint": 2**63}[table.columns["id"]] - 1
    for number in await connection.fetch(
        f"SELECT line FROM pg_temp.{_STAGING} WHERE id > $1 ORDER BY line LIMIT 20", largest
    ):
        reader.complain(number["line"], f"id is larger than the table's {table.columns['id']} key can be")
    for row in await connection.fetch(
        "SELECT line, first FROM (SELECT line, min(line) OVER (PARTITION BY id) AS first "
        f"FROM pg_temp.{_STAGING}) numbered WHERE line > first ORDER BY line LIMIT 20"
    ):
        reader.complain(row["line"], f"id is that of line {row['first']} already")


async def _merge(connection: Connection, table: MemoryTable, read: int) -> ImportResult:
    stored = [name for name in _TYPES if name != "line" and name in table.columns]
    compared = [name for name in stored if name not in ("id", "created_at")]
    touched = ", updated_at = now()" if "updated_at" in table.columns else ""
    merged = {name: f"coalesce(i.{name}, m.{name})" for name in compared}
    fresh = {name: f"coalesce(i.{name}, {_ABSENT[name]})" if name in _ABSENT else f"i.{name}" for name in stored}
    sensitive = "coalesce(i.is_sensitive, false)"
    fresh["is_sensitive"] = sensitive
    if table.sensitive_type == "integer":
        fresh["is_sensitive"] = f"{sensitive}::integer"
        merged["is_sensitive"] = "coalesce(i.is_sensitive::integer, m.is_sensitive)"
    differs = " OR ".join(f"m.{name} IS DISTINCT FROM {value}" for name, value in merged.items())
    assignments = ", ".join(f"{name} = {value}" for name, value in merged.items())
    updated = await connection.fetchval(
        f"WITH changed AS (UPDATE {table.qualified} m SET {assignments}{touched} FROM pg_temp.{_STAGING} i "
        f"WHERE i.id = m.id AND ({differs}) RETURNING 1) SELECT count(*) FROM changed"
    )
    inserted = await connection.fetchval(
        f"WITH added AS (INSERT INTO {table.qualified} ({', '.join(stored)}) "
        f"SELECT {', '.join(fresh[name] for name in stored)} FROM pg_temp.{_STAGING} i "
        f"WHERE NOT EXISTS (SELECT FROM {table.qualified} m WHERE m.id = i.id) ORDER BY i.line "
        "ON CONFLICT (id) DO NOTHING RETURNING 1) SELECT count(*) FROM added"
    )
    marked = await connection.fetchval(f"SELECT count(*) FROM pg_temp.{_STAGING} WHERE is_sensitive")
    await _move_sequence(connection, table)
    return ImportResult(read, inserted, updated, read - inserted - updated, marked)


async def _move_sequence(connection: Connection, table: MemoryTable) -> None:
    """Raise the sequence of ids above every id in the table; never lower the sequence."""
    sequence = await connection.fetchval("SELECT pg_get_serial_sequence($1, 'id')", table.qualified)
    if sequence is None:
        return
    await connection.execute(
        f"SELECT setval($1::regclass, greatest((SELECT max(id) FROM {table.qualified}), "
        f"(SELECT last_value FROM {sequence}))) WHERE EXISTS (SELECT FROM {table.qualified})",
        sequence,
    )
