"""Reads what is to be known before pages are read ahead, has `pg_prewarm` read them, or searches stored vectors.

Only a function that belongs to the extension is called: any role that may create functions could make one of the same
name, which would run with the rights of the worker.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from dataclasses import dataclass
from datetime import datetime

from memory_recall.hnsw.definition import find_statement
from memory_recall.indexing.warming import CacheSettings, Portion, Relation, WarmingProgress, progress_of, session_name
from memory_recall.postgres.connection import AnyConnection, Connection
from memory_recall.postgres.driver_errors import translated
from memory_recall.postgres.session_sql import apply_settings
from memory_recall.schema.columns.keys import MemoryId
from memory_recall.schema.table import ACTIVE, MemoryTable, describe, quoted

_READING_AHEAD = "reading pages ahead"
_LOOKED_AT = 10  # times as many rows as are chosen, since a sample has all rows of a page
_LEAST_LOOKED_AT = 1000  # rows; a smaller sample may have no page at all
_WORDS = """
SELECT i.indexrelid FROM pg_index i JOIN parts p ON p.oid = i.indrelid JOIN pg_class c ON c.oid = i.indexrelid
  JOIN pg_am a ON a.oid = c.relam JOIN pg_attribute t ON t.attrelid = i.indrelid AND t.attnum = ANY (i.indkey)
 WHERE a.amname = 'gin' AND i.indisvalid AND t.attname = $2"""


_KEYS = """
SELECT i.indexrelid FROM pg_index i JOIN parts p ON p.oid = i.indrelid
  JOIN pg_attribute t ON t.attrelid = i.indrelid AND t.attnum = i.indkey[0]
 WHERE i.indisunique AND i.indisvalid AND t.attname = $3"""


@dataclass(frozen=True, slots=True)
class WarmingStatus:
    """What `memory status` says of the pages that are read ahead after a start of the server.

    `extension` says whether `pg_prewarm` is installed in the database, available or missing. `read_ahead` is how far
    the running sync worker is, None if none runs or has begun; `complete` says that it is through.
    """

    server_started_at: datetime
    extension: str
    read_ahead: WarmingProgress | None
    complete: bool


async def started_at(connection: Connection) -> datetime:
    """Return when the server was started."""
    with translated(_READING_AHEAD):
        started: datetime = await connection.fetchval("SELECT pg_postmaster_start_time()")
    return started


async def prewarm_schema(connection: AnyConnection) -> str | None:
    """Return the schema of the extension `pg_prewarm`; None if it is not created in this database."""
    with translated("looking for the extension pg_prewarm"):
        schema: str | None = await connection.fetchval(
            "SELECT n.nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace "
            "WHERE e.extname = 'pg_prewarm'"
        )
    return schema


async def read_settings(connection: Connection) -> CacheSettings:
    """Read the settings by which the reading is bounded."""
    with translated(_READING_AHEAD):
        row = await connection.fetchrow(
            "SELECT current_setting('block_size')::int AS block_size, "
            "pg_size_bytes(current_setting('shared_buffers')) AS shared_buffers, "
            "pg_size_bytes(current_setting('effective_cache_size')) AS effective_cache_size, "
            "(SELECT source <> 'default' FROM pg_settings WHERE name = 'effective_cache_size') AS cache_size_is_set"
        )
    assert row is not None  # noqa: S101  (a SELECT without FROM yields one row)
    return CacheSettings(**dict(row))


async def searched_relations(connection: Connection, table: MemoryTable) -> list[Relation]:
    """Return the indexes and tables that recalls read, beginning with those that slow a cold recall down most.

    These are the vector index, the index of words, the table, and the index of its key; of partitions, those come first
    whose index was searched most. Last come the TOAST tables, which hold long texts and vectors, where the role may
    read them: a recall reads little of them, and they are as large as the rest.
    """
    (search,) = table.names.of("search_vector") or (None,)
    statement = f"""
        WITH vectors AS (SELECT oid FROM ({find_statement(table)}) index),
        parts AS (SELECT to_regclass($1)::oid AS oid
                  UNION ALL SELECT inhrelid FROM pg_inherits WHERE inhparent = to_regclass($1)::oid),
        toast AS (SELECT i.indexrelid, i.indrelid FROM parts JOIN pg_class c ON c.oid = parts.oid
                    JOIN pg_index i ON i.indrelid = c.reltoastrelid
                   WHERE i.indisvalid AND pg_relation_size(i.indrelid) > 0
                     AND has_table_privilege(i.indrelid, 'SELECT')),
        searched (place, oid) AS (
          SELECT 1, oid FROM vectors
          UNION ALL SELECT 1, inhrelid FROM pg_inherits WHERE inhparent = (SELECT oid FROM vectors)
          UNION ALL SELECT 2, words.indexrelid FROM ({_WORDS}) words
          UNION ALL SELECT 3, oid FROM parts
          UNION ALL SELECT 4, keys.indexrelid FROM ({_KEYS}) keys
          UNION ALL SELECT 5, toast.indexrelid FROM toast
          UNION ALL SELECT 6, toast.indrelid FROM toast)
        SELECT c.oid, s.place = 1 AS of_vectors, s.place > 4 AS is_toast,
               pg_relation_size(c.oid) / current_setting('block_size')::int AS blocks
          FROM searched s JOIN pg_class c ON c.oid = s.oid WHERE c.relkind IN ('i', 'r', 't')
         ORDER BY s.place, pg_stat_get_numscans(c.oid) DESC, c.oid
    """
    with translated(_READING_AHEAD):
        rows = await connection.fetch(
            statement, table.qualified, search.column if search else None, table.names.of("id")[0].column
        )
    return [Relation(**dict(row)) for row in rows if row["blocks"]]


async def read_portion(connection: Connection, schema: str, portion: Portion) -> None:
    """Have the extension in `schema` read a portion.

    Raises:
        DatabaseRejected: the role may not read the table, or the relation is gone.
    """
    with translated(_READING_AHEAD):
        await connection.execute(
            f"SELECT {quoted(schema)}.pg_prewarm($1::oid::regclass, $2::text, 'main'::text, $3::int8, $4::int8)",
            portion.oid,
            portion.into.value,
            portion.first,
            portion.last,
        )


async def sample_ids(connection: Connection, table: MemoryTable, count: int) -> list[MemoryId]:
    """Return the ids of rows with a vector, chosen by chance from pages all over the table; `count` of them at most."""
    key, vector = table.row().id, table.vector_name(ACTIVE)
    with translated("choosing stored vectors"):
        rows = await connection.fetch(
            f"SELECT {table.key.shown(key)} AS id FROM {table.qualified} TABLESAMPLE SYSTEM ("
            f"least(100, 100 * greatest({_LOOKED_AT} * $1::float8, {_LEAST_LOOKED_AT}) "
            f"/ greatest({table.estimated_rows()}, 1))) "
            f"WHERE {vector} IS NOT NULL ORDER BY random() LIMIT $1::int8",
            count,
        )
    return [row["id"] for row in rows]


async def prepare_searches(connection: Connection) -> None:
    """Set for this session that each search uses the vector index and visits as many of its entries as it can."""
    await apply_settings(connection, {"hnsw.ef_search": "1000", "enable_seqscan": "off"})


async def search_near(connection: Connection, table: MemoryTable, key: MemoryId) -> None:
    """Search what is near to a stored vector. Nothing is returned: it is done for the pages that it reads."""
    row, vector = table.row().id, table.vector_name(ACTIVE)
    distance = f"OPERATOR({quoted(table.vector_schema or 'public')}.<=>)"
    with translated("searching stored vectors"):
        await connection.execute(
            f"SELECT FROM {table.qualified} WHERE {vector} IS NOT NULL "
            f"ORDER BY {vector} {distance} (SELECT {vector} FROM {table.qualified} WHERE {row} = $1) LIMIT 1",
            key,
        )


async def name_session(connection: Connection, table: MemoryTable, progress: WarmingProgress) -> None:
    """Set the session's application_name to the warming progress; others can read it while the session lasts."""
    with translated("naming the session"):
        await connection.execute(
            "SELECT set_config('application_name', $1, false)", session_name(await _oid(connection, table), progress)
        )


