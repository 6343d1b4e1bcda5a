"""SQL that leaves near-copies of a memory out of a page, so that copies of one fact do not fill it.

A memory is a copy if its vector is nearly that of a memory placed before it, or its content is the same. The number of
places that are compared is bounded, since each is compared with all before it.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from memory_recall.schema.table import MemoryTable, quoted
from memory_recall.search.query import RecallQuery
from memory_recall.search.sql.plan import RecallPlan
from memory_recall.search.sql.visibility import SearchedRows, row_again

COPY_COSINE = 0.96
"""The least cosine of copies, which no two different facts of examples/homelab reach with any of the three models."""

_FEWEST_COMPARED, _MOST_COMPARED = 50, 200


def compared_places(query: RecallQuery) -> int:
    """Return how many of the first places are compared: four times as many as the page needs, from 50 to 200."""
    wanted = 4 * (query.limit + query.offset)
    return min(max(_FEWEST_COMPARED, wanted), _MOST_COMPARED)


def copies(plan: RecallPlan, rows: SearchedRows) -> str:
    """Return the CTE `copies(place)` after a comma: the places of the CTE `ordered` that hold a copy.

    Sensitive rows are neither copies nor copied. Vectors are compared only if the dense leg takes part.
    """
    table, m = plan.table, plan.table.row("m")
    vector, near = "NULL", ""
    if plan.dense is not None:
        operator = f"OPERATOR({_vector_schema(table)}.<=>)"
        # Of long vectors and texts a row holds only where they are kept; both expressions read them once.
        normalized = f"{_vector_schema(table)}.l2_normalize({m.vector(plan.dense.column)})"
        vector = f"CASE WHEN (SELECT open FROM gate) THEN {normalized} END"
        near = f"(earlier.vector {operator} later.vector) <= {1 - COPY_COSINE:.2f} OR "  # false for NaN
    return f""",
compared AS MATERIALIZED (
  SELECT o.place, {vector} AS vector, {m.optional("content")} || '' AS body
    FROM (SELECT id, place FROM ordered ORDER BY place LIMIT {compared_places(plan.query)}) o,
         {row_again(table, "o.id", rows)}
   WHERE NOT {table.sensitive("m")}
),
copies AS MATERIALIZED (
  SELECT DISTINCT later.place
    FROM compared later JOIN compared earlier ON earlier.place < later.place
   WHERE {near}earlier.body = later.body
)"""


def _vector_schema(table: MemoryTable) -> str:
    return quoted(table.vector_schema or "public")
