"""The recall statement: both legs, their fusion and the page of results in one round trip.

The CTE `gate` decides inside the same statement whether the dense leg may take part: the table's vectors must have been
made by the model that embedded the query, or comparing them means nothing. It also sets what the HNSW index scan needs,
for this transaction only, so that it holds behind a transaction pooler and on a replica. `gate` is evaluated before the
scan begins, since the scan's one-time filter depends on it.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from dataclasses import dataclass
from typing import Literal

from memory_recall.hnsw.search_effort import DENSE_DEPTH, UNKNOWN_GRAPH, SearchedGraph
from memory_recall.schema.columns import ACTIVE, VectorColumn
from memory_recall.schema.table import MemoryTable
from memory_recall.search.fusion import Fusion, SortBy
from memory_recall.search.period import Period
from memory_recall.search.sql.bm25 import DEFAULT_BUDGET, CollectionStatistics, bm25_leg
from memory_recall.search.sql.filters import Arguments, Filters, conditions
from memory_recall.search.sql.fusion import closeness, fused
from memory_recall.search.sql.ts_rank import ts_rank_leg
from memory_recall.swap.standby_column import COLUMN_MODEL

Lexical = Literal["bm25", "ts_rank"]
Legs = Literal["both", "lexical", "dense"]

# Reading a table of some thousand rows whole takes 40 ms, vector by vector from where long values are kept, which the
# planner takes for free. So each row that a scan gives is put to a test that is nearly free and is taken for dear.
_DEAR = "(SELECT count(*) FROM generate_series(m.id, m.id)) IS NOT NULL"
NOTHING_DENSE = """
dense AS (SELECT NULL::bigint AS id, NULL::bigint AS dense_rank, NULL::float8 AS dense_score WHERE false)"""
# pgvector's 20,000 and 1 end a filtered scan of a million rows after its first round, with .984 of the nearest found.
_FILTERED_SCAN = {"hnsw.max_scan_tuples": "50000", "hnsw.scan_mem_multiplier": "4"}


@dataclass(frozen=True, slots=True)
class DenseQuery:
    """A query vector and the model that it comes from; `model` None skips the comparison.

    `digest` is that of the model's weights where it is known. `names_agree` is for databases that know swaps: there the
    column's model is read from where column names come from, too.
    """

    vector: list[float]
    model: str | None
    iterative_scan: bool = True
    digest: str | None = None
    column: VectorColumn = ACTIVE
    names_agree: bool = False
    graph: SearchedGraph = UNKNOWN_GRAPH


@dataclass(frozen=True, slots=True)
class RecallQuery:
    """Everything that shapes one recall statement."""

    text: str
    legs: Legs
    lexical: Lexical
    fusion: Fusion
    sort_by: SortBy
    filters: Filters
    limit: int
    offset: int = 0
    dense: DenseQuery | None = None
    has_state: bool = False
    statistics: CollectionStatistics | None = None
    budget: int = DEFAULT_BUDGET
    period: Period | None = None

    @property
    def ranked(self) -> bool:
        """Whether scores order the answer, rather than dates."""
        return bool(self.text) and self.sort_by is not SortBy.RECENCY

    @property
    def depth(self) -> int:
        """How deep each leg goes; BM25 as deep without a dense leg, lest importance reorder another set of rows."""
        wanted = self.limit + self.offset
        return wanted if self.api_lexical and self.dense is None else max(DENSE_DEPTH, wanted)

    @property
    def api_lexical(self) -> bool:
        """Whether the lexical leg is the API's, whose order needs nothing more."""
        return self.lexical == "ts_rank" or self.statistics is None or not self.ranked


def statement(query: RecallQuery, table: MemoryTable) -> tuple[str, list[object]]:
    """The SQL text and its arguments."""
    arguments = Arguments()
    where = conditions(query.filters, arguments, table)
    vector = "" if query.dense is None else query_vector(query.dense, arguments, table)
    parts = [
        gate(query, arguments, table),
        dense_leg(query, table, where, vector),
        lexical_leg(query, arguments, table, where),
        pool(query, arguments, table, vector),
        fused(
            query.fusion,
            arguments,
            sort_by=query.sort_by,
            lexical_is_final=query.api_lexical,
            timed=query.period is not None,
        ),
    ]
    return f"WITH {','.join(parts)}{page(table, query.limit, query.offset)}", arguments.values


