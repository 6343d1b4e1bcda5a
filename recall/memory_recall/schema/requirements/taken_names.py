"""Finds what others have made under names of ours, so that nothing of theirs is taken for ours, changed or dropped.

Our tables, indexes and the standby column are found, built again and dropped by their names. A table of ours is known
by a column that it has, an index by the column that it begins with, and the standby column by the swap that is recorded
to have added it.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

import json
from dataclasses import dataclass

from memory_recall.postgres.catalog_sql import reading_catalog
from memory_recall.postgres.connection import AnyConnection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.columns.names import EMBEDDING, OTHER_EMBEDDING
from memory_recall.schema.graph_relations import CHANGES, CONCEPTS, GRAPH
from memory_recall.schema.requirements.faults import Fault, require_none
from memory_recall.schema.rules.expected import index_columns
from memory_recall.schema.supersessions import SUPERSESSIONS
from memory_recall.schema.table import ACTIVE, STANDBY, MemoryTable, quoted
from memory_recall.schema.truncated import TRUNCATED

_COLUMN_OF_TABLE = {
    "memory_index_state": "column_adopted",
    "memory_index_models": "document_prefix",
    "memory_index_swaps": "from_model",
    ACTIVE.failures: "error_class",
    STANDBY.failures: "error_class",
    TRUNCATED: "model",
    SUPERSESSIONS: "successor_hash",
    GRAPH: "extraction",
    CONCEPTS: "concept",
    CHANGES: "memory_id",
}
_STAGES_WITHOUT_COLUMN = ("finished", "aborted")
_READ = """
SELECT coalesce((SELECT json_agg(given.name) FROM jsonb_to_recordset($1::text::jsonb) AS given(name text, known text)
                  WHERE to_regclass(given.name) IS NOT NULL
                    AND NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = to_regclass(given.name)::oid
                                       AND a.attname = given.known AND NOT a.attisdropped)), '[]')::text AS tables,
       coalesce((SELECT json_agg(given.name)
                   FROM jsonb_to_recordset($2::text::jsonb) AS given(name text, columns text[])
                  WHERE to_regclass(given.name) IS NOT NULL
                    AND NOT EXISTS (SELECT FROM pg_index i
                                      JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
                                     WHERE i.indexrelid = to_regclass(given.name)::oid
                                       AND a.attname = ANY (given.columns))), '[]')::text AS indexes
"""


@dataclass(frozen=True)
class TakenNames:
    """What others have made under names of ours: full names of tables and indexes, quoted for SQL, and a column."""

    tables: frozenset[str]
    indexes: frozenset[str]
    standby_column: bool


def index_parts(table: MemoryTable, index: str) -> list[str]:
    """Return the full names, quoted for SQL, of an index of ours and of its parts in partitions."""
    parts = (f"{quoted(one.schema)}.{quoted(one.index_name(table.name, index))}" for one in table.partitions)
    return [table.in_schema(index), *parts]


async def read_taken_names(connection: AnyConnection, table: MemoryTable) -> TakenNames:
    """Look in the catalog for what has a name of ours and is not ours."""
    tables = [{"name": table.own(name), "known": column} for name, column in _COLUMN_OF_TABLE.items()]
    indexes = [
        {"name": part, "columns": columns}
        for name, columns in index_columns(table).items()
        for part in index_parts(table, name)
    ]
    async with reading_catalog(connection, "looking for names that are taken"):
        row = await connection.fetchrow(_READ, json.dumps(tables), json.dumps(indexes))
    assert row is not None  # noqa: S101  (a SELECT without FROM yields one row)
    others = frozenset(json.loads(row["tables"]))
    standby = table.standby_dimensions is not None and (
        table.own("memory_index_swaps") in others or not await _was_added_by_swap(connection, table)
    )
    return TakenNames(others, frozenset(json.loads(row["indexes"])), standby)


def taken_faults(table: MemoryTable, taken: TakenNames) -> list[Fault]:
    """Return a fault for each thing of others that has a name of ours."""
    faults = [
        Fault(
            f"{name} is not ours, but has the name of a table that migrations make.",
            f"ALTER TABLE {name} RENAME TO another name.",
        )
        for name in sorted(taken.tables)
    ]
    faults += [
        Fault(
            f"{name} is not ours, but has the name of an index that is built for the memories.",
            f"ALTER INDEX {name} RENAME TO another name.",
        )
        for name in sorted(taken.indexes)
    ]
    if taken.standby_column:
        column = table.vector_name(STANDBY)
        faults.append(
            Fault(
                f"Column {column} of {table.qualified} has the name of the column that a swap of models adds, and no "
                "swap has added it.",
                "Rename it, or drop it if it is left from a swap whose record is gone. Or, before the first migration, "
                f"""give our vectors another column: MEMORY_COLUMNS '{{"{EMBEDDING}": "{OTHER_EMBEDDING}"}}' (in a """
                "cluster, spec.database.columns).",
            )
        )
    return faults


async def require_own_names(connection: AnyConnection, table: MemoryTable) -> None:
    """Refuse a table beside which something of others has a name of ours.

    Raises:
        SchemaUnsupported: there is such a thing.
    """
    require_none(taken_faults(table, await read_taken_names(connection, table)))


async def _was_added_by_swap(connection: AnyConnection, table: MemoryTable) -> bool:
    """Return whether the last swap is one during which the standby column exists, or the column is gone by now.

    The end of a swap drops the column in the transaction that records the end, and one snapshot sees both.
    """
    swaps = table.own("memory_index_swaps")
    with translated("looking for the swap that added the standby column"):
        if await connection.fetchval("SELECT to_regclass($1) IS NULL", swaps):
            return False
        found: bool = await connection.fetchval(
            f"SELECT coalesce((SELECT NOT stage = ANY ($1::text[]) FROM {swaps} ORDER BY id DESC LIMIT 1), false) "
            "OR NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass($2)::oid "
            "AND attname::text = $3 AND NOT attisdropped)",
            _STAGES_WITHOUT_COLUMN,
            table.qualified,
            table.vector_name(STANDBY),
        )
    return found
