"""The facts about a database that the operator and `memory status` report: counts and catalog entries, never text.

It runs every half minute against databases of any size. The counts come from the two small partial indexes (pending
rows; rows that are sensitive or deleted); only the total needs a scan, which an index on the key serves. No statement
names the column of texts, so a role that may not read it can observe everything.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from dataclasses import dataclass

from memory_recall.errors import SchemaUnsupported
from memory_recall.hnsw.definition import IndexFacts, inspect_index
from memory_recall.postgres.connection import AnyConnection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.models_sql import RecordedModel, Roles, read_roles
from memory_recall.schema.revisions import HEAD_REVISION, current_revision
from memory_recall.schema.rules import describe_differences, has_own_tables
from memory_recall.schema.table import MemoryTable, describe
from memory_recall.swap import state_sql
from memory_recall.swap.state_sql import SwapRecord


@dataclass(frozen=True)
class RowCounts:
    """Rows that are not deleted: `total` is the sum of the other four."""

    total: int = 0
    embedded: int = 0
    pending: int = 0
    sensitive: int = 0
    quarantined: int = 0


@dataclass(frozen=True)
class DatabaseFacts:
    """Everything that decides what is to be done next.

    `schema_differences` names what of a table at the last revision is not what it must be; empty where nothing is.
    `seconds_since_wanted` is how long ago a recall last wanted an embedder that did not answer, by the database's
    clock and to within 30 seconds; None where that never happened.
    """

    server_version: str
    in_recovery: bool
    database_owner: str
    extension_version: str | None
    extension_available: str | None
    extension_schema: str | None
    schema_revision: str | None
    table_exists: bool
    embedding_dimensions: int | None
    rows: RowCounts
    index: IndexFacts
    active_model: RecordedModel | None
    next_model: RecordedModel | None
    swap: SwapRecord | None = None
    schema_differences: str = ""
    seconds_since_wanted: float | None = None


_SERVER = """
SELECT current_setting('server_version') AS version, pg_is_in_recovery() AS in_recovery,
       (SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = current_database()) AS owner,
       (SELECT extversion FROM pg_extension WHERE extname = 'vector') AS extension,
       (SELECT default_version FROM pg_available_extensions WHERE name = 'vector') AS available
"""
NO_ROWS = RowCounts()
NO_INDEX = IndexFacts(None, exists=False, valid=False, progress=None)


async def inspect(connection: AnyConnection, table: str) -> DatabaseFacts:
    """Look at the database as it is now.

    Raises:
        DatabaseUnreachable: the connection was lost.
    """
    with translated("looking at the server"):
        server = await connection.fetchrow(_SERVER)
    assert server is not None  # noqa: S101  (a SELECT without FROM yields one row)
    memories = await describe(connection, table)
    revision = await current_revision(connection, memories)
    has_state = revision is not None and await has_own_tables(connection, memories, revision)
    roles = await read_roles(connection, memories) if has_state else Roles(None, None)
    return DatabaseFacts(
        server_version=server["version"].split()[0],
        in_recovery=server["in_recovery"],
        database_owner=server["owner"],
        extension_version=server["extension"],
        extension_available=server["available"],
        extension_schema=memories.vector_schema,
        schema_revision=revision,
        table_exists=memories.exists,
        embedding_dimensions=memories.embedding_dimensions,
        rows=await _count(connection, memories, with_queue=has_state),
        index=await inspect_index(connection, memories) if memories.exists else NO_INDEX,
        active_model=roles.active,
        next_model=roles.next,
        swap=await state_sql.latest(connection, memories) if has_state else None,
        schema_differences=await _differences(connection, memories) if revision == HEAD_REVISION else "",
        seconds_since_wanted=await _seconds_since_wanted(connection, memories) if has_state else None,
    )


async def _differences(connection: AnyConnection, table: MemoryTable) -> str:
    try:
        table.require_plain()
    except SchemaUnsupported as error:
        return error.message
    if not await has_own_tables(connection, table, HEAD_REVISION):
        return "what the migrations made is gone"
    return await describe_differences(connection, table)


async def _seconds_since_wanted(connection: AnyConnection, table: MemoryTable) -> float | None:
    with translated("reading when an embedder was wanted"):
        seconds: float | None = await connection.fetchval(
            "SELECT extract(epoch FROM now() - (to_jsonb(s) ->> 'wanted_at')::timestamptz)::float8 "
            f"FROM {table.own('memory_index_state')} s"
        )
    return seconds


async def _count(connection: AnyConnection, table: MemoryTable, *, with_queue: bool) -> RowCounts:
    if not table.exists:
        return NO_ROWS
    table.require_supported()
    if not with_queue:
        return await _count_without_column(connection, table)
    withheld, pending = f"NOT {table.shareable()}", table.pending()
    with translated("counting rows"):
        row = await connection.fetchrow(
            f"""
            SELECT (SELECT count(*) FROM {table.qualified}) AS all_rows,
                   (SELECT count(*) FROM {table.qualified} WHERE {withheld} AND deleted_at IS NOT NULL) AS deleted,
                   (SELECT count(*) FROM {table.qualified} WHERE {withheld} AND deleted_at IS NULL) AS sensitive,
                   (SELECT count(*) FROM {table.qualified} WHERE {pending}) AS unembedded,
                   (SELECT count(*) FROM {table.own("memory_embedding_failures")} f
                      JOIN {table.qualified} m ON m.id = f.id
                     WHERE f.next_attempt = 'infinity' AND {table.pending("m")}) AS quarantined
            """
        )
    assert row is not None  # noqa: S101  (a SELECT without FROM yields one row)
    total = row["all_rows"] - row["deleted"]
    return RowCounts(
        total=total,
        embedded=total - row["sensitive"] - row["unembedded"],
        pending=row["unembedded"] - row["quarantined"],
        sensitive=row["sensitive"],
        quarantined=row["quarantined"],
    )


async def _count_without_column(connection: AnyConnection, table: MemoryTable) -> RowCounts:
    with translated("counting rows"):
        row = await connection.fetchrow(
            f"SELECT count(*) AS total, count(*) FILTER (WHERE {table.sensitive()}) AS sensitive "
            f"FROM {table.qualified} WHERE deleted_at IS NULL"
        )
    assert row is not None  # noqa: S101  (an aggregate yields one row)
    return RowCounts(
        total=row["total"],
        embedded=0,
        pending=row["total"] - row["sensitive"],
        sensitive=row["sensitive"],
        quarantined=0,
    )
