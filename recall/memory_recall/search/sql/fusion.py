"""SQL for the fusion inside the recall statement; `search.fusion` describes the methods.

The CTE `pool` holds the rows that the legs found, with both scores of each row where they can be computed: a row that
only the lexical leg found still has a cosine, and a row that only the dense leg found may still contain a term of the
query. Without both scores, a row would rank lower only because a leg returns a limited number of rows.

A reference in Python (`tests/support/reference_fusion.py`) gives the same order and scores, to the last bit. A property
test compares both. Therefore sums are written here in the order in which the reference evaluates them.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from memory_recall.search.fusion import CLOSENESS_SHARE, IMPORTANCE_BASE, IMPORTANCE_SHARE, Fusion, SortBy
from memory_recall.search.period import FADE, Period
from memory_recall.search.sql.filters import Arguments
from memory_recall.search.sql.supersession import NEWEST_FIRST, newest_first

_TIMELINESS = f"(1::float8 + {CLOSENESS_SHARE}::float8 * closeness)"
_PRIOR = f"({IMPORTANCE_BASE}::float8 + {IMPORTANCE_SHARE}::float8 * importance)"


def _reciprocal(fusion: Fusion, arguments: Arguments) -> str:
    k = arguments.add(fusion.k, "float8")
    lexical = arguments.add(fusion.lexical_weight, "float8")
    dense = arguments.add(fusion.dense_weight, "float8")
    return (
        f"""coalesce({lexical} / ({k} + lexical_rank), 0::float8) + coalesce({dense} / ({k} + dense_rank), 0::float8)"""
    )


def convex(fusion: Fusion, arguments: Arguments) -> str:
    """Return SQL for the convex combination of a row's scores, without importance.

    The row has the columns of the CTE `pool` and the bounds of the CTE `bounded`.
    """
    alpha = arguments.add(fusion.alpha, "float8")
    floor = _floor(fusion, arguments)
    dense = f"(coalesce(dense_score, least_dense) - least_dense) / nullif(most_dense - {floor}, 0::float8)"
    scale = "most_lexical" if fusion.lexical_scale == "list" else "coalesce(max_lexical_score, most_lexical)"
    lexical = f"(coalesce(lexical_score, 0::float8) / nullif({scale}, 0::float8))"
    if fusion.lexical_scale == "query":
        lexical = f"{lexical} * {lexical}"
    return f"{alpha} * coalesce({dense}, 1::float8) + (1::float8 - {alpha}) * coalesce({lexical}, 0::float8)"


def _floor(fusion: Fusion, arguments: Arguments) -> str:
    if fusion.dense_floor is None:
        return "least_dense"
    return f"least({arguments.add(fusion.dense_floor, 'float8')}, least_dense)"


def closeness(period: Period, arguments: Arguments, moment: str) -> str:
    """Return SQL for how close a moment is to a period, from 0 to 1, as `Period.closeness` computes it."""
    start, end = (arguments.add(one, "timestamptz") for one in (period.start, period.end))
    before, after = f"extract(epoch FROM {start} - {moment})", f"extract(epoch FROM {moment} - {end})"
    gap = f"greatest({before}::float8, {after}::float8, 0::float8)"
    near = f"greatest(0::float8, 1::float8 - {gap} / {arguments.add(FADE * period.seconds, 'float8')})"
    return f"CASE WHEN {moment} IS NULL THEN 0::float8 ELSE {near} END"  # greatest() passes over NULL


def fused(
    fusion: Fusion,
    arguments: Arguments,
    *,
    sort_by: SortBy,
    lexical_is_final: bool,
    timed: bool,
    superseding: bool = False,
    name: str = "ordered",
) -> str:
    """Return the CTE `ordered(id, score, place)`, computed from the CTEs `pool` and `reach`; `place` counts from one.

    The CTE gets another name if `name` is given. With `lexical_is_final` True, the lexical ranks decide the order if
    the dense leg found nothing. With `timed` True, the pool has a column `closeness`, by which scores are multiplied.
    With `superseding` True, it has the columns of the CTE `successors`, and no superseded memory stands before one that
    supersedes it.
    """
    base = _reciprocal(fusion, arguments) if fusion.method == "rrf" else convex(fusion, arguments)
    prior = prior_factor(fusion, sort_by, timed=timed)
    lexical_only = "-lexical_rank::float8" if lexical_is_final else f"coalesce(lexical_score, 0::float8) * {prior}"
    tie = "importance DESC, id" if fusion.importance and sort_by is SortBy.IMPORTANCE else "id"
    score = "own_score" if superseding else "score"
    scored = f"""(SELECT *, CASE WHEN dense_rows = 0 THEN {lexical_only} ELSE ({base}) * {prior} END AS {score}
            FROM bounded) scored"""
    if superseding:
        scored, tie = newest_first(scored), f"{NEWEST_FIRST}, {tie}"
    return f"""
bounded AS (
  SELECT pool.*, (SELECT max_lexical_score FROM reach) AS max_lexical_score,
         max(lexical_score) OVER () AS most_lexical, max(dense_score) OVER () AS most_dense,
         min(dense_score) OVER () AS least_dense, count(dense_rank) OVER () AS dense_rows
    FROM pool
),
{name} AS (
  SELECT *, row_number() OVER (ORDER BY score DESC, {tie}) AS place
    FROM {scored}
)"""


def prior_factor(fusion: Fusion, sort_by: SortBy, *, timed: bool) -> str:
    """Return SQL for the factor by which importance, and with `timed` True closeness, multiplies the row's score."""
    prior = _PRIOR if fusion.importance and sort_by is SortBy.RELEVANCE else "1::float8"
    return f"({prior} * {_TIMELINESS})" if timed and sort_by is SortBy.RELEVANCE else prior
