"""Exact BM25 scores of chosen rows, from the lexemes that `search_vector` holds.

Neither how often a word occurs in a tsvector nor how many words there are can be asked for directly, short of
unnesting it, which costs ten times everything else. But `ts_rank` tells both. For one word and equal weights it is
`sum(1/j^2 for j in 1..n) / (pi^2/6)`, which can be inverted; and it can divide by the number of words, so that the
quotient of two calls is that number.

A long tsvector is stored compressed, and every function that is given it would expand it again. The concatenation with
an empty one does so once.

Rows are joined one by one through LATERAL ... LIMIT 1, because the planner, which cannot know how few candidates there
are, would otherwise read the whole table to hash it.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from memory_recall.schema.table import MemoryTable

K1 = 1.2
B = 0.75
# As many of the rarest words there can be are all that a query asks for: no row matches the whole of a prompt.
ENOUGH_RARE_WORDS = 3
_EQUAL_WEIGHTS = "'{1,1,1,1}'::real[]"
_RANK_SCALE = 1.64493406685  # the constant by which Postgres divides: the sum over all j


def frequency(vector: str, word: str) -> str:
    """How often a word occurs in a row; zero where it does not.

    What the sum of 1/j^2 lacks after n terms is 1/(n + 1/2), but for less than 1/(12 n^3): rounding gives n exactly, up
    to the 255 places of a word that Postgres keeps.
    """
    return f"round({1 / _RANK_SCALE} / (1 - ts_rank({_EQUAL_WEIGHTS}, {vector}, {word})::float8) - 0.5)"


def _length(vector: str) -> str:
    """How many words a row holds that matches the query at all; NULL for others, whose score is nothing anyway."""
    plain, divided = (f"ts_rank({_EQUAL_WEIGHTS}, {vector}, a.query, {method})::float8" for method in (0, 2))
    return f"round({plain} / nullif({divided}, 0))"


def damping(length: str, mean: str) -> str:
    """What a word's count is weighed against, in a row of some length."""
    return f"{K1} * ({1 - B} + {B} * {length} / {mean})"


def scored(table: MemoryTable, mean: str, rows: str) -> str:
    """The CTE `scored` of the rows that a query gives, left open for more."""
    return f"""anything AS MATERIALIZED (SELECT string_agg(query::text, ' | ')::tsquery AS query FROM weighted),
scored AS MATERIALIZED (
  SELECT m.id, (SELECT coalesce(sum(w.idf * t.times * {K1 + 1} / (t.times + d.damping)), 0)
                  FROM weighted w, LATERAL (SELECT {frequency("m.search_vector", "w.query")} AS times OFFSET 0) t
               ) AS lexical_score
    FROM ({rows}) s,
         LATERAL (SELECT m.id, m.search_vector || ''::tsvector AS search_vector
                    FROM {table.qualified} m WHERE m.id = s.id LIMIT 1) m,
         LATERAL (SELECT {damping(_length("m.search_vector"), mean)} AS damping FROM anything a OFFSET 0) d"""


def idf(rows: str, holding: str) -> str:
    """The weight of a word that so many of the rows hold (Lucene's BM25, never negative)."""
    return f"ln(1 + (greatest({rows}, {holding}) - {holding} + 0.5) / ({holding} + 0.5))"


def placed(depth: int, rows: str) -> str:
    """The CTEs `lexical(id, lexical_score, lexical_rank)` and `reach(attainable)` over `scored`."""
    return f"""lexical AS MATERIALIZED (
  SELECT id, lexical_score, CASE WHEN lexical_score > 0 AND place <= {depth} THEN place END AS lexical_rank
    FROM (SELECT *, row_number() OVER (ORDER BY lexical_score DESC, id) AS place FROM scored) ranked
),
reach AS (
  SELECT least(sum(idf), {ENOUGH_RARE_WORDS} * {idf(rows, "0::float8")}) AS attainable FROM weighted HAVING count(*) > 0
)"""
