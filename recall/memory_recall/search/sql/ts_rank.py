"""The lexical leg that ranks as the memory server does: by `ts_rank`, rows with every term before rows with any.

Rows that contain every term come first, in the order of `ts_rank` blended with importance. If they are too few, rows
that contain any term and rank above a floor follow, by `ts_rank` alone. The tsquery for any term is made from the
parsed tsquery for every term, so that no punctuation in a prompt causes a syntax error. Of rows with the same rank, the
row with the lower id comes first.

The leg consists of CTEs, among them `lexical(id, lexical_rank, lexical_score)` and `reach(max_lexical_score)`, the
score of a row of mean length that contains every term of the query once.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from memory_recall.schema.columns.moments import moment
from memory_recall.schema.ddl import literal
from memory_recall.schema.table import MemoryTable
from memory_recall.search.fusion import SortBy
from memory_recall.search.sql.expressions import blended, bounded, quoted_lexeme
from memory_recall.search.sql.filters import Arguments

OR_BROADEN_MIN_RANK = 0.01  # below it a row is an incidental match
_SEARCHED = 1_000  # characters of a query: each row is compared with each term, and with many no row passes the floor
_EVERY_TERM_ONCE = 1 / 1.64493406685  # ts_rank of an OR query whose terms each occur once, in the content
_REACH = f"reach AS (SELECT {_EVERY_TERM_ONCE!r}::float8 AS max_lexical_score)"


def _order(table: MemoryTable, rank: str, sort_by: SortBy) -> str:
    if sort_by is SortBy.RECENCY:
        return f"coalesce(extract(epoch FROM {moment(table, 'created_at')}), '-Infinity')"
    return blended(rank, sort_by, bounded(table.row("m").optional("importance")))


def _all_rows(table: MemoryTable, where: str, sort_by: SortBy, depth: int) -> str:
    """Return the leg's CTEs for an empty query: all rows, by importance or newest first."""
    key = table.row("m").id
    return f"""
lexical AS MATERIALIZED (
  SELECT id, row_number() OVER (ORDER BY key DESC, id) AS lexical_rank, 0::float8 AS lexical_score
    FROM (SELECT {key} AS id, ({_order(table, "0::real", sort_by)})::float8 AS key
            FROM {table.qualified} m WHERE {where} ORDER BY 2 DESC, {key} LIMIT {depth}) listed
),
{_REACH}"""


def _of_every_word(table: MemoryTable, text: str) -> str:
    """Return SQL for the tsquery that every word of a text matches; `text` is SQL for the text."""
    if not table.names.has_own_search_column:
        return f"plainto_tsquery({literal(table.text_search_configuration)}::regconfig, {text})"
    every = f"coalesce(string_agg({quoted_lexeme('lexeme')}, ' & '), '')::tsquery"
    return f"(SELECT {every} FROM unnest({table.words(text)}))"


def ts_rank_leg(
    table: MemoryTable, arguments: Arguments, where: str, *, query: str, sort_by: SortBy, depth: int
) -> str:
    """Return the CTEs of the leg; for an empty query they list all rows.

    With the order by recency, the leg takes the newest rows that contain every term, then rows that contain any term if
    these are too few, and puts all of them in the order of their dates.
    """
    if not query:
        return _all_rows(table, where, sort_by, depth)
    m, text = table.row("m"), arguments.add(query[:_SEARCHED], "text")
    every, some = f"ts_rank({m.search_vector}, p.every)", f"ts_rank({m.search_vector}, p.some)"
    key, made = _order(table, every, sort_by), moment(table, "created_at")
    final = "made DESC NULLS LAST, id" if sort_by is SortBy.RECENCY else "broad, key DESC, id"
    return f"""
parsed AS MATERIALIZED (
  SELECT words AS every, replace(words::text, ' & ', ' | ')::tsquery AS some
    FROM (SELECT {_of_every_word(table, text)} AS words) given
),
complete AS MATERIALIZED (
  SELECT {m.id} AS id, ({key})::float8 AS key, {some}::float8 AS score, {made} AS made
    FROM {table.qualified} m, parsed p
   WHERE {where} AND {m.search_vector} @@ p.every
   ORDER BY 2 DESC, {m.id} LIMIT {depth}
),
broadened AS MATERIALIZED (
  SELECT {m.id} AS id, {some}::float8 AS key, {some}::float8 AS score, {made} AS made
    FROM {table.qualified} m, parsed p
   WHERE (SELECT count(*) FROM complete) < {depth}
     AND {where} AND {m.search_vector} @@ p.some AND {some} > {OR_BROADEN_MIN_RANK}
     AND NOT EXISTS (SELECT FROM complete c WHERE c.id = {m.id})
   ORDER BY 2 DESC, {m.id} LIMIT {depth}
),
lexical AS MATERIALIZED (
  SELECT id, row_number() OVER (ORDER BY {final}) AS lexical_rank, score AS lexical_score
    FROM (SELECT false AS broad, complete.* FROM complete UNION ALL SELECT true, broadened.* FROM broadened) found
),
{_REACH}"""
