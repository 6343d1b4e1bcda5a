"""The recall statement in three parts, for large tables: both legs at the same time, then their fusion.

As one statement, both legs run one after the other in one Postgres process. In a large table the legs take so long that
running them at the same time saves more than a second connection and a second round trip cost. The lexical leg usually
takes less time, so it also reads the vectors of the rows that it ranks and computes their cosines. The fusion reads
every row again and leaves out those that meanwhile were deleted, stopped matching a filter or became invisible to the
reader. It also checks again which model is active, and has the graph leg, which starts from the fused order. In
everything else the three parts do what the one statement does, with the same result.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from collections.abc import Sequence
from dataclasses import dataclass

from memory_recall.schema.columns.keys import MemoryId
from memory_recall.schema.table import MemoryTable
from memory_recall.search.result import Degraded
from memory_recall.search.sql.bm25 import own_words
from memory_recall.search.sql.bm25_scoring import counted_rows, ranked, scored
from memory_recall.search.sql.filters import Arguments
from memory_recall.search.sql.plan import DenseLeg, RecallPlan
from memory_recall.search.sql.statement import (
    Statement,
    cosine_similarity,
    dense_leg,
    gate,
    lexical_leg,
    no_dense_leg,
    ordered,
    page,
    pool,
    query_vector,
    searched_rows,
)
from memory_recall.search.sql.visibility import SearchedRows

WORTH_SPLITTING = 100_000  # rows; with 5,000 the second round trip takes as long as the shorter leg


@dataclass(frozen=True, slots=True)
class DenseRows:
    """The ids that the dense leg found, nearest first, and their cosines.

    `open` is False if another model is active.
    """

    open: bool
    ids: list[MemoryId]
    scores: list[float]


@dataclass(frozen=True, slots=True)
class LexicalRows:
    """The rows that the lexical leg found, and the query's terms (each a tsquery) with their weights.

    `open` is False if another model is active. If it is True, each ranked row that has a vector also has a cosine.
    `own` says which terms are the query's own; it is empty if there are no further words.
    """

    open: bool
    ids: list[MemoryId]
    scores: list[float]
    cosines: list[float | None]
    terms: list[str]
    weights: list[float]
    own: Sequence[bool] = ()


def is_worth_splitting(plan: RecallPlan) -> bool:
    """Return whether the legs of this recall take so long that running them on two connections saves time."""
    large = plan.statistics is not None and plan.statistics.rows >= WORTH_SPLITTING
    return large and plan.dense is not None and plan.query.mode == "hybrid" and not plan.lexical_is_final


def dense_statement(plan: RecallPlan) -> Statement:
    """Return the statement of the dense leg alone; it returns one row with the fields of `DenseRows`."""
    arguments = Arguments()
    rows = searched_rows(plan, arguments)
    vector, ids = query_vector(_dense_of(plan), arguments, plan.table), plan.table.key.shown("id")
    return (
        f"""WITH {gate(plan, arguments)},{dense_leg(plan, rows.searched, vector)}
SELECT (SELECT open FROM gate) AS open, coalesce(array_agg({ids} ORDER BY dense_rank), '{{}}') AS ids,
       coalesce(array_agg(dense_score ORDER BY dense_rank), '{{}}') AS scores
  FROM dense""",
        arguments.values,
    )


def lexical_statement(plan: RecallPlan) -> Statement:
    """Return the statement of the lexical leg alone; it returns one row with the fields of `LexicalRows`."""
    arguments, table, dense = Arguments(), plan.table, _dense_of(plan)
    rows = searched_rows(plan, arguments)
    cosine = cosine_similarity(dense, table, query_vector(dense, arguments, table))
    own = ""
    if plan.further is not None:
        own = """,
       coalesce((SELECT array_agg(own ORDER BY n) FROM weighted), '{}') AS own"""
    near = f"SELECT {cosine} FROM {table.qualified} m WHERE {table.row('m').id} = l.id AND {rows.searched} LIMIT 1"
    return (
        f"""WITH {gate(plan, arguments)},{no_dense_leg(table)},{lexical_leg(plan, arguments, rows)},
