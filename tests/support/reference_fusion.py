"""Fusion and the graph leg as pure functions: the reference against which recall's SQL statement is tested.

Property tests compare the order and the scores of both implementations. Both compute with IEEE doubles, so sums in
another order would break ties differently. Therefore every expression here is evaluated in the same order as in the SQL
statement. The methods and their parameters are described in `memory_recall.search.fusion`, and the graph leg in
`memory_recall.search.sql.graph`.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from memory_recall import Fusion, SortBy
from memory_recall.search.fusion import (
    CLOSENESS_SHARE,
    GRAPH_KEPT,
    GRAPH_STARTS,
    GRAPH_WEIGHT,
    IMPORTANCE_BASE,
    IMPORTANCE_SHARE,
)

_BRIEF = 0.5
_GRAPH_DEPTH = 50


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
    scale = _Scale.of(candidates, fusion, max_lexical_score)
    return [scale.score(one, fusion) for one in candidates]


@dataclass(frozen=True, slots=True)
class _Scale:
    """The least and the greatest cosine among the candidates, and by what lexical scores are divided."""

    least: float
    most: float
    lexical: float

    @staticmethod
    def of(candidates: Sequence[Candidate], fusion: Fusion, max_lexical_score: float | None) -> "_Scale":
        dense = [one.dense_score for one in candidates if one.dense_score is not None]
        scale = None if fusion.lexical_scale == "list" else max_lexical_score
        if scale is None:
            scale = max((one.lexical_score or 0.0 for one in candidates), default=0.0)
        return _Scale(min(dense), max(dense), scale)

    def score(self, one: Candidate, fusion: Fusion) -> float:
        floor = self.least if fusion.dense_floor is None else min(fusion.dense_floor, self.least)
        similarity = self.least if one.dense_score is None else one.dense_score
        close = (similarity - self.least) / (self.most - floor) if self.most != floor else 1.0
        matching = (one.lexical_score or 0.0) / self.lexical if self.lexical else 0.0
        if fusion.lexical_scale == "query":
            matching *= matching
        return fusion.alpha * close + (1.0 - fusion.alpha) * matching


@dataclass(frozen=True, slots=True)
class Graph:
    """The concepts of each memory by its id, and the number of rows of the table.

    A concept counts if at least two memories have it, and at most `most` (see `sql.graph.most_memories`).
    """

    concepts: Mapping[int, Collection[int]]
    rows: int
    most: int

    def reach(self, starts: Sequence[Fused]) -> dict[int, float]:
        """Return what each memory receives by one hop from the starting memories, which pass on their scores."""
        holders = defaultdict(list)
        for memory, concepts in self.concepts.items():
            for one in concepts:
                holders[one].append(memory)
        shared = {one: found for one, found in holders.items() if 2 <= len(found) <= self.most}
        rarity = {one: math.log(max(self.rows, len(found)) / len(found)) for one, found in shared.items()}
        received: dict[int, float] = defaultdict(float)
        for start in sorted(starts, key=lambda one: one.id):
            followed = sorted(one for one in self.concepts.get(start.id, ()) if one in shared)
            total = 0.0
            for one in followed:
                total += rarity[one]
            for one in followed if total else ():
                passed = start.score * (rarity[one] / total) / len(shared[one])
                for memory in shared[one]:
                    if memory != start.id:
                        received[memory] += passed
        return {memory: score for memory, score in received.items() if score > 0}


def fuse_with_graph(
    candidates: Sequence[Candidate],
    others: Sequence[Candidate],
    graph: Graph,
    fusion: Fusion,
    *,
    max_lexical_score: float | None,
    whole_query_score: float | None,
) -> list[Fused]:
    """Return the candidates, and those of the other memories that the graph reaches, with their scores, best first.

    `others` are memories that neither leg found, but that a leg may find; they have no ranks. `whole_query_score` is
    the lexical score of a memory of mean length with every term of the query once, without the limit of
    `max_lexical_score`. Fusion is by the convex combination, and the order by relevance.
    """
    fused = fuse(candidates, fusion, max_lexical_score=max_lexical_score)
    reached = {}
    if any(one.dense_rank is not None for one in candidates) and _is_brief(max_lexical_score, whole_query_score):
        received = graph.reach([one for one in fused[:GRAPH_STARTS] if one.score > 0])
        allowed = {one.id for one in (*candidates, *others)} & received.keys()
        best = sorted(allowed, key=lambda memory: (-received[memory], memory))[:_GRAPH_DEPTH]
        reached = {memory: received[memory] / received[best[0]] for memory in best}
    prior = {one.id: _prior(fusion, SortBy.RELEVANCE)(one) for one in (*candidates, *others)}
    scores = {one.id: one.score for one in fused[GRAPH_KEPT:]}
    if reached:
        scale = _Scale.of(candidates, fusion, max_lexical_score)
        scores |= {one.id: scale.score(one, fusion) * prior[one.id] for one in others if one.id in reached}
    totals = [
        (score + (GRAPH_WEIGHT * (reached[memory] * prior[memory]) if memory in reached else 0.0), memory)
        for memory, score in scores.items()
    ]
    kept = fused[:GRAPH_KEPT]
    ordered = sorted(totals, key=lambda total: (-total[0], total[1]))
    highest = kept[-1].score if kept else math.inf  # no score exceeds that of a memory before it
    return [*kept, *(Fused(memory, min(total, highest)) for total, memory in ordered)]


def _is_brief(max_lexical_score: float | None, whole_query_score: float | None) -> bool:
    """Return whether one memory can match more than half of what the query says."""
    if max_lexical_score is None or whole_query_score is None:
        return True
    return max_lexical_score > _BRIEF * whole_query_score
