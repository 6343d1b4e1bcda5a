"""Reads from the catalog whether the dense leg can take part in recalls, and if not, why.

A missing column or type would make the recall statement fail before it starts, so the catalog is read beforehand, and
the result is cached for a short while. The model that the vectors come from is not read here, because it may change at
any moment; the recall statement checks it.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from dataclasses import dataclass

from memory_recall.hnsw.definition import find_statement
from memory_recall.hnsw.search_effort import UNKNOWN_GRAPH, SearchedGraph
from memory_recall.postgres.catalog_sql import reading_catalog
from memory_recall.postgres.connection import AnyConnection
from memory_recall.schema.requirements.reading import require_every_row
from memory_recall.schema.requirements.used_columns import require_searchable
from memory_recall.schema.table import ACTIVE, MemoryTable, VectorColumn, describe
from memory_recall.search.query import EmbeddedQuery
from memory_recall.search.result import Degraded
from memory_recall.search.sql.graph import graph_is_filled
from memory_recall.search.sql.plan import DenseLeg
from memory_recall.search.sql.supersession import any_superseded

_ITERATIVE_SCAN_SINCE = (0, 8)


@dataclass(frozen=True, slots=True)
class Readiness:
    """The table as the catalog describes it, and which of the objects that the dense leg needs exist.

    `rows` is an estimate of the table's rows.
    """

    table: MemoryTable
    rows: float
    extension_version: str | None
    has_state: bool
    has_index: bool
    column: VectorColumn = ACTIVE
    hnsw: SearchedGraph = UNKNOWN_GRAPH
    compiles: bool = False
    keeps_plans: bool = False
    superseding: bool = False
    concept_graph: bool = False

    @property
    def dimensions(self) -> int | None:
        """The dimensions of the column that is searched, or None if there is no such column."""
        return self.table.dimensions(self.column)

    @property
    def iterative_scan(self) -> bool:
        """Whether this version of pgvector can continue an index scan until enough rows match the filters."""
        parts = (self.extension_version or "0").split(".")[:2]
        return tuple(int(part) for part in parts if part.isdecimal() and len(part) < 10) >= _ITERATIVE_SCAN_SINCE

    def refusal(self, *, require_index: bool) -> Degraded | None:
        """Return why the dense leg cannot take part, or None if it can."""
        if self.extension_version is None:
            return Degraded.EXTENSION_MISSING
        if self.dimensions is None or not self.has_state:
            return Degraded.SCHEMA_MISSING
        if require_index and not self.has_index:
            return Degraded.INDEX_MISSING
        return None

    def dense_leg(self, embedded: EmbeddedQuery) -> DenseLeg:
        """Return a dense leg for this query vector, which must have as many dimensions as the column."""
        return DenseLeg(embedded, self.iterative_scan, self.column, self.hnsw)


async def read_readiness(connection: AnyConnection, name: str, column: VectorColumn = ACTIVE) -> Readiness:
    """Read from the catalog the table's columns, its vector index, the tables of models, and pgvector's version.

    It also reads whether any memory is recorded as superseded, and whether the concept graph is filled.

    Raises:
        DatabaseUnreachable: the connection failed.
        SchemaUnsupported: the table lacks a column that every recall needs, or row-level security hides rows from the
            role.
    """
    table = await describe(connection, name)
    require_searchable(table)
    await require_every_row(connection, table)
    async with reading_catalog(connection, "reading the catalog"):
        row = await connection.fetchrow(
            "SELECT index.m, index.ef_construction, index.oid IS NOT NULL AS has_index,"
            " (SELECT extversion FROM pg_extension WHERE extname = 'vector') AS version,"
            " to_regclass($1) IS NOT NULL AND to_regclass($2) IS NOT NULL AS has_state,"
            " pg_jit_available() AS compiles,"
            " current_setting('plan_cache_mode') <> 'force_custom_plan' AS keeps_plans,"
            f" {table.estimated_rows()} AS rows, {table.estimated_rows(largest_partition=True)} AS searched_rows"
            f" FROM (VALUES (1)) one LEFT JOIN ({find_statement(table, column=column)}) index ON true",
            table.own("memory_index_state"),
            table.own("memory_index_models"),
        )
        superseding = await any_superseded(connection, table)
        concept_graph = await graph_is_filled(connection, table)
    assert row is not None  # noqa: S101  (an outer join with one row yields one)
    return Readiness(
        table,
        row["rows"] or 0.0,
        row["version"],
        has_state=row["has_state"],
        has_index=row["has_index"],
        column=column,
        hnsw=SearchedGraph(row["searched_rows"] or 0.0, row["m"] or 0, row["ef_construction"] or 0),
        compiles=row["compiles"],
        keeps_plans=row["keeps_plans"],
        superseding=superseding,
        concept_graph=concept_graph,
    )