lexical_with_cosine AS (
  SELECT id, lexical_score, CASE WHEN lexical_rank IS NOT NULL AND (SELECT open FROM gate) THEN ({near}) END AS cosine
    FROM lexical l
)
SELECT (SELECT open FROM gate) AS open, coalesce(array_agg({table.key.shown("id")}), '{{}}') AS ids,
       coalesce(array_agg(lexical_score), '{{}}') AS scores, coalesce(array_agg(cosine), '{{}}') AS cosines,
       coalesce((SELECT array_agg(query::text ORDER BY n) FROM weighted), '{{}}') AS terms,
       coalesce((SELECT array_agg(idf ORDER BY n) FROM weighted), '{{}}') AS weights{own}
  FROM lexical_with_cosine""",
        arguments.values,
    )


def fusion_statement(plan: RecallPlan, dense: DenseRows, lexical: LexicalRows) -> Statement:
    """Return the statement that fuses both legs and selects the page.

    The dense leg is left out if `open` is False in the rows of either leg.
    """
    plan = plan if dense.open and lexical.open else plan.without_dense(Degraded.MODEL_MISMATCH)
    arguments = Arguments()
    rows = searched_rows(plan, arguments)
    vector = query_vector(_dense_of(plan), arguments, plan.table) if plan.has_graph_leg else ""
    cosines = " UNION ALL SELECT id, NULL, NULL, NULL, cosine FROM given WHERE (SELECT open FROM gate)"
    parts = [
        gate(plan, arguments),
        _given_dense(plan.table, dense, arguments),
        _given_lexical(plan, arguments, rows, lexical),
        pool(plan, arguments, rows, "f.dense_score", extra_scores_sql=cosines),
        ordered(plan, arguments, rows, vector),
    ]
    return f"WITH {','.join(parts)}{page(plan, rows)}", arguments.values


def _dense_of(plan: RecallPlan) -> DenseLeg:
    assert plan.dense is not None  # noqa: S101  (see is_worth_splitting)
    return plan.dense


def _given_dense(table: MemoryTable, found: DenseRows, arguments: Arguments) -> str:
    ids, scores = arguments.add(found.ids, f"{table.key.stored}[]"), arguments.add(found.scores, "float8[]")
    return f"""
dense AS MATERIALIZED (
  SELECT id, dense_rank, dense_score FROM unnest({ids}, {scores}) WITH ORDINALITY AS d(id, dense_score, dense_rank)
   WHERE (SELECT open FROM gate)
)"""


def _given_lexical(plan: RecallPlan, arguments: Arguments, searched: SearchedRows, found: LexicalRows) -> str:
    """Return the lexical leg's CTEs, made from the rows and scores that its own statement has returned.

    Only the rows that the dense leg alone found still have to be scored.
    """
    assert plan.statistics is not None  # noqa: S101  (see is_worth_splitting)
    table = plan.table
    collection, rows = counted_rows(table, searched, arguments.add(float(plan.statistics.rows), "float8"))
    mean = arguments.add(max(plan.statistics.mean_length, 1.0), "float8")
    terms, weights = arguments.add(found.terms, "text[]"), arguments.add(found.weights, "float8[]")
    ids, scores = arguments.add(found.ids, f"{table.key.stored}[]"), arguments.add(found.scores, "float8[]")
    cosines = arguments.add(found.cosines, "float8[]")
    lists, names = f"{terms}, {weights}", "query, idf"
    if plan.further is not None:
        lists, names = f"{lists}, {arguments.add(list(found.own), 'boolean[]')}", f"{names}, own"
    columns = names.replace("query", "query::tsquery AS query")
    return f"""{collection}
weighted AS MATERIALIZED (SELECT {columns} FROM unnest({lists}) AS w({names})),
given AS MATERIALIZED (
  SELECT id, lexical_score, cosine FROM unnest({ids}, {scores}, {cosines}) AS g(id, lexical_score, cosine)
),
{scored(table, searched, mean, "SELECT id FROM dense EXCEPT SELECT id FROM given")}
   UNION ALL SELECT id, lexical_score FROM given
),
{ranked(plan.depth, rows, own_words=own_words(plan.further))}"""
