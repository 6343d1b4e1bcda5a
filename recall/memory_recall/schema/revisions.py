"""Where the migrations stand; kept apart from their runner because reading this must not need Alembic."""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from memory_recall.errors import SchemaBehind
from memory_recall.postgres.connection import AnyConnection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.table import MemoryTable, describe

VERSION_TABLE = "memory_index_alembic_version"
SCHEMA_REVISION = "0002"
INDEX_REVISION = "0003"
SWAP_REVISION = "0004"
HEAD_REVISION = "0005"


async def current_revision(connection: AnyConnection, table: MemoryTable) -> str | None:
    """The revision that is stamped, or None before the first migration."""
    version_table = table.own(VERSION_TABLE)
    with translated("reading the schema revision"):
        if await connection.fetchval("SELECT to_regclass($1)", version_table) is None:
            return None
        revision: str | None = await connection.fetchval(f"SELECT version_num FROM {version_table}")
    return revision


async def require_schema(connection: AnyConnection, table: str) -> MemoryTable:
    """The table, once the migrations have given it column and rules.

    Raises:
        SchemaBehind: they have not run, or what they made is gone.
    """
    memories = await describe(connection, table)
    revision = await current_revision(connection, memories)
    if revision is None or revision < SCHEMA_REVISION or memories.embedding_dimensions is None:
        raise SchemaBehind(
            f"Table {memories.schema}.{memories.name} has not been migrated (revision {revision or 'none'}).",
            "Run memory migrate.",
        )
    return memories
