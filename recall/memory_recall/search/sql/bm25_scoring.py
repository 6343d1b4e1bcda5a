"""SQL for exact BM25 scores of chosen rows, from the lexemes that `search_vector` contains.

BM25 needs the frequency of a term in a tsvector and the tsvector's number of words. Reading them directly means to
unnest the tsvector, which costs ten times as much as the rest. Both can be computed from `ts_rank` instead. For a term
that occurs n times, with equal weights, `ts_rank` returns `sum(1/j^2 for j in 1..n) / (pi^2/6)`, from which n can be
computed. On request `ts_rank` divides its result by the number of words, so the quotient of both results is the number
of words.

A long tsvector is stored compressed, and every function would decompress it again. Therefore it is concatenated with an
empty tsvector, which decompresses it once.

Rows are joined one by one through LATERAL ... LIMIT 1, because the planner, which cannot know how few candidates there
are, would otherwise read the whole table to hash it.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from memory_recall.schema.table import MemoryTable
from memory_recall.search.sql.visibility import SearchedRows

K1 = 1.2
B = 0.75
# As many of the rarest terms there can be are all that a query demands: no row matches the whole of a prompt.
ENOUGH_RARE_TERMS = 3
_EQUAL_WEIGHTS = "'{1,1,1,1}'::real[]"
_RANK_SCALE = 1.64493406685  # the constant by which Postgres divides: the sum over all j


def frequency(vector: str, term: str) -> str:
    """Return SQL for how often a term occurs in a tsvector, from 0 to 255.

    For a term that occurs n times, `ts_rank` is proportional to the sum of 1/j^2 for j from 1 to n. This sum falls
    short of its limit by 1/(n + 1/2), with an error below 1/(12 n^3). Therefore rounding gives n exactly, up to the 255
    positions of a term that Postgres keeps.
    """
    return f"round({1 / _RANK_SCALE} / (1 - ts_rank({_EQUAL_WEIGHTS}, {vector}, {term})::float8) - 0.5)"


def _length(vector: str) -> str:
    """Return SQL for a row's number of words. It is NULL for a row that matches no term and therefore scores zero."""
    plain, divided = (f"ts_rank({_EQUAL_WEIGHTS}, {vector}, a.query, {method})::float8" for method in (0, 2))
    return f"round({plain} / nullif({divided}, 0))"


def damping(length: str, mean: str) -> str:
    """Return SQL for BM25's length normalisation, an addend to a term's frequency in the score's denominator."""
    return f"{K1} * ({1 - B} + {B} * {length} / {mean})"


def counted_rows(table: MemoryTable, searched: SearchedRows, everybody: str) -> tuple[str, str]:
    """Return a CTE, or "", and SQL for the number of rows among which terms are counted.

    `everybody` is SQL for the number of all rows. A search in one user's memories counts terms in their partition, if
    the table is partitioned by user: then it is the partition's number of rows by Postgres's last estimate.
    """
    if searched.user is None or not table.partitioned_by_user:
        return "", everybody
    owner = table.row("m").column("user_id")
    cte = f"""
collection AS MATERIALIZED (
  SELECT least(coalesce((SELECT nullif(greatest(c.reltuples, 0), 0)::float8 FROM pg_class c
                          WHERE c.oid = (SELECT m.tableoid FROM {table.qualified} m
                                          WHERE {owner} = {searched.user} LIMIT 1)), {everybody}),
               {everybody}) AS rows
),"""
    return cte, "(SELECT rows FROM collection)"


def scored(table: MemoryTable, searched: SearchedRows, mean: str, rows: str) -> str:
    """Return the CTE `scored(id, lexical_score)` for the rows whose ids the subquery `rows` returns.

    The caller writes the closing parenthesis, after any further rows that it appends.
    """
    return f"""anything AS MATERIALIZED (SELECT string_agg(query::text, ' | ')::tsquery AS query FROM weighted),
scored AS MATERIALIZED (
{exact_scores(table, searched, mean, rows)}"""


def exact_scores(table: MemoryTable, searched: SearchedRows, mean: str, rows: str) -> str:
    """Return a query for `id` and `lexical_score` of the rows whose ids the subquery `rows` returns.

    It reads the CTE `weighted` and the CTE `anything`, which `scored` makes.
    """
    m = table.row("m")
    return f"""  SELECT r.id, (SELECT coalesce(sum(w.idf * t.times * {K1 + 1} / (t.times + d.damping)), 0)
                  FROM weighted w, LATERAL (SELECT {frequency("r.words", "w.query")} AS times OFFSET 0) t
               ) AS lexical_score
    FROM ({rows}) s,
         LATERAL (SELECT {m.id} AS id, {m.search_vector} || ''::tsvector AS words
                    FROM {table.qualified} m WHERE {m.id} = s.id AND {searched.searched} LIMIT 1) r,
         LATERAL (SELECT {damping(_length("r.words"), mean)} AS damping FROM anything a OFFSET 0) d"""


def idf(rows: str, df: str) -> str:
    """Return SQL for the inverse document frequency (Lucene's, never negative) of a term that `df` rows contain."""
    return f"ln(1 + (greatest({rows}, {df}) - {df} + 0.5) / ({df} + 0.5))"


def ranked(depth: int, rows: str, *, own_words: str = "weighted") -> str:
    """Return the CTEs `lexical(id, lexical_score, lexical_rank)` and `reach(max_lexical_score)`, from `scored`.

    `max_lexical_score` is the score that a row of mean length with every term of the query would have. `own_words` says
    which rows of the CTE `weighted` are terms of the query.
    """
    return f"""lexical AS MATERIALIZED (
  SELECT id, lexical_score, CASE WHEN lexical_score > 0 AND place <= {depth} THEN place END AS lexical_rank
    FROM (SELECT *, row_number() OVER (ORDER BY lexical_score DESC, id) AS place FROM scored) ranked
),
reach AS (
  SELECT least(sum(idf), {ENOUGH_RARE_TERMS} * {idf(rows, "0::float8")}) AS max_lexical_score
    FROM {own_words} HAVING count(*) > 0
)"""
