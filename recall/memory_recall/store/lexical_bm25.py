"""Our own lexical leg: BM25 over the lexemes that `search_vector` holds, with bounded work.

`ts_rank` knows no document frequency and has to visit every row that holds any word of the query, so it gets slower as
the table grows. Here candidates are collected from the rarest word's postings first, until a budget is spent; in a
table smaller than the budget that is every match, and the scores are those of an unbounded BM25.

Scoring a candidate exactly needs the length of its text in words, for which its whole tsvector must be unnested. That
is some ten times dearer than anything else here, so two passes are made: all candidates with the length estimated from
the number of distinct lexemes, then the best of them (and what the dense leg found) exactly.

How often a word occurs in a row comes from `ts_rank` itself. For one word and equal weights it returns
`sum(1/j^2 for j in 1..n) / (pi^2/6)`, which is invertible by a table. That is twenty times cheaper than unnesting.

Rows are joined one by one through LATERAL ... LIMIT 1, because the planner, which cannot know how few candidates there
are, would otherwise read the whole table to hash it.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from dataclasses import dataclass

from memory_recall.store.recall_filters import Arguments
from memory_recall.store.table import MemoryTable

K1 = 1.2
B = 0.75
MAX_QUERY_WORDS = 64  # a hook may send a whole prompt; its first distinct words decide
DEFAULT_BUDGET = 1000
SMALL_TABLE = 20_000  # up to here document frequencies are counted for each query
_COUNT_CAP = 5_000  # a word that ANALYZE does not know as common is not counted further than this
_SHORTLIST = 2  # how many times the leg's depth is scored exactly
_MAX_FREQUENCY = 32  # BM25 has long saturated by then
_RANK_SCALE = 1.64493406685  # the constant by which Postgres divides


@dataclass(frozen=True, slots=True)
class CollectionStatistics:
    """What BM25 knows of the whole collection: rows, words a row, and words per distinct lexeme."""

    rows: int
    mean_length: float
    words_per_lexeme: float

    @property
    def small(self) -> bool:
        """Whether document frequencies can be counted while recalling."""
        return self.rows <= SMALL_TABLE


def _frequency_table() -> str:
    """Between which values of the scaled rank a word occurs how often."""
    bounds, total = [], 0.0
    for times in range(1, _MAX_FREQUENCY + 1):
        step = 1 / times**2
        bounds.append(repr(total + step / 2))
        total += step
    return "{" + ",".join(bounds) + "}"


_FREQUENCIES = _frequency_table()


def _score(vector: str, length: str, mean: str) -> str:
    """BM25 of a row, given its tsvector and its length; a word that the row lacks adds nothing."""
    rank = f"ts_rank('{{1,1,1,1}}'::real[], {vector}, v.query) * {_RANK_SCALE}"
    return f"""(SELECT coalesce(sum(v.idf * t.n * {K1 + 1} / (t.n + {K1} * ({1 - B} + {B} * {length} / {mean}))), 0)
            FROM vocabulary v,
                 LATERAL (SELECT width_bucket(({rank})::float8, '{_FREQUENCIES}'::float8[])::float8 AS n OFFSET 0) t)"""


def _document_frequency(table: MemoryTable, statistics: CollectionStatistics, rows: str) -> str:
    matching = f"FROM {table.qualified} c WHERE c.search_vector @@ w.query"
    if statistics.small:
        return f"(SELECT count(*) {matching} AND c.deleted_at IS NULL)"
    return f"""coalesce((SELECT k.share * {rows} FROM known k WHERE k.lexeme = w.lexeme),
           (SELECT count(*) FROM (SELECT {matching} LIMIT {_COUNT_CAP}) counted))"""


def _known(table: MemoryTable, arguments: Arguments, statistics: CollectionStatistics) -> str:
    """What the last ANALYZE found out about common words; free, and as fresh as autovacuum keeps it."""
    if statistics.small:
        return ""
    schema, name = arguments.add(table.schema, "text"), arguments.add(table.name, "text")
    return f"""
known AS MATERIALIZED (
  SELECT e.lexeme, e.share
    FROM pg_stats s, unnest(s.most_common_elems::text::text[], s.most_common_elem_freqs) AS e(lexeme, share)
   WHERE s.schemaname = {schema} AND s.tablename = {name} AND s.attname = 'search_vector' AND e.lexeme IS NOT NULL
),"""


def bm25_leg(
    table: MemoryTable,
    arguments: Arguments,
    where: str,
    *,
    query: str,
    depth: str,
    budget: int,
    statistics: CollectionStatistics,
) -> str:
    """The leg's CTEs. They read the CTE `dense(id)`, whose rows get lexical scores too."""
    text = arguments.add(query, "text")
    allowance = arguments.add(budget, "bigint")
    rows = arguments.add(float(statistics.rows), "float8")
    mean = arguments.add(max(statistics.mean_length, 1.0), "float8")
    spread = arguments.add(statistics.words_per_lexeme, "float8")
    return f"""{_known(table, arguments, statistics)}
vocabulary AS MATERIALIZED (
  SELECT w.query, d.df, ln(1 + (greatest({rows}, d.df) - d.df + 0.5) / (d.df + 0.5)) AS idf
    FROM (SELECT u.lexeme, ({_quoted_lexeme("u.lexeme")})::tsquery AS query
            FROM unnest(to_tsvector('english', {text})) u ORDER BY u.positions[1] LIMIT {MAX_QUERY_WORDS}) w,
         LATERAL (SELECT {_document_frequency(table, statistics, rows)}::float8 AS df OFFSET 0) d
),
candidates AS MATERIALIZED (
  SELECT DISTINCT ON (id) id, search_vector
    FROM (SELECT p.* FROM (SELECT query FROM vocabulary ORDER BY df, query::text) v
           CROSS JOIN LATERAL (SELECT m.id, m.search_vector FROM {table.qualified} m
                                WHERE {where} AND m.search_vector @@ v.query LIMIT {allowance}) p
           LIMIT {allowance}) postings
   ORDER BY id
),
shortlist AS MATERIALIZED (
  SELECT c.id, c.search_vector FROM candidates c
   ORDER BY {_score("c.search_vector", f"(length(c.search_vector) * {spread})", mean)} DESC, c.id
   LIMIT {_SHORTLIST} * {depth}
),
scored AS MATERIALIZED (
  SELECT s.id, {_score("s.search_vector", "l.words", mean)} AS lexical_score
    FROM (SELECT * FROM shortlist UNION ALL
          SELECT m.* FROM dense d, LATERAL (SELECT m.id, m.search_vector FROM {table.qualified} m
                                             WHERE m.id = d.id LIMIT 1) m
           WHERE NOT EXISTS (SELECT FROM shortlist t WHERE t.id = d.id)) s,
         LATERAL (SELECT sum(coalesce(cardinality(u.positions), 1))::float8 AS words
                    FROM unnest(s.search_vector) u) l
),
lexical AS MATERIALIZED (
  SELECT id, row_number() OVER (ORDER BY lexical_score DESC, id) AS lexical_rank, lexical_score
    FROM scored WHERE lexical_score > 0 ORDER BY lexical_score DESC, id LIMIT {depth}
),
reach AS (SELECT sum(idf) AS attainable FROM vocabulary)"""


def _quoted_lexeme(lexeme: str) -> str:
    """A lexeme as a tsquery literal; parsing it again would split compounds."""
    return rf"""'''' || replace(replace({lexeme}, '\', '\\'), '''', '''''') || ''''"""
