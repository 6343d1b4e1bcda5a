"""Makes and runs the SQL statements of exports and imports.

An import first fills a temporary table. Each of the next statements takes lines out of it: those whose rows are the
same already, those that have updated a row, and those that have inserted one. So no line can get lost unnoticed: a line
that is left was stored by none of them.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from memory_recall.postgres.connection import Connection
from memory_recall.schema.columns.moments import moment, moment_value
from memory_recall.schema.columns.owners import absent_owner, owner_text, owner_value
from memory_recall.schema.table import MemoryTable
from memory_recall.transfer.jsonl import MemoryLine

_EXPORTED = [name for name in MemoryLine.model_fields if name not in {"is_sensitive", "conv"}]
_TYPES = {
    "content": "text",
    "category": "text",
    "tags": "text",
    "expanded_keywords": "text",
    "importance": "double precision",
    "is_sensitive": "boolean",
    "user_id": "text",
    "created_at": "timestamptz",
}
_ABSENT = {
    "category": "'facts'",
    "tags": "''",
    "expanded_keywords": "''",
    "importance": "0.5",
    "created_at": "now()",
}
_STAGING = "memory_index_import"


def export_statement(table: MemoryTable) -> str:
    """Return the statement that selects the rows that may be exported, in the order of ids.

    It selects those fields of an exported line that exist as columns of the table.
    """
    row = table.row("m")
    exported = [name for name in _EXPORTED if name in table.columns]
    # Through text, single precision keeps its short form: 0.3, not 0.30000001192092896.
    as_numbers = {"real": "::text::float8", "numeric": "::float8"}
    kinds = {name: table.columns[name] for name in exported}
    written = {name: f"{row.column(name)}{as_numbers[kind]}" for name, kind in kinds.items() if kind in as_numbers}
    written |= {"user_id": owner_text(table, "m"), "created_at": moment(table, "created_at")}
    written["id"] = table.key.shown(row.id)
    selected = ", ".join(f"{written.get(name, row.column(name))} AS {name}" for name in exported)
    return f"SELECT {selected} FROM {table.qualified} m WHERE {table.shareable('m')} ORDER BY {row.id}"


def count_statement(table: MemoryTable) -> str:
    """Return the statement that counts the rows that may be exported, the sensitive rows and the deleted rows."""
    return (
        f"SELECT count(*) FILTER (WHERE {table.shareable()}) AS shareable, "
        f"count(*) FILTER (WHERE {table.present()} AND {table.sensitive()}) AS sensitive, "
        f"count(*) FILTER (WHERE NOT {table.present()}) AS deleted FROM {table.qualified}"
    )


def lists_keywords(table: MemoryTable) -> bool:
    """Return whether the further words of a row are an array of texts, and not one text."""
    return table.columns.get("expanded_keywords", "").endswith("[]")


async def longest_texts(connection: Connection, table: MemoryTable) -> dict[str, int]:
    """Return the most characters of those used columns whose type has such a limit, by our names for them."""
    rows = await connection.fetch(
        "SELECT attname, atttypmod - 4 AS most FROM pg_attribute WHERE attrelid = to_regclass($1)::oid "
        "AND atttypmod > 4 AND atttypid IN ('varchar'::regtype::oid, 'varchar[]'::regtype::oid) AND NOT attisdropped",
        table.qualified,
    )
    limits = {row["attname"]: row["most"] for row in rows}
    sources = {name: table.names.of(name)[0].column for name in ("id", *_TYPES) if name in table.columns}
    return {name: limits[column] for name, column in sources.items() if column in limits}


async def stage(connection: Connection, table: MemoryTable, records: AsyncIterator[tuple[Any, ...]]) -> None:
    """Create the temporary table of an import, and copy the records of the lines to it.

    A record holds the number of the line and the values of its `MemoryLine`.
    """
    types = {"line": "bigint", "id": table.key.stored, **_TYPES}
    if lists_keywords(table):
        types["expanded_keywords"] = "text[]"
    columns = ", ".join(f"{name} {kind}" for name, kind in types.items())
    await connection.execute(f"CREATE TEMP TABLE {_STAGING} ({columns}) ON COMMIT DROP")
    await connection.copy_records_to_table(_STAGING, schema_name="pg_temp", records=records, columns=list(types))


async def repeated_lines(connection: Connection) -> list[tuple[int, int]]:
    """Return the first twenty lines whose id occurs in an earlier line.

    Each item is the number of the line and the number of the first line with that id.
    """
    rows = await connection.fetch(
        "SELECT line, first FROM (SELECT line, min(line) OVER (PARTITION BY id) AS first "
        f"FROM pg_temp.{_STAGING}) numbered WHERE line > first ORDER BY line LIMIT 20"
    )
    return [(row["line"], row["first"]) for row in rows]


@dataclass(frozen=True)
class Merged:
    """How many lines inserted a row, updated one, found theirs the same, and did none of this; and how many are marked.

    `sensitive` lines are marked as sensitive, whatever they did.
    """

    inserted: int
    updated: int
    unchanged: int
    lost: int
    sensitive: int


async def merge(connection: Connection, table: MemoryTable) -> Merged:
    """Merge the temporary table into the table of memories."""
    written = {name for name in table.columns if table.names.of(name)[0].column not in table.generated}
    stored = [name for name in ("id", *_TYPES) if name in written]
    merged, fresh = _values(table, stored)
    row, target = table.row("m"), table.row()  # what is assigned to and inserted has no alias
    now = moment_value(table, "updated_at", "now()") if "updated_at" in written else None
    touched = "" if now is None else f", {target.column('updated_at')} = {now}"
    differs = " OR ".join(
        f"{one} IS DISTINCT FROM {value}" for name, value in merged.items() for one in row.compared(name)
    )
    assignments = ", ".join(f"{target.column(name)} = {value}" for name, value in merged.items())
    sensitive = await connection.fetchval(f"SELECT count(*) FROM pg_temp.{_STAGING} WHERE is_sensitive")
    unchanged = await connection.fetchval(
        f"WITH taken AS (DELETE FROM pg_temp.{_STAGING} i USING {table.qualified} m "
        f"WHERE i.id = {row.id} AND NOT ({differs}) RETURNING 1) SELECT count(*) FROM taken"
    )
    updated = await connection.fetchval(
        f"WITH changed AS (UPDATE {table.qualified} m SET {assignments}{touched} FROM pg_temp.{_STAGING} i "
        f"WHERE i.id = {row.id} AND ({differs}) RETURNING i.id), {_taken('changed')}"
    )
    inserted = await connection.fetchval(
        f"WITH added AS (INSERT INTO {table.qualified} ({', '.join(map(target.column, stored))}) "
        f"OVERRIDING SYSTEM VALUE SELECT {', '.join(fresh[name] for name in stored)} FROM pg_temp.{_STAGING} i "
        f"WHERE NOT EXISTS (SELECT FROM {table.qualified} m WHERE {row.id} = i.id) ORDER BY i.line "
        f"RETURNING {target.id} AS id), {_taken('added')}"
    )
    lost = await connection.fetchval(f"SELECT count(*) FROM pg_temp.{_STAGING}")
    if table.key.is_integer:
        await _move_sequence(connection, table)
    return Merged(inserted, updated, unchanged, lost, sensitive)


def _values(table: MemoryTable, stored: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return SQL for the values of the columns in `stored`: those that a row gets by a line, and those of a new row.

    The id and the time of a row stay as they are.
    """
    compared, row = [name for name in stored if name not in ("id", "created_at")], table.row("m")
    given = {name: f"i.{name}" for name in stored}
    absent = dict(_ABSENT)
    if "created_at" in stored:
        given["created_at"], absent["created_at"] = (
            moment_value(table, "created_at", time) for time in ("i.created_at", "now()")
        )
    if "user_id" in stored:
        given["user_id"], absent["user_id"] = owner_value(table, "i.user_id"), absent_owner(table)
    if lists_keywords(table) and "expanded_keywords" in stored:
        given["expanded_keywords"] += f"::{table.columns['expanded_keywords']}"
        absent["expanded_keywords"] = "'{}'"
    if "importance" in stored:
        given["importance"] = _importance(table)
    merged = {name: f"coalesce({given[name]}, {row.column(name)})" for name in compared}
    if table.columns.get("importance") == "numeric" and "importance" in merged:
        # The line has the row's number as an export writes it, of which numeric can have more digits.
        own = row.column("importance")
        merged["importance"] = f"CASE WHEN {own}::float8 = i.importance THEN {own} ELSE {merged['importance']} END"
    fresh = {name: f"coalesce({given[name]}, {absent[name]})" if name in absent else given[name] for name in stored}
    if "is_sensitive" in stored:
        sensitive = "coalesce(i.is_sensitive, false)"
        fresh["is_sensitive"] = sensitive
        if table.columns["is_sensitive"] != "boolean":
            fresh["is_sensitive"] = f"{sensitive}::integer"
            merged["is_sensitive"] = f"coalesce(i.is_sensitive::integer, {row.column('is_sensitive')})"
    return merged, fresh


