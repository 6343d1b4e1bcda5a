"""Our own lexical leg: BM25 over the lexemes that `search_vector` holds, with bounded work.

`ts_rank` knows no document frequency and has to visit every row that holds any word of the query, so it gets slower as
the table grows. Here postings are read from the rarest word on until a budget is spent (ADR 16). From those and the
rows' stored sizes, which tell what a row holds but not how often, the best few hundred are chosen; only these are
scored exactly. In a table smaller than the budget the result is nearly always that of an unbounded BM25.

Rows are joined one by one through LATERAL ... LIMIT 1, because the planner, which cannot know how few candidates there
are, would otherwise read the whole table to hash it.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

import math
from dataclasses import dataclass

from memory_recall.schema.table import MemoryTable
from memory_recall.search.sql.bm25_scoring import K1, damping, frequency, idf, placed, scored
from memory_recall.search.sql.filters import Arguments

MAX_QUERY_WORDS = 64  # a hook may send a whole prompt; its first distinct words decide
DEFAULT_BUDGET = 5_000  # rows of a single word
SMALL_TABLE = 20_000  # up to here document frequencies are counted for each query
_LEAST_RARE_ROWS = 500
_RARE_ROWS_SCALE = 3
_FILLED = 1_000  # rows of single common words, where the others give fewer candidates than are scored exactly
_PAIRED = 5  # of how many common words, the rarest first, pairs are looked for
_PAIRED_ROWS = 1_000  # expected of the rarest pairs, after which no more are looked for
_SHORTLIST = 2  # how many times the leg's depth is scored exactly
_BYTES = "pg_column_size(m.search_vector)::float8"  # an integer would make the arithmetic numeric, which is slow


@dataclass(frozen=True, slots=True)
class CollectionStatistics:
    """What BM25 knows of the whole collection: rows, and the words and stored bytes of a mean row."""

    rows: int
    mean_length: float
    mean_bytes: float

    @property
    def rare_rows(self) -> int:
        """How many rows are read of all words together whose share is known, the rarest first.

        The larger the table, the further below the best rows lie the ones that one more word brings in. With these
        numbers (949 of 100,000 rows, 3,000 of a million) .998 and .987 of an unbounded BM25's top ten are given.
        """
        return max(_LEAST_RARE_ROWS, round(_RARE_ROWS_SCALE * math.sqrt(self.rows)))

    @property
    def small(self) -> bool:
        """Whether document frequencies can be counted while recalling."""
        return self.rows <= SMALL_TABLE


def _known(table: MemoryTable, arguments: Arguments) -> str:
    """What the last ANALYZE found out about common words; free, and as fresh as autovacuum keeps it.

    Both lists are unrolled in step, at half the price of a function scan. The shares end with two or three of no word.
    """
    schema, name = arguments.add(table.schema, "text"), arguments.add(table.name, "text")
    return f"""
known AS (
  SELECT unnest(most_common_elems::text::text[]) AS lexeme, unnest(most_common_elem_freqs) AS share
    FROM pg_stats WHERE schemaname = {schema} AND tablename = {name} AND attname = 'search_vector'
),"""


def _words(arguments: Arguments, query: str, *, known: bool) -> str:
    """The query's distinct words, with the share of rows that hold them where that is known."""
    text = arguments.add(query, "text")
    share, join = ("k.share::float8", "LEFT JOIN known k ON k.lexeme = u.lexeme") if known else ("NULL::float8", "")
    return f"""
words AS MATERIALIZED (
  SELECT row_number() OVER (ORDER BY u.positions[1]) AS n, ({_quoted_lexeme("u.lexeme")})::tsquery AS query,
         {share} AS share
    FROM unnest(to_tsvector('english', {text})) u {join} ORDER BY 1 LIMIT {MAX_QUERY_WORDS}
),"""


def _matching(table: MemoryTable, where: str, query: str, limit: int) -> str:
    """Rows that hold what a query asks for, with what the first ranking needs of them."""
    return f"""
    SELECT m.id, {_BYTES} AS bytes, {frequency("m.search_vector", query)} AS times,
           {where} AS inside
      FROM {table.qualified} m WHERE m.deleted_at IS NULL AND m.search_vector @@ {query} LIMIT {limit}"""