def query_vector(dense: DenseQuery, arguments: Arguments, table: MemoryTable) -> str:
    """The expression of the query's vector."""
    # An array needs no codec on the connection, which may belong to the API's own pool. As a subquery it is converted
    # once, where a generic plan would convert it for every row.
    return f"(SELECT ({arguments.add(dense.vector, 'real[]')})::{table.vector_type()})"


def gate(query: RecallQuery, arguments: Arguments, table: MemoryTable) -> str:
    """Which model is active, and whether the query's vector may be compared with the rows'."""
    role = query.dense.column.role if query.dense is not None else ACTIVE.role
    state, models = table.own("memory_index_state"), table.own("memory_index_models")
    known = (
        f"SELECT k.id, k.name, k.digest, to_jsonb(k) ->> 'embedder_url' AS url "
        f"FROM {state} s JOIN {models} k ON k.id = s.{role}"
        if query.has_state
        else "SELECT NULL::integer AS id, NULL::text AS name, NULL::text AS digest, NULL::text AS url"
    )
    return f"""gate AS MATERIALIZED (
  SELECT k.name AS active, k.digest AS active_digest, k.url AS active_url, {_opens(query, arguments, table)} AS open
    FROM (VALUES (1)) one LEFT JOIN ({known}) k ON true
)"""


def _opens(query: RecallQuery, arguments: Arguments, table: MemoryTable) -> str:
    """Whether the query's vector may be compared with the column's."""
    if query.dense is None:
        return "false"
    settings = {"hnsw.ef_search": str(query.dense.graph.ef_search(query.depth))}
    if query.dense.iterative_scan and query.filters.selective:
        # Without it the index gives ef_search neighbours and the filters then leave what they leave.
        # Relaxed, because the strict order drops what comes late although it is near; the leg sorts anyway.
        settings |= {"hnsw.iterative_scan": "relaxed_order"} | _FILTERED_SCAN
    elif query.dense.iterative_scan:
        settings["hnsw.iterative_scan"] = "off"
    applied = " AND ".join(f"set_config('{name}', '{value}', true) IS NOT NULL" for name, value in settings.items())
    if query.dense.model is None:
        return applied
    same = [f"k.name IS NOT DISTINCT FROM {arguments.add(query.dense.model, 'text')}"]
    if query.dense.digest is not None:
        same.append(f"coalesce(k.digest = {arguments.add(query.dense.digest, 'text')}, true)")
    if query.dense.names_agree:
        same.append(f"k.id IS NOT DISTINCT FROM {table.own(COLUMN_MODEL)}()")
    return " AND ".join([applied, *same])


def dense_leg(query: RecallQuery, table: MemoryTable, where: str, vector: str) -> str:
    """The CTE `dense(id, dense_rank, dense_score)`: the nearest rows, ranked from one."""
    if query.dense is None:
        return NOTHING_DENSE
    operator = f'OPERATOR("{table.vector_schema}".<=>)'
    column = query.dense.column.name
    narrowed, graph = query.filters.selective, query.dense.graph
    scanned = graph.filtered_depth(query.depth) if narrowed else query.depth
    scan = where if narrowed or not graph.known else f"{where} AND {_DEAR}"
    # `+ 0` keeps the planner from taking the scan's order, which is a relaxed one, for the sorted one.
    return f"""
dense AS MATERIALIZED (
  SELECT id, row_number() OVER (ORDER BY distance + 0, id) AS dense_rank, 1 - distance AS dense_score
    FROM (SELECT m.id, (m.{column} {operator} {vector})::float8 AS distance
            FROM {table.qualified} m
           WHERE (SELECT open FROM gate) AND {scan} AND m.{column} IS NOT NULL
           ORDER BY m.{column} {operator} {vector} LIMIT {scanned}) nearest
   ORDER BY distance + 0, id LIMIT {query.depth}
)"""


