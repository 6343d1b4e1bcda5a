"""Reads what a table is like before it is adopted, within a bounded time and without reading a text into this process.

Everything is read in one transaction that cannot write. The rows of a table of some size are those of random pages;
from each row the database computes lengths, scripts, and which of the known keys a document has.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

import json
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from memory_recall.errors import DatabaseUnreachable
from memory_recall.postgres.catalog_sql import reading_catalog
from memory_recall.postgres.connection import AnyConnection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.adoption.observations import (
    DatabaseObservation,
    DocumentKey,
    NumberRange,
    TableObservation,
    TextObservation,
)
from memory_recall.schema.adoption.purposes import known_names
from memory_recall.schema.columns.names import used_column
from memory_recall.schema.columns.text_search import READ_FOLDS_CASE
from memory_recall.schema.columns.used import INTEGERS, TEXTS
from memory_recall.schema.ddl import literal
from memory_recall.schema.requirements.publications import read_publications
from memory_recall.schema.table import ORDINARY_COLLATION, MemoryTable, quoted

SAMPLED_ROWS = 1000
_SMALL_TABLE = 64 * 2**20  # bytes; below, rows are counted and chosen one by one
_STATEMENT_TIMEOUT_MS = 30_000
_UPDATE_OF_A_ROW = "t.tgtype & 81 = 17"  # of the bits 1 (row), 16 (update) and 64 (instead): the first two
_CANCELED = "57014"
_TOO_LONG = (
    "It was ended after half a minute; nothing was changed. Repeat it when no other session holds a lock on the table "
    "(VACUUM FULL and ALTER TABLE do) and the disk is less busy."
)
_LONGEST_DOCUMENT = 100_000  # bytes as stored; keys of longer documents are not looked for
_LONGEST_MEASURED = 200_000  # bytes; longer texts count as so many characters as they have bytes
_LETTERS = 400  # characters of a text whose scripts are counted
_NUMBERS = ("real", "double precision", "numeric", *INTEGERS)

# The ranges of code points by which the letters of a script are counted, by the script's Unicode name.
_SCRIPTS = {
    "Latin": "A-Za-z\\u00C0-\\u024F",
    "Greek": "\\u0370-\\u03FF",
    "Cyrillic": "\\u0400-\\u052F",
    "Armenian": "\\u0530-\\u058F",
    "Hebrew": "\\u0590-\\u05FF",
    "Arabic": "\\u0600-\\u06FF\\u0750-\\u077F",
    "Devanagari": "\\u0900-\\u097F",
    "Bengali": "\\u0980-\\u09FF",
    "Tamil": "\\u0B80-\\u0BFF",
    "Thai": "\\u0E00-\\u0E7F",
    "Georgian": "\\u10A0-\\u10FF",
    "Khmer": "\\u1780-\\u17FF",
    "Hiragana": "\\u3040-\\u309F",
    "Katakana": "\\u30A0-\\u30FF",
    "Hangul": "\\u1100-\\u11FF\\uAC00-\\uD7AF",
    "Han": "\\u3400-\\u4DBF\\u4E00-\\u9FFF",
}

_DATABASE = f"""
SELECT d.datname AS name, split_part(current_setting('server_version'), ' ', 1) AS server_version,
       pg_encoding_to_char(d.encoding) AS encoding, {READ_FOLDS_CASE} AS folds_case,
       coalesce(to_jsonb(d) ->> 'datlocale', to_jsonb(d) ->> 'daticulocale', d.datctype)
         || CASE d.datlocprovider WHEN 'i' THEN ' (icu)' WHEN 'b' THEN ' (builtin)' ELSE ' (libc)' END AS locale,
       (SELECT extversion FROM pg_extension WHERE extname = 'vector') AS extension,
       (SELECT default_version FROM pg_available_extensions WHERE name = 'vector') AS available,
       current_setting('max_prepared_transactions')::integer AS prepared_transactions
  FROM pg_database d WHERE d.datname = current_database()
