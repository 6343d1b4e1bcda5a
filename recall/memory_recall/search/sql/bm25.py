"""The lexical leg by BM25 over the lexemes in `search_vector`, with bounded work.

`ts_rank` knows no document frequency and has to read every row that contains any term of the query, so it gets slower
as the table grows. Here the rows of the rarest terms are read first, until a budget of rows is spent (ADR 16). They are
ranked roughly, by the terms that they are known to contain and by their stored size. Only the best few hundred of them
are scored exactly. In a table smaller than the budget the result is nearly always that of an unbounded BM25.

Rows are joined one by one through LATERAL ... LIMIT 1, because the planner, which cannot know how few candidates there
are, would otherwise read the whole table to hash it.

Further words of a language model are terms with a weight below one. They take nothing from the query's own terms, which
lead to the same candidates and scores as without them (ADR 28). In a large table only the rare ones of the further
words lead to rows, within a second budget of the same size; the common ones merely count in the scores.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

import math
from dataclasses import dataclass

from memory_recall.schema.ddl import literal
from memory_recall.schema.table import MemoryTable
from memory_recall.search.query import FurtherWords
from memory_recall.search.sql.bm25_scoring import K1, counted_rows, damping, frequency, idf, ranked, scored
from memory_recall.search.sql.expressions import quoted_lexeme
from memory_recall.search.sql.filters import Arguments
from memory_recall.search.sql.visibility import SearchedRows

MAX_QUERY_TERMS = 64  # a hook may send a whole prompt; its first distinct terms decide
MAX_ROWS_PER_TERM = 5_000
_UNLISTED_ROWS = 20_000  # read in total for all terms where there are no statistics; each has an equal part
_COMMON_SHARE = 0.1  # of all rows, which a term that more rows contain is taken to be in where there are no statistics
SMALL_TABLE = 20_000  # rows; up to here document frequencies are counted for each query
_LEAST_RARE_ROWS = 500
_RARE_ROWS_SCALE = 3
_FILLED = 1_000  # rows of single common terms, where the others give fewer candidates than are scored exactly
_PAIRED = 5  # of how many common terms, the rarest first, pairs are looked up
_PAIRED_ROWS = 1_500  # expected of all pairs that are looked up; the rarest is looked up in any case
_SHORTLIST = 2  # how many times the leg's depth is scored exactly
_IS_OWN = "n IN (SELECT n FROM terms WHERE own)"


@dataclass(frozen=True, slots=True)
class CollectionStatistics:
    """The number of rows, and the mean length of a row in words and its mean stored size in bytes."""

    rows: int
    mean_length: float
    mean_bytes: float

    @property
    def rare_rows(self) -> int:
        """How many rows are read at most, in total, for rare terms whose frequency is known.

        The number grows with the square root of the table's size, since in a larger table the rows that one more term
        adds are less likely to be among the best. With 949 rows of 100,000, 0.998 of the top ten of an unbounded BM25
        are found; with 3,000 rows of a million, 0.987.
        """
        return max(_LEAST_RARE_ROWS, round(_RARE_ROWS_SCALE * math.sqrt(self.rows)))

    @property
    def small(self) -> bool:
        """Whether the table is so small that each recall can count document frequencies itself."""
        return self.rows <= SMALL_TABLE


def _known(table: MemoryTable, arguments: Arguments) -> str:
    """Return the CTE `known(lexeme, share)`: common terms and the share of rows with each, by the last ANALYZE.

    It is empty for a role to which row-level security applies, whatever its policies show, and before the first
    ANALYZE. The list of lexemes and the list of their shares are unnested side by side, which costs half as much as a
    function scan. The list of shares has two or three more entries than the list of lexemes; these belong to no lexeme.
    """
    schema, name = arguments.add(table.schema, "text"), arguments.add(table.name, "text")
    (searched,) = (literal(source.column) for source in table.names.of("search_vector"))
    return f"""
