"""The questions of a labelled set with arrays over the memories that each searches, for rankings in many settings.

There are too many rankings for `harness.scoring`, so that recall@10 and nDCG@10 are computed here with arrays; a test
compares them with `harness.scoring`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memory_bench.harness.dataset import Dataset, Memory, Query
from memory_bench.harness.vectors import EmbeddedSet
from memory_bench.recall.evidence import Evidence
from memory_recall import Fusion
from memory_recall.evaluation.judgements import RELEVANT_FROM
from memory_recall.evaluation.measures import DEPTH
from memory_recall.search.fusion import IMPORTANCE_BASE, IMPORTANCE_SHARE

MEASURES = ("recall@10", "ndcg@10")
RECALL, NDCG = range(len(MEASURES))
_DISCOUNT = 1 / np.log2(np.arange(2, DEPTH + 2))

Numbers = NDArray[np.float64]
Places = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class LabelledSet:
    """A labelled set with the candidates of both legs, its vectors, and the fusion that ranks its questions."""

    dataset: Dataset
    evidence: Sequence[Evidence]
    embedded: EmbeddedSet
    fusion: Fusion


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with arrays over the memories of its scope: fused scores, priors, candidates, judgements.

    `brief` is the lexical score by which fusion divides, over that of a memory with every word of the question, at most
    one.
    """

    query: Query
    fused: Numbers
    prior: Numbers
    candidates: NDArray[np.bool_]
    relevant: NDArray[np.bool_]
    grades: Numbers
    brief: float

    def first(self, count: int) -> Places:
        """Return the places of the first memories of the fused list."""
        order = np.argsort(-np.where(self.candidates, self.fused, -np.inf), kind="stable")[:count]
        return order[: int(self.candidates.sum())]

    def scored(self, ranked: Places) -> Numbers:
        """Return recall@10 and nDCG@10 of rankings of at most ten places, shape (rankings, 2)."""
        found = self.relevant[ranked].sum(axis=1) / len(self.query.relevant)
        ideal = np.sort(self.grades)[::-1][:DEPTH]
        gained = (self.grades[ranked] * _DISCOUNT[: ranked.shape[1]]).sum(axis=1) / (ideal @ _DISCOUNT[: len(ideal)])
        return np.stack([found, gained], axis=1)


@dataclass(frozen=True, slots=True)
class Scope:
    """The numbers of the questions that search one scope, and the places of its memories in the set, by id."""

    numbers: Sequence[int]
    places: Sequence[int]

    def memories(self, dataset: Dataset) -> list[Memory]:
        """Return the memories of the scope."""
        return [dataset.memories[place] for place in self.places]

    def questions(self, labelled: LabelledSet) -> list[Asked]:
        """Return the questions with the arrays of the scope."""
        memories = self.memories(labelled.dataset)
        row = {one.id: place for place, one in enumerate(memories)}
        importance = np.array([one.importance for one in memories])
        prior = IMPORTANCE_BASE + IMPORTANCE_SHARE * importance if labelled.fusion.importance else importance * 0 + 1
        vectors = labelled.embedded.memories[list(self.places)].astype(np.float64)
        cosines = labelled.embedded.queries[list(self.numbers)].astype(np.float64) @ vectors.T
        asked = []
        for number, cosine in zip(self.numbers, cosines, strict=True):
            one = labelled.evidence[number]
            judged = one.query.grades or dict.fromkeys(one.query.relevant, RELEVANT_FROM)
            candidates = _filled(row, {each.id: 1 for each in one.candidates}) > 0
            fused = _convex(labelled.fusion, cosine, _filled(row, one.lexical_scores), candidates, one) * prior
            relevant = _filled(row, dict.fromkeys(one.query.relevant, 1)) > 0
            brief = min(1.0, (one.max_lexical_score or 1.0) / (one.whole_query_score or 1.0))
            asked.append(Asked(one.query, fused, prior, candidates, relevant, _filled(row, judged), brief))
        return asked


def scopes(dataset: Dataset) -> Iterator[Scope]:
    """Yield the scopes that the questions of a set search."""
    by_id = sorted(range(len(dataset.memories)), key=lambda place: dataset.memories[place].id)
    for scope in dict.fromkeys(query.scope for query in dataset.queries):
        numbers = [number for number, query in enumerate(dataset.queries) if query.scope == scope]
        yield Scope(numbers, [place for place in by_id if scope is None or dataset.memories[place].scope == scope])


def _filled(row: Mapping[int, int], values: Mapping[int, float]) -> Numbers:
    """Return the values by place; memories without a value have 0."""
    found = np.zeros(len(row))
    found[[row[one] for one in values]] = list(values.values())
    return found


def _convex(
    fusion: Fusion, cosine: Numbers, lexical: Numbers, candidates: NDArray[np.bool_], evidence: Evidence
) -> Numbers:
    """Return the fused scores of all memories; the candidates of the lexical and the dense leg set the scale.

    Of a candidate it is the score that `reference_fusion.fuse` gives it with the default method.
    """
    inside = cosine[candidates]
    floor = -1.0 if fusion.dense_floor is None else fusion.dense_floor
    close = (cosine - inside.min()) / (inside.max() - floor)
    matching = lexical / (evidence.max_lexical_score or 1.0)
    scored: Numbers = fusion.alpha * close + (1 - fusion.alpha) * matching * matching
    return scored
