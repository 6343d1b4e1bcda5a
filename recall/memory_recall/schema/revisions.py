"""Reads the schema revision of a table. It is separate from migrate.py because reading must not import Alembic."""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from memory_recall.errors import SchemaBehind
from memory_recall.postgres.connection import AnyConnection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.names import own_suffix
from memory_recall.schema.requirements.faults import require_none
from memory_recall.schema.requirements.reading import table_faults
from memory_recall.schema.rules.differences import describe_differences, has_own_tables
from memory_recall.schema.table import MemoryTable, describe

HEAD_REVISION = "0002"


def version_table(table: MemoryTable) -> str:
    """Return the unquoted name of the table's own version table."""
    return f"memory_index_alembic_version{own_suffix(table.name)}"


async def current_revision(connection: AnyConnection, table: MemoryTable) -> str | None:
    """Return the table's schema revision, or None before its first migration."""
    relation = table.in_schema(version_table(table))
    with translated("reading the schema revision"):
        if await connection.fetchval("SELECT to_regclass($1)", relation) is None:
            return None
        revision: str | None = await connection.fetchval(f"SELECT version_num FROM {relation}")
    return revision


async def require_schema(connection: AnyConnection, table: str) -> MemoryTable:
    """Return the table of memories, provided that all migrations have run and its rules are still in place.

    Everything that writes vectors calls this first.

    Raises:
        SchemaBehind: migrations have not run, or tables or rules that they made are missing or changed; the message
            says which.
        SchemaUnsupported: triggers or indexes do not reach all rows of the relation, its ids are not kept unique, or
            row-level security hides rows from the role.
    """
    memories = await describe(connection, table)
    require_none(await table_faults(connection, memories))
    where, remedy = f"{memories.schema}.{memories.name}", "Run memory migrate."
    revision = await current_revision(connection, memories)
    if revision is None or revision < HEAD_REVISION:
        raise SchemaBehind(f"Table {where} is at revision {revision or 'none'}, not {HEAD_REVISION}.", remedy)
    if not await has_own_tables(connection, memories):
        raise SchemaBehind(f"What the migrations of table {where} made is gone.", remedy)
    if differing := await describe_differences(connection, memories):
        raise SchemaBehind(f"The rules of table {where} are not what they must be: {differing}.", remedy)
    return memories