"""
_CATALOG = f"""
WITH leaves AS (
  SELECT c.oid, c.reloptions FROM pg_class c WHERE c.oid = to_regclass($1) AND c.relkind = 'r'
   UNION ALL
  SELECT c.oid, c.reloptions FROM pg_inherits i
    JOIN pg_class p ON p.oid = i.inhparent AND p.relkind = 'p' JOIN pg_class c ON c.oid = i.inhrelid
   WHERE i.inhparent = to_regclass($1)
)
SELECT coalesce(sum(pg_table_size(l.oid)), 0)::bigint AS table_bytes,
       coalesce(sum(pg_indexes_size(l.oid)), 0)::bigint AS index_bytes,
       coalesce(sum(s.n_tup_upd), 0)::bigint AS updates, coalesce(sum(s.n_tup_hot_upd), 0)::bigint AS hot_updates,
       coalesce(max(coalesce((SELECT option_value::integer FROM pg_options_to_table(l.reloptions)
                               WHERE option_name = 'fillfactor'), 100)), 100) AS fillfactor,
       (SELECT stats_reset::date::text FROM pg_stat_database WHERE datname = current_database()) AS counting_since,
       (SELECT coalesce(jsonb_agg(a.attname ORDER BY k.place), '[]')
          FROM pg_index x CROSS JOIN unnest(x.indkey::int2[]) WITH ORDINALITY k(number, place)
          JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = k.number
         WHERE x.indrelid = to_regclass($1) AND x.indisprimary AND k.place <= x.indnkeyatts)::text AS primary_key,
       (SELECT coalesce(jsonb_agg(DISTINCT a.attname), '[]') FROM pg_index x
          JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = x.indkey[0]
         WHERE x.indrelid = to_regclass($1) AND x.indisunique AND x.indnkeyatts = 1 AND x.indpred IS NULL
           AND x.indimmediate AND x.indisvalid)::text AS unique,
       coalesce((SELECT {read_publications()} FROM pg_class c WHERE c.oid = to_regclass($1)), '[]')::text
         AS publications,
       (SELECT coalesce(jsonb_agg(t.tgname ORDER BY t.tgname), '[]') FROM pg_trigger t
         WHERE t.tgrelid = to_regclass($1) AND NOT t.tgisinternal AND t.tgenabled IN ('O', 'A')
           AND {_UPDATE_OF_A_ROW} AND cardinality(t.tgattr::int2[]) = 0
           AND NOT starts_with(t.tgname::text, 'zz_memory_'))::text AS triggers
  FROM leaves l LEFT JOIN pg_stat_user_tables s ON s.relid = l.oid
"""
_NAMESAKES = """
SELECT coalesce(jsonb_agg(found.name ORDER BY found.name), '[]')::text AS names
  FROM (SELECT format('%s.%s', n.nspname, c.relname) AS name
          FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE lower(c.relname) = lower($2) AND (n.nspname, c.relname) <> ($1::text, $2::text)
           AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT starts_with(n.nspname::text, 'pg_')
           AND n.nspname <> 'information_schema'
         ORDER BY 1 LIMIT 10) found
"""


@asynccontextmanager
async def looking(connection: AnyConnection) -> AsyncIterator[None]:
    """Run the statements of the block in a transaction that cannot write, each of them for at most half a minute.

    Raises:
        DatabaseUnreachable: a statement took longer.
    """
    try:
        with translated("looking at the table"):
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                await connection.execute(f"SET LOCAL statement_timeout = {_STATEMENT_TIMEOUT_MS}")
                yield
    except DatabaseUnreachable as error:
        if error.sqlstate != _CANCELED:
            raise
        raise DatabaseUnreachable(error.message, _TOO_LONG, sqlstate=error.sqlstate) from None


async def observe_database(connection: AnyConnection) -> DatabaseObservation:
    """Read the properties of the server and the database that decide whether its table can be adopted."""
    return DatabaseObservation(**await _row(connection, _DATABASE))


async def read_namesakes(connection: AnyConnection, table: MemoryTable) -> list[str]:
    """Return the other tables and views with this table's name in any case, with their schemas; at most ten."""
    found: list[str] = json.loads((await _row(connection, _NAMESAKES, table.schema, table.name))["names"])
    return found