def _importance(table: MemoryTable) -> str:
    """Return SQL for the importance of a line as the column would hold it, so that it can be compared with a row's."""
    kind = table.columns["importance"]
    return "i.importance::text::numeric" if kind == "numeric" else f"i.importance::{kind}"


def _taken(stored: str) -> str:
    """Return the end of a statement that takes lines out of the temporary table and counts them.

    `stored` is the name of the statement's CTE of their ids.
    """
    return (
        f"taken AS (DELETE FROM pg_temp.{_STAGING} i USING {stored} s WHERE i.id = s.id RETURNING 1) "
        "SELECT count(*) FROM taken"
    )


async def is_key(connection: Connection, table: MemoryTable, name: str) -> bool:
    """Return whether a unique key or an exclusion constraint of the table, or of a partition, has this name."""
    found: bool = await connection.fetchval(
        "SELECT EXISTS (SELECT FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid WHERE c.relname = $2 AND "
        "(x.indrelid = to_regclass($1)::oid OR x.indrelid IN "
        "(SELECT relid::oid FROM pg_partition_tree(to_regclass($1)))))",
        table.qualified,
        name,
    )
    return found


async def _move_sequence(connection: Connection, table: MemoryTable) -> None:
    """Advance the sequence of ids to the largest id in the table, unless the sequence is beyond that already."""
    key = table.names.of("id")[0].column
    sequence = await connection.fetchval("SELECT pg_get_serial_sequence($1, $2)", table.qualified, key)
    if sequence is None:
        return
    await connection.execute(
        f"SELECT setval($1::regclass, greatest((SELECT max({table.row().id}) FROM {table.qualified}), "
        f"(SELECT last_value FROM {sequence}))) WHERE EXISTS (SELECT FROM {table.qualified})",
        sequence,
    )