known AS (
  SELECT unnest(most_common_elems::text::text[]) AS lexeme, unnest(most_common_elem_freqs) AS share
    FROM pg_stats WHERE schemaname = {schema} AND tablename = {name} AND attname = {searched}
),"""


def _terms(table: MemoryTable, arguments: Arguments, query: str, further: FurtherWords | None, *, known: bool) -> str:
    """Return the CTE `terms(n, query, share)`: the query's distinct terms, with the share of rows if it is known.

    If there are further words, the CTE also has the column `own`, and the query's own terms come first.
    """
    given = table.words(arguments.add(query, "text"))
    lexemes, place, own = f"unnest({given})", "u.positions[1]", ""
    if further is not None:
        others = table.words(arguments.add(further.text, "text"))
        lexemes = f"""(
    SELECT lexeme, positions, true AS own FROM {lexemes} UNION ALL
    SELECT lexeme, positions, false FROM unnest(ts_delete({others}, tsvector_to_array({given})))
    )"""
        place, own = f"u.own DESC, {place}", ", u.own"
    share, join = ("k.share::float8", "LEFT JOIN known k ON k.lexeme = u.lexeme") if known else ("NULL::float8", "")
    return f"""
terms AS MATERIALIZED (
  SELECT row_number() OVER (ORDER BY {place}) AS n, ({quoted_lexeme("u.lexeme")})::tsquery AS query,
         {share} AS share{own}
    FROM {lexemes} u {join} ORDER BY 1 LIMIT {MAX_QUERY_TERMS}
),"""


def _matching(table: MemoryTable, searched: SearchedRows, query: str, limit: int) -> str:
    """Return a subquery of the rows that match a tsquery: id, size, term frequency, and whether the row is searched."""
    m = table.row("m")
    return f"""
    SELECT {m.id} AS id, {_bytes(table)} AS bytes, {frequency(m.search_vector, query)} AS times,
           {searched.searched} AS inside
      FROM {table.qualified} m WHERE {searched.visible} AND {m.search_vector} @@ {query} LIMIT {limit}"""


def _bytes(table: MemoryTable) -> str:
    """Return SQL for the stored size of the row `m`. As an integer it would make the arithmetic numeric and slow."""
    return f"pg_column_size({table.row('m').search_vector})::float8"


def _postings_of_all(table: MemoryTable, searched: SearchedRows) -> str:
    """Return the CTEs `postings`, `vocabulary` and `combined` for a small table: all rows that contain any term."""
    return f"""
postings AS MATERIALIZED (
  SELECT w.n, p.* FROM terms w CROSS JOIN LATERAL ({_matching(table, searched, "w.query", SMALL_TABLE * 2)}) p
),
vocabulary AS MATERIALIZED (
  SELECT w.n, w.query, true AS complete, coalesce(c.df, 0)::float8 AS df
    FROM terms w LEFT JOIN (SELECT n, count(*) AS df FROM postings GROUP BY n) c ON c.n = w.n
),
combined AS (SELECT NULL::{table.key.stored} AS id, NULL::float8 AS bytes, NULL::bigint AS terms WHERE false),"""


def _postings_of_rare(
    table: MemoryTable, searched: SearchedRows, *, budget: int, wanted: int, rows: str, rare_rows: str, expanded: bool
) -> str:
    """Return the CTEs `postings`, `vocabulary` and `combined` for a large table: rows of rare and of combined terms.

    A combination with a common term costs no more than the rarer term alone, because the GIN index intersects terms by
    the shorter list. Rows of a single common term, or of rare terms beyond the budget, are read only if there are too
    few candidates, as with a selective filter. Only for these rows may Postgres use an index over the column of the
    filter, since it would otherwise scan this index once for each combination.
    """
    m = table.row("m")
    sized = f"{m.id} AS id, {_bytes(table)} AS bytes"
    match = f"{m.search_vector} @@ s.query"
    both = f"{table.qualified} m WHERE {searched.visible} AND {match} LIMIT {budget}"
    one = f"{table.qualified} m WHERE {searched.searched} AND {match} LIMIT {min(budget, _FILLED)}"
    and_own, if_own = (f" AND {_IS_OWN}", f" WHERE {_IS_OWN}") if expanded else ("", "")
    incomplete = f"vocabulary WHERE NOT complete{and_own}"
    return f"""{_rare(_matching(table, searched, "s.query", budget), rows, rare_rows, budget=budget, expanded=expanded)}