async def observe_table(connection: AnyConnection, table: MemoryTable) -> TableObservation:
    """Read the catalog, and measure a sample of the rows. For a view or a foreign table only the catalog is read."""
    found = await _row(connection, _CATALOG, table.qualified)
    found |= {name: tuple(json.loads(found[name])) for name in ("primary_key", "unique", "publications", "triggers")}
    catalog = TableObservation(**found)
    if table.kind not in {"r", "p"}:
        return catalog
    counted = catalog.table_bytes <= _SMALL_TABLE
    rows = f"count(*) AS rows FROM {table.qualified}" if counted else f"{table.estimated_rows()}::bigint AS rows"
    found |= await _row(connection, f"SELECT {rows}")
    sample = _sample(table, found["rows"], catalog.table_bytes)
    widths, ranges = await _measures(connection, table, sample)
    return TableObservation(
        **found,
        counted=counted,
        widths=widths,
        ranges=ranges,
        document_keys=tuple([key async for key in _keys(connection, table, sample)]),
    )


async def observe_texts(
    connection: AnyConnection, table: MemoryTable, seen: TableObservation, encoding: str, window: int | None
) -> TextObservation:
    """Measure the texts of a sample of the rows. `window` is the number of characters that the model reads, or None.

    The table must have the columns that its names name.
    """
    row = table.row()
    beginning = f"left({row.content}, {_LETTERS}) COLLATE {ORDINARY_COLLATION}"
    script = _script_of(beginning) if encoding == "UTF8" else "NULL"
    is_sensitive = table.sensitive() if _says(table, "is_sensitive") else "false"
    is_present = table.present() if _says(table, "deleted_at") else "true"
    measured = f"""
        WITH read AS MATERIALIZED (
          SELECT {row.content} AS text, octet_length({row.content}) AS bytes, {is_sensitive} AS sensitive,
                 {is_present} AS present, {script} AS script
            FROM {_sample(table, seen.rows, seen.table_bytes)}
        ), sized AS (
          SELECT *, CASE WHEN bytes > {_LONGEST_MEASURED} THEN bytes ELSE length(text) END AS characters FROM read
        )
        SELECT count(*) AS rows, count(text) AS texts, coalesce(avg(characters), 0)::float8 AS mean_characters,
               coalesce(avg(bytes), 0)::float8 AS mean_bytes, count(*) FILTER (WHERE characters > $1::bigint) AS longer,
               count(*) FILTER (WHERE sensitive) AS sensitive, count(*) FILTER (WHERE NOT present) AS deleted,
               (SELECT coalesce(jsonb_object_agg(script, texts), '{{}}') FROM (
                  SELECT script, count(*) AS texts FROM sized WHERE script IS NOT NULL GROUP BY script) counted)::text
                 AS scripts
          FROM sized"""
    found = await _row(connection, measured, window)
    return TextObservation(**{**found, "scripts": json.loads(found["scripts"])}, window=window)


def _says(table: MemoryTable, name: str) -> bool:
    """Return whether a column is there and of a type of which the rules can be asked."""
    sources = table.names.of(name)
    return name in table.columns and (bool(sources[0].path) or table.columns[name] in used_column(name).types)


def _sample(table: MemoryTable, rows: int, size: int) -> str:
    """Return SQL that stands for a table in a FROM clause: a sample of the table's rows, the same each time."""
    method, wanted = ("BERNOULLI", 1.3) if size <= _SMALL_TABLE else ("SYSTEM", 3)
    percent = min(100.0, 100.0 * wanted * SAMPLED_ROWS / max(rows, 1))
    drawn = f"TABLESAMPLE {method} ({percent:.6f}) REPEATABLE (1)"
    return f"(SELECT * FROM {table.qualified} {drawn} LIMIT {SAMPLED_ROWS}) AS drawn"