def lexical_leg(query: RecallQuery, arguments: Arguments, table: MemoryTable, where: str) -> str:
    """The leg's CTEs, ours or the API's, down to `lexical` and `reach`."""
    if query.legs == "dense" and query.dense is not None:
        return """
lexical AS (SELECT NULL::bigint AS id, NULL::bigint AS lexical_rank, NULL::float8 AS lexical_score WHERE false),
reach AS (SELECT NULL::float8 AS attainable)"""
    if query.api_lexical or query.statistics is None:
        return ts_rank_leg(table, arguments, where, query=query.text, sort_by=query.sort_by, depth=query.depth)
    return bm25_leg(
        table,
        arguments,
        where,
        query=query.text,
        depth=query.depth,
        budget=query.budget,
        statistics=query.statistics,
    )


def pool(query: RecallQuery, arguments: Arguments, table: MemoryTable, vector: str) -> str:
    """The rows that the legs found, with every score that can be computed."""
    computed = "NULL::float8"
    if query.dense is not None:
        computed = f"CASE WHEN (SELECT open FROM gate) THEN {cosine(query.dense, table, vector)} END"
    return pooled(query, arguments, table, f"coalesce(f.dense_score, {computed})")


def cosine(dense: DenseQuery, table: MemoryTable, vector: str) -> str:
    """How close the row `m` is to the query."""
    return f'1 - (m.{dense.column.name} OPERATOR("{table.vector_schema}".<=>) {vector})'


def pooled(
    query: RecallQuery,
    arguments: Arguments,
    table: MemoryTable,
    similarity: str,
    *,
    more: str = "",
    still: str = "true",
) -> str:
    """The CTE `pool` of what the legs gave and `more` knows of these rows; `still` is what must hold of them now."""
    timed = f", {closeness(query.period, arguments, 'm.created_at')} AS closeness" if query.period else ""
    return f"""
joined AS MATERIALIZED (
  SELECT id, max(lexical_rank) AS lexical_rank, max(lexical_score) AS lexical_score, max(dense_rank) AS dense_rank,
         max(dense_score) AS dense_score
    FROM (SELECT id, lexical_rank, lexical_score, NULL::bigint AS dense_rank, NULL::float8 AS dense_score FROM lexical
          UNION ALL
          SELECT id, NULL, NULL, dense_rank, dense_score FROM dense{more}) legs
   GROUP BY id HAVING max(lexical_rank) IS NOT NULL OR max(dense_rank) IS NOT NULL
),
pool AS MATERIALIZED (
  SELECT f.id, coalesce(m.importance, 0)::float8 AS importance, f.lexical_rank, f.lexical_score, f.dense_rank,
         {similarity} AS dense_score{timed}
    FROM joined f, LATERAL (SELECT m.* FROM {table.qualified} m WHERE m.id = f.id AND {still} LIMIT 1) m
)"""


def page(table: MemoryTable, limit: int, offset: int) -> str:
    """The rows of the answer, in order, each with the gate's columns; one row without a memory where there is none."""
    sensitive = table.sensitive("m")
    owner = "m.user_id" if "user_id" in table.columns else "NULL::text"
    # A sensitive row is found by its words, but its words do not leave the database.
    return f"""
SELECT gate.active, gate.active_digest, gate.active_url, gate.open, (SELECT count(*) FROM dense) AS dense_rows, p.*
  FROM gate LEFT JOIN (
    SELECT m.id,
           CASE WHEN {sensitive} THEN '[SENSITIVE - use secret_get(id=' || m.id || ')]' ELSE m.content END AS content,
           m.category, m.tags, m.importance, {sensitive} AS is_sensitive, {owner} AS owner, m.created_at, m.updated_at,
           o.score, o.place, o.lexical_rank, o.lexical_score, o.dense_rank, o.dense_score
      FROM (SELECT * FROM ordered ORDER BY place LIMIT {limit} OFFSET {offset}) o,
           LATERAL (SELECT m.* FROM {table.qualified} m WHERE m.id = o.id LIMIT 1) m) p ON true
 ORDER BY p.place"""