common AS MATERIALIZED (SELECT * FROM terms WHERE n NOT IN (SELECT n FROM rare){and_own} ORDER BY share, n),
{_combinations(rows, f"rare{if_own}")},
counted AS MATERIALIZED (
  SELECT n, count(*) AS found, count(*) FILTER (WHERE inside) AS inside FROM postings GROUP BY n
),
vocabulary AS MATERIALIZED (
  SELECT *, coalesce(CASE WHEN complete THEN found END, share * {rows},
                     CASE WHEN EXISTS (SELECT FROM known) THEN found ELSE greatest(found, {_COMMON_SHARE} * {rows}) END
                    )::float8 AS df
    FROM (SELECT w.*, coalesce(c.found, 0) AS found, r.n IS NOT NULL AND coalesce(c.found, 0) < r.most AS complete
            FROM terms w LEFT JOIN rare r ON r.n = w.n LEFT JOIN counted c ON c.n = w.n) every
),
paired AS MATERIALIZED (
  SELECT p.id, p.bytes, s.terms
    FROM combinations s CROSS JOIN LATERAL (SELECT {sized}, {searched.searched} AS inside FROM {both}) p
   WHERE p.inside
),
enough AS MATERIALIZED (
  SELECT coalesce((SELECT sum(inside) FROM counted{if_own}), 0) + (SELECT count(*) FROM paired) >= {wanted} AS enough
),
filler AS MATERIALIZED (
  SELECT p.*, s.terms
    FROM (SELECT query, {_bit("n")} AS terms FROM {incomplete} ORDER BY share NULLS FIRST, n) s
   CROSS JOIN LATERAL (SELECT {sized} FROM {one}) p
   LIMIT (SELECT CASE WHEN enough THEN 0 ELSE {_FILLED} END FROM enough)
),
combined AS (SELECT * FROM paired UNION ALL SELECT * FROM filler),"""


def _rare(found: str, rows: str, rare_rows: str, *, budget: int, expanded: bool) -> str:
    """Return the CTEs `rare(n, query, most)` of rare terms, and `postings` of at most `most` rows that contain each.

    All terms that ANALYZE does not list as common are rare. Where the role is shown no statistics at all, some of them
    may be in most rows, so that they share a number of rows. Of the listed terms, the rarest are rare as long as
    their expected rows, together with the rows found for the unlisted terms, do not exceed `rare_rows`. Terms of the
    query and further words are counted apart.

    The rows of an unlisted term are those of a CTE, which ends with the LIMIT that reads from it. Without it the
    planner, which does not know this LIMIT, would read the whole table until it is reached, and not the index.
    """
    rarest_first, alike, same = "(ORDER BY share, n)", "()", ""
    if expanded:
        rarest_first, alike = "(PARTITION BY own ORDER BY share, n)", "(PARTITION BY own)"
        same = " JOIN terms t USING (n) WHERE t.own = ordered.own"
    return f"""
unknown AS MATERIALIZED (
  SELECT n, query, CASE WHEN EXISTS (SELECT FROM known) THEN {budget}
                        ELSE least({budget}, {_UNLISTED_ROWS} / count(*) OVER {alike}) END AS most
    FROM terms WHERE share IS NULL
),
unlisted AS MATERIALIZED (
  SELECT s.n, p.* FROM unknown s CROSS JOIN LATERAL (WITH f AS MATERIALIZED ({found}) SELECT * FROM f LIMIT s.most) p
),
listed AS MATERIALIZED (
  SELECT n, query
    FROM (SELECT *, sum(share * {rows}) OVER {rarest_first} AS expected FROM terms WHERE share IS NOT NULL) ordered
   WHERE expected + (SELECT count(*) FROM unlisted{same}) <= {rare_rows}
),
rare AS MATERIALIZED (SELECT n, query, most FROM unknown UNION ALL SELECT n, query, {budget} FROM listed),
postings AS MATERIALIZED (
  SELECT * FROM unlisted UNION ALL SELECT s.n, p.* FROM listed s CROSS JOIN LATERAL ({found}) p
),"""


def _combinations(rows: str, rare: str) -> str:
    """Return the CTE `combinations(terms, query)`: each common term with any of `rare`, and pairs of common terms.

    Pairs are added from the rarest on, until the next one would bring their expected rows above a limit. A pair's rows
    are estimated by the product of both terms' shares; terms that belong together have more rows in common than this.
    """
    rarest = f"(SELECT * FROM common LIMIT {_PAIRED})"
    rarest_first = "(ORDER BY a.share * b.share, a.n, b.n ROWS UNBOUNDED PRECEDING)"
    return f"""
