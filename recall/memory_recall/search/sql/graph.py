"""SQL for the graph leg of a recall: memories that share concepts with the first ones of the fused order (ADR 26).

A question whose answer needs two memories often quotes one of them only. The leg starts from the first five memories of
the order that the lexical and the dense leg give, weighted by their scores. Each passes its weight on to its concepts,
in proportion to their rarity, and each concept to all memories that have it, in equal parts. What would return to a
memory from itself is left out. The fifty that receive most join the order, with their own cosines and lexical scores on
the scale of the candidates of the two legs, plus a share of what they received. Filters and visibility apply to them as
to the rows of every leg. The first five keep their places and scores, and no score exceeds that of a memory before it.

A concept counts if at least two memories have it, and at most a tenth of the table's rows, or five in a small table and
a hundred in a large one. It is a number, and it belongs to one owner, so the leg never leads from one user's memories
to another's.

The work is bounded: of each of the five memories at most 200 concepts are followed, of each concept at most 101 index
entries are read, and at most 500 of the rows that were reached are looked up until fifty pass the filters.

A query that says more than a memory can match, such as a whole prompt, has no graph leg, because the graph would lead
on from whatever the prompt begins with. It is known by the lexical score by which fusion divides: it is at most half of
the score that a memory with every word of the query would have.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from memory_recall.graph.definition import EXTRACTION, differences
from memory_recall.postgres.connection import AnyConnection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.columns.moments import moment
from memory_recall.schema.graph_relations import CONCEPTS, GRAPH
from memory_recall.schema.table import MemoryTable
from memory_recall.search.fusion import GRAPH_KEPT, GRAPH_STARTS, GRAPH_WEIGHT
from memory_recall.search.sql.bm25 import own_words
from memory_recall.search.sql.bm25_scoring import exact_scores
from memory_recall.search.sql.expressions import bounded
from memory_recall.search.sql.filters import Arguments
from memory_recall.search.sql.fusion import closeness, convex, prior_factor
from memory_recall.search.sql.plan import RecallPlan
from memory_recall.search.sql.supersession import NEWEST_FIRST, SUPERSEDED, successors
from memory_recall.search.sql.visibility import SearchedRows, row_again

FEWEST, ALWAYS_ALLOWED, MOST = 2, 5, 100  # memories that have a concept
COMMON_SHARE = 0.1  # of the rows, which a concept may have at most
_BRIEF = 0.5
_DEPTH = 50
_CONCEPTS_FOLLOWED = 200
_LOOKED_UP = 500
_CANDIDATE = "id, importance, lexical_rank, lexical_score, dense_rank, dense_score"


async def graph_is_filled(connection: AnyConnection, table: MemoryTable) -> bool:
    """Return whether the table's concept graph was filled once, follows its rules, and may be read by the role."""
    graph, concepts = table.own(GRAPH), table.own(CONCEPTS)
    with translated("looking for the concept graph"):
        readable = await connection.fetchval(
            "SELECT has_table_privilege(to_regclass($1), 'SELECT') AND has_table_privilege(to_regclass($2), 'SELECT')",
            graph,
            concepts,
        )
        if not readable:
            return False
        filled = await connection.fetchval(
            f"SELECT EXISTS (SELECT FROM {graph} WHERE filled_at IS NOT NULL AND extraction = $1)", EXTRACTION
        )
    return bool(filled) and not await differences(connection, table)


def most_memories(rows: int) -> int:
    """Return how many memories may have a concept that counts, in a table of so many rows."""
    return min(MOST, max(ALWAYS_ALLOWED, int(COMMON_SHARE * rows)))


def graph_leg(plan: RecallPlan, arguments: Arguments, rows: SearchedRows, cosine: str) -> str:
    """Return the CTEs of the graph leg, which end in `ordered`, with the column `graph_score`.

    They read the CTEs `weighted`, `anything`, `lexical`, `reach`, `pool` and `bounded`, and the order of the two legs
    in the CTE `fused`. `cosine` is SQL for the cosine similarity of the row `m` and the query's vector.
    """
    assert plan.statistics is not None  # noqa: S101  (see RecallPlan.has_graph_leg)
    table_rows = arguments.add(float(plan.statistics.rows), "float8")
    mean = arguments.add(max(plan.statistics.mean_length, 1.0), "float8")
    return f"""{_reached(plan, rows, table_rows, most_memories(plan.statistics.rows))},
{_added(plan, arguments, rows, cosine, mean)},
{_ordered(plan, arguments)}"""


