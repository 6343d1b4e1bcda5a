"""Our own lexical leg: BM25 over the lexemes that `search_vector` holds, with bounded work.

`ts_rank` knows no document frequency and has to visit every row that holds any word of the query, so it gets slower as
the table grows. Here postings are read from the rarest word on until a budget is spent. From those and the rows' stored
sizes, which tell what a row holds but not how often, the best few hundred are chosen; only these are scored exactly. In
a table smaller than the budget the result is nearly always that of an unbounded BM25.

Neither how often a word occurs in a tsvector nor how many words there are can be asked for directly, short of
unnesting it, which costs ten times everything else. But `ts_rank` tells both. For one word and equal weights it is
`sum(1/j^2 for j in 1..n) / (pi^2/6)`, invertible by a table; and it can divide by the number of words, so that the
quotient of two calls is that number.

A long tsvector is stored compressed, and every function that is given it would expand it again. The concatenation with
an empty one does so once.

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
_SHORTLIST = 4  # how many times the leg's depth is scored exactly
_MAX_FREQUENCY = 32  # BM25 has long saturated by then
_EQUAL_WEIGHTS = "'{1,1,1,1}'::real[]"
_RANK_SCALE = 1.64493406685  # the constant by which Postgres divides


@dataclass(frozen=True, slots=True)
class CollectionStatistics:
    """What BM25 knows of the whole collection: rows, and the words and stored bytes of a mean row."""

    rows: int
    mean_length: float
    mean_bytes: float

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


def _frequency(vector: str) -> str:
    """How often the word `v.query` occurs in a row; zero where it does not."""
    rank = f"ts_rank({_EQUAL_WEIGHTS}, {vector}, v.query) * {_RANK_SCALE}"
    return f"width_bucket(({rank})::float8, '{_FREQUENCIES}'::float8[])::float8"


def _words(vector: str) -> str:
    """How many words a row holds that matches the query at all; NULL for others, whose score is nothing anyway."""
    plain, divided = (f"ts_rank({_EQUAL_WEIGHTS}, {vector}, a.query, {method})::float8" for method in (0, 2))
    return f"round({plain} / nullif({divided}, 0))"


def _damping(length: str, mean: str) -> str:
    return f"{K1} * ({1 - B} + {B} * {length} / {mean})"


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
    stored = arguments.add(max(statistics.mean_bytes, 1.0), "float8")
    return f"""{_known(table, arguments, statistics)}
vocabulary AS MATERIALIZED (
  SELECT w.query, d.df, ln(1 + (greatest({rows}, d.df) - d.df + 0.5) / (d.df + 0.5)) AS idf
    FROM (SELECT u.lexeme, ({_quoted_lexeme("u.lexeme")})::tsquery AS query
            FROM unnest(to_tsvector('english', {text})) u ORDER BY u.positions[1] LIMIT {MAX_QUERY_WORDS}) w,
         LATERAL (SELECT {_document_frequency(table, statistics, rows)}::float8 AS df OFFSET 0) d
),
candidates AS MATERIALIZED (
  SELECT id
    FROM (SELECT p.*, v.idf FROM (SELECT query, idf FROM vocabulary ORDER BY df, query::text) v
           CROSS JOIN LATERAL (SELECT m.id, pg_column_size(m.search_vector) AS bytes FROM {table.qualified} m
                                WHERE {where} AND m.search_vector @@ v.query LIMIT {allowance}) p
           LIMIT {allowance}) postings
   GROUP BY id, bytes
   ORDER BY sum(idf) / (1 + {_damping("bytes", stored)}) DESC, id LIMIT {_SHORTLIST} * {depth}
),
anything AS MATERIALIZED (SELECT string_agg(query::text, ' | ')::tsquery AS query FROM vocabulary),
scored AS MATERIALIZED (
  SELECT m.id, (SELECT coalesce(sum(v.idf * t.n * {K1 + 1} / (t.n + {_damping("l.words", mean)})), 0)
                  FROM vocabulary v, LATERAL (SELECT {_frequency("m.search_vector")} AS n OFFSET 0) t) AS lexical_score
    FROM (SELECT id FROM candidates UNION SELECT id FROM dense) s,
         LATERAL (SELECT m.id, m.search_vector || ''::tsvector AS search_vector
                    FROM {table.qualified} m WHERE m.id = s.id LIMIT 1) m,
         LATERAL (SELECT {_words("m.search_vector")} AS words FROM anything a OFFSET 0) l
),
lexical AS MATERIALIZED (
  SELECT id, row_number() OVER (ORDER BY lexical_score DESC, id) AS lexical_rank, lexical_score
    FROM scored WHERE lexical_score > 0 ORDER BY lexical_score DESC, id LIMIT {depth}
),
reach AS (SELECT sum(idf) AS attainable FROM vocabulary)"""


def _quoted_lexeme(lexeme: str) -> str:
    """A lexeme as a tsquery literal; parsing it again would split compounds."""
    return rf"""'''' || replace(replace({lexeme}, '\', '\\'), '''', '''''') || ''''"""