async def _measures(
    connection: AnyConnection, table: MemoryTable, sample: str
) -> tuple[dict[str, float], dict[str, NumberRange]]:
    """Return the mean length in bytes of texts and the range of numbers, by column."""
    texts, numbers = _of_types(table, TEXTS), _of_types(table, _NUMBERS)
    measured = [f"avg(octet_length({quoted(name)}))" for name in texts]
    measured += [f"{end}({quoted(name)})" for name in numbers for end in ("min", "max")]
    if not measured:
        return {}, {}
    values = ", ".join(f"({one})::float8::text" for one in measured)
    found = (await _row(connection, f"SELECT ARRAY[{values}] AS values FROM {sample}"))["values"]
    widths = {name: float(value) for name, value in zip(texts, found, strict=False) if value is not None}
    ends = found[len(texts) :]
    ranges = {
        name: NumberRange(float(least), float(greatest))
        for name, least, greatest in zip(numbers, ends[::2], ends[1::2], strict=True)
        if least is not None
    }
    return widths, ranges


async def _keys(connection: AnyConnection, table: MemoryTable, sample: str) -> AsyncIterator[DocumentKey]:
    """Yield the keys of documents, and of documents right inside them, whose names are among those looked for."""
    for column in _of_types(table, ("json", "jsonb")):
        kind, name = table.catalog[column], quoted(column)
        statement = f"""
            WITH drawn AS MATERIALIZED (
              SELECT CASE WHEN pg_column_size({name}) <= {_LONGEST_DOCUMENT} THEN {name} END AS value
                FROM {sample}
            ), outer_keys AS MATERIALIZED (
              SELECT o.key, o.value FROM drawn CROSS JOIN LATERAL {_each(kind, "drawn.value")} o
            ), found AS (
              SELECT ARRAY[key] AS path, {kind}_typeof(value) AS type FROM outer_keys
               UNION ALL
              SELECT ARRAY[o.key, i.key], {kind}_typeof(i.value)
                FROM outer_keys o CROSS JOIN LATERAL {_each(kind, "o.value")} i
            )
            SELECT to_jsonb(path)::text AS path, count(*)::float8 / (SELECT count(*) FROM drawn) AS share,
                   jsonb_agg(DISTINCT type)::text AS types
              FROM found
             WHERE regexp_replace(lower(path[cardinality(path)]), '[^0-9a-z]', '', 'g') = ANY ($1::text[])
               AND type <> 'null'
             GROUP BY path ORDER BY cardinality(path), path"""
        async with reading_catalog(connection, "looking at documents"):
            rows = await connection.fetch(statement, known_names())
        for row in rows:
            yield DocumentKey(column, tuple(json.loads(row["path"])), row["share"], tuple(json.loads(row["types"])))


def _each(kind: str, value: str) -> str:
    """Return SQL for the keys and values of a document, none of one that is no object."""
    return f"{kind}_each(CASE WHEN {kind}_typeof({value}) = 'object' THEN {value} END)"


def _script_of(text: str) -> str:
    """Return SQL for the script of most letters of a text; NULL of a text without letters."""
    counts = ", ".join(f"({literal(name)}, regexp_count({text}, '[{span}]'))" for name, span in _SCRIPTS.items())
    return (
        f"(SELECT name FROM (VALUES {counts}) AS counted(name, letters) "
        "WHERE letters > 0 ORDER BY letters DESC LIMIT 1)"
    )


def _of_types(table: MemoryTable, types: Iterable[str]) -> Sequence[str]:
    wanted = set(types)
    return [name for name, kind in table.catalog.items() if kind in wanted]


async def _row(connection: AnyConnection, statement: str, *values: object) -> dict[str, Any]:
    async with reading_catalog(connection, "looking at the table"):
        row = await connection.fetchrow(statement, *values)
    assert row is not None  # noqa: S101  (each statement yields one row, as an aggregate or of the database itself)
    return dict(row)