def _reached(plan: RecallPlan, rows: SearchedRows, table_rows: str, most: int) -> str:
    """Return the CTEs that end in `graph(id, graph_score)`: at most fifty rows, of which the best scores one.

    What a memory receives is added up in the order of the starts and their concepts, so that a recall and the reference
    in Python break ties alike. To sort in the aggregate, `sum(score ORDER BY ...)`, would sort up to 10,000 rows; here
    some hundred are sorted before they are unnested. Postgres keeps that order as long as it hashes the groups, and if
    it sorts them, the last bit of a sum may differ.
    """
    table, words = plan.table, own_words(plan.further)
    concepts, reached = table.own(CONCEPTS), f"{table.row('m').id} = r.id AND {rows.searched}"
    of_memory = "PARTITION BY f.id ORDER BY f.concept ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
    return f"""
starts AS MATERIALIZED (
  SELECT id, score FROM fused
   WHERE place <= {GRAPH_STARTS} AND score > 0 AND dense_rows > 0
     AND coalesce((SELECT max_lexical_score FROM reach) > {_BRIEF} * (SELECT sum(idf) FROM {words}), true)
),
followed AS MATERIALIZED (
  SELECT s.id, s.score, c.concept
    FROM starts s CROSS JOIN LATERAL (SELECT concept FROM {concepts} WHERE memory_id = s.id
                                       ORDER BY concept LIMIT {_CONCEPTS_FOLLOWED}) c
),
shared AS MATERIALIZED (
  SELECT concept, memories, times, ln(greatest({table_rows}, times) / times) AS rarity
    FROM (SELECT concept, memories, cardinality(memories)::float8 AS times
            FROM (SELECT f.concept, ARRAY(SELECT c.memory_id FROM {concepts} c WHERE c.concept = f.concept
                                           LIMIT {most + 1}) AS memories
                    FROM (SELECT DISTINCT concept FROM followed ORDER BY concept) f OFFSET 0) read_once) every
   WHERE times BETWEEN {FEWEST} AND {most}
),
passed AS MATERIALIZED (
  SELECT f.id, f.concept, s.memories,
         f.score * (s.rarity / nullif(sum(s.rarity) OVER ({of_memory}), 0::float8)) / s.times AS score
    FROM followed f JOIN shared s ON s.concept = f.concept
),
received AS (
  SELECT id, sum(score) AS score
    FROM (SELECT unnest(p.memories) AS id, p.id AS source, p.score FROM passed p WHERE p.score > 0
           ORDER BY p.id, p.concept) parts
   WHERE id <> source GROUP BY id
),
graph AS MATERIALIZED (
  SELECT id, score / max(score) OVER () AS graph_score
    FROM (SELECT r.id, r.score
            FROM (SELECT * FROM received ORDER BY score DESC, id LIMIT {_LOOKED_UP}) r
           CROSS JOIN LATERAL (SELECT FROM {table.qualified} m WHERE {reached} LIMIT 1) m
           ORDER BY r.score DESC, r.id LIMIT {_DEPTH}) best
)"""


def _added(plan: RecallPlan, arguments: Arguments, rows: SearchedRows, cosine: str, mean: str) -> str:
    """Return the CTE `added` of the reached rows that no other leg found, with the columns of the CTE `pool`."""
    m, created = plan.table.row("m"), moment(plan.table, "created_at")
    timed = f", {closeness(plan.period, arguments, created)} AS closeness" if plan.period else ""
    successor, join, chains = "", "", ""
    if plan.superseding:
        chains = f",{successors(plan.table, rows.user, name='graph_successors', rows='graph')}"
        successor, join = ", c.successor, c.hops", " LEFT JOIN graph_successors c ON c.id = g.id"
    return f"""graph_scored AS MATERIALIZED (
{exact_scores(plan.table, rows, mean, "SELECT id FROM graph EXCEPT SELECT id FROM lexical")}
){chains},
added AS MATERIALIZED (
  SELECT g.id, {bounded(m.optional("importance"))} AS importance, NULL::bigint AS lexical_rank,
         coalesce(l.lexical_score, s.lexical_score) AS lexical_score, NULL::bigint AS dense_rank,
         {cosine} AS dense_score{timed}{successor}
    FROM graph g LEFT JOIN lexical l ON l.id = g.id LEFT JOIN graph_scored s ON s.id = g.id{join},
         {row_again(plan.table, "g.id", rows)}
   WHERE NOT EXISTS (SELECT FROM pool p WHERE p.id = g.id)
)"""


def _ordered(plan: RecallPlan, arguments: Arguments) -> str:
    """Return the CTEs that end in `ordered`: the rows of `fused` and `added`, in the order of all three legs.

    A memory that supersedes others takes the best of their scores and places, as in the order of two legs.
    """
    timed = plan.period is not None
    columns = _CANDIDATE + (", closeness" if timed else "") + (", successor, hops" if plan.superseding else "")
    prior = prior_factor(plan.fusion, plan.query.sort_by, timed=timed)
    own = f"CASE WHEN place <= {GRAPH_KEPT} THEN score ELSE own_score END" if plan.superseding else "score"
    kept, total, tie = "own_kept", "own_total", "id"
    if plan.superseding:
        kept = f"least(own_kept, min(own_kept) OVER ({SUPERSEDED}))"
        total = f"greatest(own_total, max(own_total) OVER ({SUPERSEDED}))"
        tie = f"{NEWEST_FIRST}, id"
    return f"""joint AS (
  SELECT {columns}, {own} AS fused_score, CASE WHEN place <= {GRAPH_KEPT} THEN place END AS own_kept FROM fused
   UNION ALL
  SELECT {columns}, ({convex(plan.fusion, arguments)}) * {prior}, NULL
    FROM added, (SELECT max_lexical_score, most_lexical, most_dense, least_dense FROM bounded LIMIT 1) bounds
),
summed AS (
  SELECT joint.*, graph_score,
         fused_score + CASE WHEN own_kept IS NULL THEN coalesce({GRAPH_WEIGHT}::float8 * (graph_score * {prior}), 0)
                            ELSE 0 END AS own_total
    FROM joint LEFT JOIN graph ON graph.id = joint.id
),
ordered AS (
  SELECT *, row_number() OVER best AS place, min(total) OVER best AS score
    FROM (SELECT *, {kept} AS kept, {total} AS total FROM summed) every
  WINDOW best AS (ORDER BY kept, total DESC, {tie})
)"""