def _postings_of_all(table: MemoryTable, where: str) -> str:
    """A small table: every row that holds any word, so that nothing is left to guess."""
    return f"""
postings AS MATERIALIZED (
  SELECT w.n, p.* FROM words w CROSS JOIN LATERAL ({_matching(table, where, "w.query", SMALL_TABLE * 2)}) p
),
vocabulary AS MATERIALIZED (
  SELECT w.n, w.query, true AS complete, coalesce(c.df, 0)::float8 AS df
    FROM words w LEFT JOIN (SELECT n, count(*) AS df FROM postings GROUP BY n) c ON c.n = w.n
),
combined AS (SELECT NULL::bigint AS id, NULL::float8 AS bytes, NULL::bigint AS words WHERE false),"""


def _postings_of_rare(table: MemoryTable, where: str, *, budget: int, wanted: int, rows: str, rare_rows: str) -> str:
    """A large table: rows of rare words, which of them hold common words too, and rows of two common words.

    The index intersects words by the shorter list, so a common word costs no more than what it is intersected with.
    Rows of a single common word, or of rare words beyond the budget, are looked at only where there are too few
    candidates, as under a narrow filter. Only these may be found through the filter's own index too, which would
    otherwise be scanned anew for each intersection.
    """
    both = f"{table.qualified} m WHERE m.deleted_at IS NULL AND m.search_vector @@ s.query LIMIT {budget}"
    one = f"{table.qualified} m WHERE {where} AND m.search_vector @@ s.query LIMIT {min(budget, _FILLED)}"
    return f"""{_rare(_matching(table, where, "s.query", budget), rows, rare_rows)}
common AS MATERIALIZED (SELECT * FROM words WHERE n NOT IN (SELECT n FROM rare) ORDER BY share, n),
{_combinations(rows)},
counted AS MATERIALIZED (
  SELECT n, count(*) AS found, count(*) FILTER (WHERE inside) AS inside FROM postings GROUP BY n
),
vocabulary AS MATERIALIZED (
  SELECT *, coalesce(CASE WHEN complete THEN found END, share * {rows}, found)::float8 AS df
    FROM (SELECT w.*, coalesce(c.found, 0) AS found, r.n IS NOT NULL AND coalesce(c.found, 0) < {budget} AS complete
            FROM words w LEFT JOIN rare r ON r.n = w.n LEFT JOIN counted c ON c.n = w.n) every
),
paired AS MATERIALIZED (
  SELECT p.id, p.bytes, s.words
    FROM combinations s CROSS JOIN LATERAL (SELECT m.id, {_BYTES} AS bytes, {where} AS inside FROM {both}) p
   WHERE p.inside
),
enough AS MATERIALIZED (
  SELECT coalesce((SELECT sum(inside) FROM counted), 0) + (SELECT count(*) FROM paired) >= {wanted} AS enough
),
filler AS MATERIALIZED (
  SELECT p.*, s.words
    FROM (SELECT query, {_bit("n")} AS words FROM vocabulary WHERE NOT complete ORDER BY share NULLS FIRST, n) s
   CROSS JOIN LATERAL (SELECT m.id, {_BYTES} AS bytes FROM {one}) p
   LIMIT (SELECT CASE WHEN enough THEN 0 ELSE {_FILLED} END FROM enough)
),
combined AS (SELECT * FROM paired UNION ALL SELECT * FROM filler),"""


def _rare(found: str, rows: str, rare_rows: str) -> str:
    """Which words are rare, and the rows that hold them.

    Words that ANALYZE does not list are, and of the others the rarest, as long as they promise few rows together with
    those that hold the former, of which there may be none or as many already.
    """
    return f"""
unlisted AS MATERIALIZED (SELECT s.n, p.* FROM words s CROSS JOIN LATERAL ({found}) p WHERE s.share IS NULL),
listed AS MATERIALIZED (
  SELECT n, query
    FROM (SELECT *, sum(share * {rows}) OVER (ORDER BY share, n) AS together FROM words WHERE share IS NOT NULL) ordered
   WHERE together + (SELECT count(*) FROM unlisted) <= {rare_rows}
),
rare AS MATERIALIZED (SELECT n, query FROM words WHERE share IS NULL UNION ALL SELECT n, query FROM listed),
postings AS MATERIALIZED (
  SELECT * FROM unlisted UNION ALL SELECT s.n, p.* FROM listed s CROSS JOIN LATERAL ({found}) p
),"""


