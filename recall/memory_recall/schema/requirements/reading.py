"""Reads from the catalog what the requirements on a table are decided by."""
# ruff: noqa: S608  (statements are put together from our own expressions; values are bound)

import json
from collections.abc import Sequence
from typing import Any

from memory_recall.postgres.catalog_sql import reading_catalog
from memory_recall.postgres.connection import AnyConnection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.columns.used import Need
from memory_recall.schema.graph_relations import GRAPH_TABLES
from memory_recall.schema.requirements.faults import Fault, require_none
from memory_recall.schema.requirements.publications import publication_faults, read_unidentified
from memory_recall.schema.requirements.row_security import hides_rows, row_security_faults
from memory_recall.schema.requirements.server_version import server_faults
from memory_recall.schema.requirements.unique_ids import IdIndex, id_faults, read_id_indexes
from memory_recall.schema.requirements.used_columns import column_faults, shape_faults
from memory_recall.schema.supersessions import SUPERSESSIONS
from memory_recall.schema.table import ACTIVE, STANDBY, MemoryTable, quoted
from memory_recall.schema.truncated import TRUNCATED

_OWN_TABLES = ("memory_index_state", "memory_index_models", ACTIVE.failures, STANDBY.failures, TRUNCATED, SUPERSESSIONS)


async def table_faults(connection: AnyConnection, table: MemoryTable) -> list[Fault]:
    """Return what is wrong with a server and a table for those who write vectors; the table need not exist."""
    of_server = server_faults(connection.get_server_version().major)
    row = await _read(connection, table, f"{read_id_indexes(table)}, {read_unidentified()}", writes=True)
    if row is None:
        return of_server + await _place_faults(connection, table)
    indexes = IdIndex.all_from_json(row["id_indexes"])
    has_ids = table.kind == "r" and "id" in table.columns
    ids = id_faults(table.qualified, indexes, table.row().id) if has_ids else []
    published = publication_faults(json.loads(row["unidentified"]))
    of_table = [*shape_faults(table), *column_faults(table, Need.ALWAYS), *ids, *published]
    return [*of_server, *of_table, *_hidden(table, row, writes=True)]


async def require_every_row(connection: AnyConnection, table: MemoryTable, *, writes: bool = False) -> None:
    """Refuse to read a table of which the role is not shown every row; with `writes`, to write to it, too.

    Raises:
        SchemaUnsupported: row-level security hides rows from the role.
    """
    row = await _read(connection, table, "NULL AS id_indexes", writes=writes)
    if row is not None:
        require_none(_hidden(table, row, writes=writes))


async def has_row_security(connection: AnyConnection, table: MemoryTable) -> bool:
    """Return whether row-level security is enabled on the table, whichever role it applies to."""
    with translated("looking at the table of memories"):
        enabled: bool = await connection.fetchval(
            "SELECT coalesce((SELECT relrowsecurity FROM pg_class WHERE oid = to_regclass($1)::oid), false)",
            table.qualified,
        )
    return enabled


async def _place_faults(connection: AnyConnection, table: MemoryTable) -> list[Fault]:
    """Return why a table that does not exist could not be created where its name says."""
    async with reading_catalog(connection, "looking for the schema of the table of memories"):
        exists = await connection.fetchval("SELECT to_regnamespace($1) IS NOT NULL", quoted(table.schema))
    if exists:
        return []
    return [
        Fault(
            f"There is no schema {quoted(table.schema)} for a table {quoted(table.name)}; the dot in "
            f"{table.schema}.{table.name} ends the name of a schema.",
            "Create the schema, owned by the role that migrates, or name the table otherwise with MEMORY_TABLE, in a "
            "cluster spec.database.table; a table's own name has no dot.",
        )
    ]


def _hidden(table: MemoryTable, row: Any, *, writes: bool) -> list[Fault]:  # noqa: ANN401  (a record of any driver)
    hidden: Sequence[str] = json.loads(row["hidden"])
    return row_security_faults(table, row["role"], hidden, writes=writes)


async def _read(connection: AnyConnection, table: MemoryTable, more: str, *, writes: bool) -> Any:  # noqa: ANN401  (as above)
    own = [table.own(name) for name in (*_OWN_TABLES, *GRAPH_TABLES)]
    async with reading_catalog(connection, "looking at the table of memories"):
        return await connection.fetchrow(
            "SELECT current_user::text AS role, (SELECT coalesce(json_agg(name ORDER BY place), '[]') "
            "FROM jsonb_array_elements_text($1::text::jsonb) WITH ORDINALITY AS given(name, place) "
            f"WHERE CASE WHEN place = 1 THEN {hides_rows('to_regclass(name)', writes=writes)} "
            f"ELSE {hides_rows('to_regclass(name)', writes=False)} END)::text AS hidden, {more} "
            "FROM pg_class c WHERE c.oid = to_regclass($2)",
            json.dumps([table.qualified, *own]),
            table.qualified,
        )
