"""Fusion as pure functions: the reference against which the fusion in recall's SQL statement is tested.

A property test compares the order and the scores of both implementations. Both compute with IEEE doubles, so sums in
another order would break ties differently. Therefore every expression here is evaluated in the same order as in the SQL
statement. The methods and their parameters are described in `memory_recall.search.fusion`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from memory_recall import Fusion, SortBy
from memory_recall.search.fusion import CLOSENESS_SHARE, IMPORTANCE_BASE, IMPORTANCE_SHARE


@dataclass(frozen=True, slots=True)
class Candidate:
    """A document that at least one leg found.

    `closeness` (0 to 1) says how near the document's time is to the time that the query names.
    """

    id: int
    importance: float = 0.5
    lexical_rank: int | None = None
    lexical_score: float | None = None
    dense_rank: int | None = None
    dense_score: float | None = None
    closeness: float = 0.0


@dataclass(frozen=True, slots=True)
class Fused:
    """The id of a document and its fused score, which decides its place in the result."""

    id: int
    score: float


def fuse(
    candidates: Sequence[Candidate],
    fusion: Fusion,
    *,
    sort_by: SortBy = SortBy.RELEVANCE,
    lexical_is_final: bool = False,
    max_lexical_score: float | None = None,
) -> list[Fused]:
    """Return all candidates with their fused scores, best first.

    `max_lexical_score` is the lexical score of a row of mean length that contains every term of the query once. It is
    limited to the score of a row that contains `ENOUGH_RARE_TERMS` (`memory_recall.search.sql.bm25_scoring`) of the
    rarest possible terms.

    `lexical_is_final` says that the order of the lexical leg already includes importance (the memory API's blend with
    `ts_rank`). In that case the order is kept if no other leg found anything.
    """
    prior = _prior(fusion, sort_by)
    if all(one.dense_rank is None for one in candidates):
        scores = [_alone(one, lexical_is_final=lexical_is_final, prior=prior(one)) for one in candidates]
    else:
        base = (
            _reciprocal(candidates, fusion)
            if fusion.method == "rrf"
            else _convex(candidates, fusion, max_lexical_score)
        )
        scores = [score * prior(one) for score, one in zip(base, candidates, strict=True)]
    by_importance = fusion.importance and sort_by is SortBy.IMPORTANCE
    ordered = sorted(
        zip(candidates, scores, strict=True),
        key=lambda pair: (-pair[1], -pair[0].importance if by_importance else 0.0, pair[0].id),
    )
    return [Fused(one.id, score) for one, score in ordered]


def _prior(fusion: Fusion, sort_by: SortBy) -> Callable[[Candidate], float]:
    if sort_by is not SortBy.RELEVANCE:
        return lambda _: 1.0
    if not fusion.importance:
        return _timeliness
    return lambda one: (IMPORTANCE_BASE + IMPORTANCE_SHARE * one.importance) * _timeliness(one)


def _timeliness(one: Candidate) -> float:
    return 1.0 + CLOSENESS_SHARE * one.closeness


def _alone(one: Candidate, *, lexical_is_final: bool, prior: float) -> float:
    if lexical_is_final:
        return -float(one.lexical_rank or 0)
    return (one.lexical_score or 0.0) * prior


def _reciprocal(candidates: Sequence[Candidate], fusion: Fusion) -> list[float]:
    return [
        (fusion.lexical_weight / (fusion.k + one.lexical_rank) if one.lexical_rank is not None else 0.0)
        + (fusion.dense_weight / (fusion.k + one.dense_rank) if one.dense_rank is not None else 0.0)
        for one in candidates
    ]


def _convex(candidates: Sequence[Candidate], fusion: Fusion, max_lexical_score: float | None) -> list[float]:
    dense = [one.dense_score for one in candidates if one.dense_score is not None]
    least, most = min(dense), max(dense)
    scale = None if fusion.lexical_scale == "list" else max_lexical_score
    if scale is None:
        scale = max((one.lexical_score or 0.0 for one in candidates), default=0.0)
    floor = least if fusion.dense_floor is None else fusion.dense_floor
    scores = []
    for one in candidates:
        similarity = least if one.dense_score is None else one.dense_score
        close = (similarity - least) / (most - floor) if most != floor else 1.0
        matching = (one.lexical_score or 0.0) / scale if scale else 0.0
        if fusion.lexical_scale == "query":
            matching *= matching
        scores.append(fusion.alpha * close + (1.0 - fusion.alpha) * matching)
    return scores