combinations AS MATERIALIZED (
  SELECT {_bit("c.n")} AS terms, r.query && c.query AS query
    FROM common c, (SELECT string_agg(query::text, ' | ')::tsquery AS query FROM {rare}) r
   WHERE r.query IS NOT NULL
  UNION ALL
  SELECT terms, query
    FROM (SELECT {_bit("a.n")} | {_bit("b.n")} AS terms, a.query && b.query AS query,
                 sum(a.share * b.share * {rows}) OVER {rarest_first} AS expected,
                 row_number() OVER {rarest_first} AS place
            FROM {rarest} a JOIN {rarest} b ON a.n < b.n) pairs
   WHERE expected <= {_PAIRED_ROWS} OR place = 1
)"""


def _bit(number: str) -> str:
    """Return SQL for the bit mask of one term. A row's mask combines the masks of the terms it is known to contain."""
    return f"(1::bigint << ({number} - 1)::integer)"


def bm25_leg(
    table: MemoryTable,
    arguments: Arguments,
    searched: SearchedRows,
    *,
    query: str,
    further: FurtherWords | None = None,
    depth: int,
    rows_per_term: int,
    statistics: CollectionStatistics,
) -> str:
    """Return the CTEs of the BM25 leg. They read the CTE `dense(id)`, whose rows get lexical scores too.

    The CTE `lexical` contains every row that was scored. Its rank is NULL for rows that are not among the best `depth`.
    """
    collection, rows = counted_rows(table, searched, arguments.add(float(statistics.rows), "float8"))
    mean = arguments.add(max(statistics.mean_length, 1.0), "float8")
    stored = arguments.add(max(statistics.mean_bytes, 1.0), "float8")
    terms = _terms(table, arguments, query, further, known=not statistics.small)
    if statistics.small:
        collected = f"{terms}{_postings_of_all(table, searched)}"
    else:
        few = arguments.add(float(min(rows_per_term, statistics.rare_rows)), "float8")
        rare = _postings_of_rare(
            table,
            searched,
            budget=rows_per_term,
            wanted=_SHORTLIST * depth,
            rows=rows,
            rare_rows=few,
            expanded=further is not None,
        )
        collected = f"{_known(table, arguments)}{terms}{rare}"
    weighted = f"SELECT n, query, complete, {idf(rows, 'df')} AS idf FROM vocabulary"
    if further is not None:
        weight = f"CASE WHEN t.own THEN 1::float8 ELSE {arguments.add(further.weight, 'float8')} END"
        columns = f"v.n, v.query, v.complete, {weight} * {idf(rows, 'v.df')} AS idf, t.own"
        weighted = f"SELECT {columns} FROM vocabulary v JOIN terms t ON t.n = v.n"
    return f"""{collection}{collected}
weighted AS MATERIALIZED (
  {weighted}
),
{_chosen(stored, depth)},
{scored(table, searched, mean, "SELECT id FROM candidates UNION SELECT id FROM dense")}
),
{ranked(depth, rows, own_words=own_words(further))}"""


def own_words(further: FurtherWords | None) -> str:
    """Return SQL for the rows of the CTE `weighted` that are terms of the query, to stand after FROM."""
    return "weighted" if further is None else "weighted WHERE own"


def _chosen(stored: str, depth: int) -> str:
    """Return the CTE `candidates(id)`: the rows worth an exact score, by the terms that they are known to contain."""
    return f"""found AS MATERIALIZED (
  SELECT id, min(bytes) AS bytes, sum(counted) AS counted, bit_or(terms) AS terms
    FROM (SELECT p.id, p.bytes,
                 CASE WHEN w.complete THEN w.idf * p.times * {K1 + 1} / (p.times + {damping("p.bytes", stored)})
                      ELSE 0 END AS counted,
                 CASE WHEN w.complete THEN 0 ELSE {_bit("w.n")} END AS terms
            FROM postings p JOIN weighted w ON w.n = p.n WHERE p.inside
          UNION ALL
          SELECT id, bytes, 0, terms FROM combined) every
   GROUP BY id
),
contained AS MATERIALIZED (
  SELECT f.terms, coalesce(sum(w.idf), 0) AS idf
    FROM (SELECT DISTINCT terms FROM found) f LEFT JOIN weighted w ON f.terms & {_bit("w.n")} <> 0 GROUP BY f.terms
),
candidates AS MATERIALIZED (
  SELECT f.id FROM found f JOIN contained h ON h.terms = f.terms
   ORDER BY f.counted + h.idf * {K1 + 1} / (1 + {damping("f.bytes", stored)}) DESC, f.id LIMIT {_SHORTLIST * depth}
)"""
