"""The HNSW index over the embedding column: its name and definition, and how it is found and watched in the catalog."""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from dataclasses import dataclass

from memory_recall.postgres.catalog_sql import reading_catalog
from memory_recall.postgres.connection import AnyConnection, Connection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.names import LONGEST_NAME, index_name
from memory_recall.schema.table import ACTIVE, MemoryTable, VectorColumn, quoted

DEFAULT_M, DEFAULT_EF_CONSTRUCTION = 24, 128  # ADR 17
_PGVECTORS_M, _PGVECTORS_EF = 16, 64  # of an index whose definition names none


@dataclass(frozen=True)
class IndexProgress:
    """The progress of a running build, as Postgres reports it."""

    phase: str
    fraction: float | None


@dataclass(frozen=True)
class IndexFacts:
    """The HNSW index over the embedding column, if there is one, and the progress of a running build.

    If `ours` is False, another program created the index, and we never change it.
    """

    name: str | None
    exists: bool
    valid: bool
    progress: IndexProgress | None
    ours: bool = False
    m: int | None = None
    ef_construction: int | None = None

    def differs(self, m: int, ef_construction: int) -> bool:
        """Whether our index is valid but was built with other parameters than `m` and `ef_construction`."""
        return self.valid and self.ours and (self.m, self.ef_construction) != (m, ef_construction)


def hnsw_name(table: MemoryTable, column: VectorColumn = ACTIVE) -> str:
    """Return the name under which we build the index over a column."""
    return index_name(table.name, column.purpose)


def hnsw_definition(table: MemoryTable, m: int, ef_construction: int, column: VectorColumn = ACTIVE) -> str:
    """Return the part of CREATE INDEX that follows the index's name."""
    operators = f"{quoted(table.vector_schema or 'public')}.halfvec_cosine_ops"
    vector = f"{table.vector_name(column)} {operators}"
    return f"ON {table.qualified} USING hnsw ({vector}) WITH (m = {m}, ef_construction = {ef_construction})"


def find_statement(table: MemoryTable, *, valid_only: bool = True, column: VectorColumn = ACTIVE) -> str:
    """Return SQL that finds a cosine HNSW index over all rows of the column; our own index comes before any other."""
    relation = table.qualified.replace("'", "''")
    validity = "AND i.indisvalid AND i.indisready" if valid_only else ""
    ours, vector = hnsw_name(table, column).replace("'", "''"), table.vector_name(column)
    return f"""
        SELECT c.relname AS name, i.indisvalid AND i.indisready AS valid, i.indexrelid AS oid,
               {_option("m", _PGVECTORS_M)} AS m, {_option("ef_construction", _PGVECTORS_EF)} AS ef_construction
          FROM pg_index i
          JOIN pg_class c ON c.oid = i.indexrelid
          JOIN pg_am am ON am.oid = c.relam
          JOIN pg_opclass oc ON oc.oid = i.indclass[0]
          JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
         WHERE i.indrelid = to_regclass('{relation}')::oid AND i.indpred IS NULL AND a.attname = '{vector}'
           AND am.amname = 'hnsw' AND oc.opcname = 'halfvec_cosine_ops' {validity}
         ORDER BY (i.indisvalid AND i.indisready) DESC, (c.relname = '{ours}') DESC
         LIMIT 1
    """


def _option(name: str, default: int) -> str:
    return (
        f"coalesce((SELECT o.option_value::int FROM pg_options_to_table(c.reloptions) o "
        f"WHERE o.option_name = '{name}'), {default})"
    )


_PROGRESS = """
SELECT phase, CASE WHEN tuples_total > 0 THEN tuples_done::float8 / tuples_total
                   WHEN blocks_total > 0 THEN blocks_done::float8 / blocks_total END AS fraction
  FROM pg_stat_progress_create_index
 WHERE relid = to_regclass($1) OR relid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = to_regclass($1))
 ORDER BY pid LIMIT 1
"""


async def inspect_index(connection: AnyConnection, table: MemoryTable, column: VectorColumn = ACTIVE) -> IndexFacts:
    """Read from the catalog the HNSW index, whether it is valid, and the progress of a running build.

    The index of a partitioned table is valid once every partition has its part of it.
    """
    async with reading_catalog(connection, "looking at the vector index"):
        found = await connection.fetchrow(find_statement(table, valid_only=False, column=column))
        progress = await connection.fetchrow(_PROGRESS, table.qualified)
    return IndexFacts(
        name=found["name"] if found else None,
        exists=found is not None,
        valid=bool(found and found["valid"]),
        progress=IndexProgress(progress["phase"], progress["fraction"]) if progress else None,
        ours=bool(found and found["name"] == hnsw_name(table, column)),
        m=found["m"] if found else None,
        ef_construction=found["ef_construction"] if found else None,
    )


# The end of a name that REINDEX CONCURRENTLY has made from another; it cuts the other to make room.
_OF_REINDEX = "coalesce(substring(c.relname FROM '_cc(?:new|old)[0-9]*$'), '')"


async def drop_invalid(connection: Connection, table: MemoryTable, column: VectorColumn = ACTIVE) -> list[str]:
    """Drop the invalid indexes that interrupted builds and REINDEX left under our index's name; return their names.

    The index of a partitioned table is not dropped while parts of it are missing, since the next build adds them. In
    its partitions, only invalid parts are dropped that are not attached.
    """
    index = hnsw_name(table, column)
    places = [(one.schema, one.name, one.index_name(table.name, index)) for one in table.partitions]
    if not table.is_partitioned:
        places = [(table.schema, table.name, index)]
    names = []
    with translated("dropping invalid indexes"):
        for schema, relation, ours in places:
            rows = await connection.fetch(
                "SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
                "WHERE i.indrelid = to_regclass($1)::oid AND NOT i.indisvalid AND NOT c.relispartition "
                f"AND c.relname = left($2, {LONGEST_NAME} - length({_OF_REINDEX})) || {_OF_REINDEX}",
                f"{quoted(schema)}.{quoted(relation)}",
                ours,
            )
            for row in rows:
                names.append(row["relname"])
                await connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {quoted(schema)}.{quoted(names[-1])}")
    return names