def _combinations(rows: str) -> str:
    """Which words are intersected: each common one with all rare ones, and pairs of common ones, the rarest first.

    Words that occur together by chance promise the product of their shares; of words that belong together there are
    more, so the promise errs on the side of looking up too many pairs.
    """
    rarest = f"(SELECT * FROM common LIMIT {_PAIRED})"
    before = "(ORDER BY a.share * b.share, a.n, b.n ROWS UNBOUNDED PRECEDING EXCLUDE CURRENT ROW)"
    return f"""
combinations AS MATERIALIZED (
  SELECT {_bit("c.n")} AS words, r.query && c.query AS query
    FROM common c, (SELECT string_agg(query::text, ' | ')::tsquery AS query FROM rare) r
   WHERE r.query IS NOT NULL
  UNION ALL
  SELECT words, query
    FROM (SELECT {_bit("a.n")} | {_bit("b.n")} AS words, a.query && b.query AS query,
                 sum(a.share * b.share * {rows}) OVER {before} AS promised
            FROM {rarest} a JOIN {rarest} b ON a.n < b.n) pairs
   WHERE coalesce(promised, 0) < {_PAIRED_ROWS}
)"""


def _bit(number: str) -> str:
    """A set of words as a number, for words that a row is only known to hold: here the set of one."""
    return f"(1::bigint << ({number} - 1)::integer)"


def bm25_leg(
    table: MemoryTable,
    arguments: Arguments,
    where: str,
    *,
    query: str,
    depth: int,
    budget: int,
    statistics: CollectionStatistics,
) -> str:
    """The leg's CTEs. They read the CTE `dense(id)`, whose rows get lexical scores too.

    `lexical` holds every row that was scored; those that the leg would not give by itself have no rank.
    """
    rows = arguments.add(float(statistics.rows), "float8")
    mean = arguments.add(max(statistics.mean_length, 1.0), "float8")
    stored = arguments.add(max(statistics.mean_bytes, 1.0), "float8")
    words = _words(arguments, query, known=not statistics.small)
    if statistics.small:
        collected = f"{words}{_postings_of_all(table, where)}"
    else:
        few = arguments.add(float(min(budget, statistics.rare_rows)), "float8")
        rare = _postings_of_rare(table, where, budget=budget, wanted=_SHORTLIST * depth, rows=rows, rare_rows=few)
        collected = f"{_known(table, arguments)}{words}{rare}"
    return f"""{collected}
weighted AS MATERIALIZED (
  SELECT n, query, complete, {idf(rows, "df")} AS idf FROM vocabulary
),
{_chosen(stored, depth)},
{_ranked(table, mean, depth, rows)}"""


def _chosen(stored: str, depth: int) -> str:
    """The rows worth an exact score: by how often they hold the words that were read, and by which others they hold."""
    return f"""found AS MATERIALIZED (
  SELECT id, min(bytes) AS bytes, sum(counted) AS counted, bit_or(words) AS words
    FROM (SELECT p.id, p.bytes,
                 CASE WHEN w.complete THEN w.idf * p.times * {K1 + 1} / (p.times + {damping("p.bytes", stored)})
                      ELSE 0 END AS counted,
                 CASE WHEN w.complete THEN 0 ELSE {_bit("w.n")} END AS words
            FROM postings p JOIN weighted w ON w.n = p.n WHERE p.inside
          UNION ALL
          SELECT id, bytes, 0, words FROM combined) every
   GROUP BY id
),
held AS MATERIALIZED (
  SELECT f.words, coalesce(sum(w.idf), 0) AS idf
    FROM (SELECT DISTINCT words FROM found) f LEFT JOIN weighted w ON f.words & {_bit("w.n")} <> 0 GROUP BY f.words
),
candidates AS MATERIALIZED (
  SELECT f.id FROM found f JOIN held h ON h.words = f.words
   ORDER BY f.counted + h.idf * {K1 + 1} / (1 + {damping("f.bytes", stored)}) DESC, f.id LIMIT {_SHORTLIST * depth}
)"""


def _ranked(table: MemoryTable, mean: str, depth: int, rows: str) -> str:
    """Exact scores of the chosen rows and of those that the dense leg found, and their ranks."""
    return f"""{scored(table, mean, "SELECT id FROM candidates UNION SELECT id FROM dense")}
),
{placed(depth, rows)}"""


def _quoted_lexeme(lexeme: str) -> str:
    """A lexeme as a tsquery literal; parsing it again would split compounds."""
    return rf"""'''' || replace(replace({lexeme}, '\', '\\'), '''', '''''') || ''''"""