async def read_warming(connection: AnyConnection, name: str) -> WarmingStatus:
    """Read how far a worker is with the table of this name, and whether the extension can be used."""
    table = await describe(connection, name)
    with translated("looking for the session that reads ahead"):
        sessions = await connection.fetch(
            "SELECT application_name AS name FROM pg_stat_activity WHERE datname = current_database() "
            "AND application_name LIKE 'memory-warming %'"
        )
        row = await connection.fetchrow(
            "SELECT pg_postmaster_start_time() AS started_at, "
            "CASE WHEN EXISTS (SELECT FROM pg_extension WHERE extname = 'pg_prewarm') THEN 'installed' "
            "WHEN EXISTS (SELECT FROM pg_available_extensions WHERE name = 'pg_prewarm') THEN 'available' "
            "ELSE 'missing' END AS extension"
        )
        assert row is not None  # noqa: S101  (a SELECT without FROM yields one row)
        names = [one["name"] for one in sessions]
        found = progress_of(await _oid(connection, table), names) if table.exists else None
    return WarmingStatus(row["started_at"], row["extension"], found, found is not None and found.complete)


async def _oid(connection: AnyConnection, table: MemoryTable) -> int:
    oid: int = await connection.fetchval("SELECT to_regclass($1)::oid::int8", table.qualified)
    return oid
