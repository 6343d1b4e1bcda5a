"""How the ranked lists of the legs become one, as pure functions.

Postgres computes the same inside the recall statement (`store.recall_fusion`). This module is what SQLite mode and the
benchmarks use; a property test keeps both in the same order. So every expression here is written in the order in which
the SQL evaluates it: both sides are IEEE doubles, and sums in another order would break ties differently.

Two methods, both first-class:

- Reciprocal rank fusion adds `weight / (k + rank)` over the legs; a document missing from a leg gets nothing for it.
- The convex combination adds normalised scores, `alpha` for the dense leg and the rest for the lexical one. It is TM2C2
  (each score divided by the distance between the least that its leg can give and the best in this list) but for two
  things. A lexical score is divided by what the query could have scored (`attainable`), not by the best of the list,
  and squared: when only incidental words match, the best of a bad list is no reason to outvote meaning. And the least
  similarity in the list counts as zero: TM2C2 adds the same constant to every document, which changes no order by
  itself, but multiplied by importance it would drown everything else.

Importance is a prior, not a leg. It is applied once, after fusion, and so is closeness to the time that the query
names, where times are looked for (`temporal`). Where only the lexical leg has anything to say, nothing is fused and its
order stands, to the last place.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

IMPORTANCE_BASE = 0.7
IMPORTANCE_SHARE = 0.3
CLOSENESS_SHARE = 0.5  # how much a row gains that is of the time that the query names; ADR 0012


class SortBy(StrEnum):
    """What the caller wants first."""

    RELEVANCE = "relevance"
    IMPORTANCE = "importance"
    RECENCY = "recency"


@dataclass(frozen=True, slots=True)
class Fusion:
    """One way of fusing, with its parameters. The defaults are those of ADR 0003.

    `lexical_scale` says what a lexical score counts for: the square of its share of what the query could have scored,
    this share itself, or its share of the best in the list.
    """

    method: Literal["rrf", "convex"] = "convex"
    alpha: float = 0.7
    lexical_scale: Literal["query", "linear", "list"] = "query"
    dense_floor: float | None = -1.0
    k: float = 10.0
    lexical_weight: float = 1.0
    dense_weight: float = 1.0
    importance: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1 or self.k < 0 or self.lexical_weight < 0 or self.dense_weight < 0:
            raise ValueError("alpha must lie in [0, 1]; k and the weights must not be negative")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A document that at least one leg found; `closeness` to the time that the query names, from zero to one."""

    id: int
    importance: float = 0.5
    lexical_rank: int | None = None
    lexical_score: float | None = None
    dense_rank: int | None = None
    dense_score: float | None = None
    closeness: float = 0.0


@dataclass(frozen=True, slots=True)
class Fused:
    """A document with the score that put it where it is."""

    id: int
    score: float


def fuse(
    candidates: Sequence[Candidate],
    fusion: Fusion,
    *,
    sort_by: SortBy = SortBy.RELEVANCE,
    lexical_is_final: bool = False,
    attainable: float | None = None,
) -> list[Fused]:
    """All candidates, best first.

    `attainable` is the lexical score of a row of mean length that holds every word of the query once, or as much of a
    long query as counts for all of it (`store.lexical_scoring.ENOUGH_RARE_WORDS`).

    `lexical_is_final` says that the lexical leg's order already has importance in it (the API's `ts_rank` blend, FTS5)
    and is to be left alone where no other leg found anything.
    """
    prior = _prior(fusion, sort_by)
    if all(one.dense_rank is None for one in candidates):
        scores = [_alone(one, lexical_is_final=lexical_is_final, prior=prior(one)) for one in candidates]
    else:
        base = _reciprocal(candidates, fusion) if fusion.method == "rrf" else _convex(candidates, fusion, attainable)
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


def _convex(candidates: Sequence[Candidate], fusion: Fusion, attainable: float | None) -> list[float]:
    dense = [one.dense_score for one in candidates if one.dense_score is not None]
    least, most = min(dense), max(dense)
    scale = None if fusion.lexical_scale == "list" else attainable
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
