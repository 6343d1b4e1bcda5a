"""The ranking of a recall with the concept graph as ADR 26 describes it, computed over all memories of a set."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from memory_bench.harness.dataset import Dataset, Memory
from memory_bench.harness.vectors import EmbeddedSet
from memory_recall import Fusion
from memory_recall.evaluation.measures import DEPTH
from memory_recall.graph.concepts import concepts_of
from memory_recall.search.fusion import IMPORTANCE_BASE, IMPORTANCE_SHARE
from tests.integration.memory_bench.evidence import Evidence

STARTS, KEPT, LEG_DEPTH = 5, 5, 50
COMMON, ALWAYS_ALLOWED, LEAST_MEMORIES = 0.1, 5, 2
FIRST = 1_000.0  # added to the scores of memories that keep their places; no fused score is near it

Numbers = NDArray[np.float64]


def rankings(
    dataset: Dataset, evidence: Sequence[Evidence], embedded: EmbeddedSet, *, weight: float
) -> list[list[int]]:
    """Return the first ten ids of every question, by the default fusion and a graph leg of this weight.

    The memories are in the order of their ids, and all questions search all of them.
    """
    links = links_of(dataset.memories)
    prior = IMPORTANCE_BASE + IMPORTANCE_SHARE * np.array([one.importance for one in dataset.memories])
    cosines = embedded.queries.astype(np.float64) @ embedded.memories.astype(np.float64).T
    found = []
    for one, cosine in zip(evidence, cosines, strict=True):
        candidates = np.isin(np.arange(len(dataset.memories)), list(one.candidates))
        fused = fused_scores(one, cosine, candidates) * prior
        order = np.argsort(-np.where(candidates, fused, -np.inf), kind="stable")
        reached = best(reach(links, np.maximum(fused, 0), order[:STARTS]))
        scores = fused + weight * is_brief(one) * reached * prior
        scores[order[:KEPT]] += FIRST * np.arange(KEPT, 0, -1)
        ranked = np.argsort(-np.where(candidates | (reached > 0), scores, -np.inf), kind="stable")
        found.append([dataset.memories[place].id for place in ranked[:DEPTH]])
    return found


def links_of(memories: Sequence[Memory]) -> Numbers:
    """Return the links between memories and concepts, shape (memories, concepts).

    A concept joins memories if at least two have it, and at most a tenth of all or five. Its links weigh the logarithm
    of the number of memories over that of those that have it.
    """
    concepts = [concepts_of(one.content, one.tags, one.expanded_keywords, source="words") for one in memories]
    counts = Counter(name for each in concepts for name in each)
    most = max(ALWAYS_ALLOWED, int(COMMON * len(memories)))
    joining = [name for name, count in counts.items() if LEAST_MEMORIES <= count <= most]
    return np.array([[np.log(len(memories) / counts[name]) * (name in each) for name in joining] for each in concepts])


def reach(links: Numbers, fused: Numbers, starts: NDArray[np.intp]) -> Numbers:
    """Return what each memory receives over one hop from the first memories; nothing returns to where it came from."""
    out, back = shares(links), shares(links.T).T
    given = np.zeros(len(links))
    given[starts] = fused[starts] / fused[starts].sum()
    received: Numbers = back @ (out.T @ given) - (out * back).sum(axis=1) * given
    return received


def shares(links: Numbers) -> Numbers:
    """Return the links with the sum of each row scaled to one; a row without links stays empty."""
    sums = links.sum(axis=1, keepdims=True)
    scaled: Numbers = links / np.where(sums > 0, sums, 1.0)
    return scaled


def best(received: Numbers) -> Numbers:
    """Return the fifty greatest scores over the greatest, and zero for all other memories."""
    nearest = np.argsort(-received, kind="stable")[:LEG_DEPTH]
    kept = np.zeros_like(received)
    kept[nearest] = received[nearest] / max(received[nearest[0]], 1e-12)
    return kept


def is_brief(one: Evidence) -> bool:
    """Return whether a memory can match more than half of the query, so that it is no prompt."""
    return (one.max_lexical_score or 1.0) / (one.whole_query_score or 1.0) > 0.5


def fused_scores(one: Evidence, cosine: Numbers, candidates: NDArray[np.bool_]) -> Numbers:
    """Return the scores of all memories by the default fusion, on the scale that the candidates of both legs set."""
    fusion = Fusion()
    floor = -1.0 if fusion.dense_floor is None else fusion.dense_floor
    close = (cosine - cosine[candidates].min()) / (cosine[candidates].max() - floor)
    matching = one.lexical_scores / (one.max_lexical_score or 1.0)
    scored: Numbers = fusion.alpha * close + (1 - fusion.alpha) * matching * matching
    return scored
