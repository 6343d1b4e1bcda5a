"""Makes concepts one whose names lie near each other as vectors, such as two spellings of one word."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from memory_bench.graph.concept_graph import LEAST_MEMORIES
from memory_bench.harness.dataset import Memory
from memory_recall.embedding.wire import Vectors
from memory_recall.graph.concepts import Source, concepts_of

THRESHOLDS = (0.8, 0.85, 0.9, 0.95)
_CHUNK = 1_000  # rows of the matrix of cosines that are in memory at a time


def shared_concepts(memories: Sequence[Memory], source: Source) -> list[str]:
    """Return the concepts that at least two memories have, those that most memories have first.

    A concept with a digit is left out: versions, dates and addresses that look alike are not the same.
    """
    counted = Counter(
        concept
        for one in memories
        for concept in concepts_of(one.content, one.tags, one.expanded_keywords, source=source)
    )
    shared = [one for one, count in counted.items() if count >= LEAST_MEMORIES and not any(map(str.isdigit, one))]
    return sorted(shared, key=lambda one: (-counted[one], one))


def same_concepts(concepts: Sequence[str], vectors: Vectors, threshold: float) -> Mapping[str, str]:
    """Return which concepts count as which others, because the cosine of their vectors is at least `threshold`.

    `concepts` begin with those that most memories have, and `vectors` are theirs, shape (concepts, dimensions). A
    concept counts as the nearest one of those before it that count as themselves.
    """
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    same: dict[str, str] = {}
    for start in range(0, len(concepts), _CHUNK):
        cosines = unit[start : start + _CHUNK] @ unit[: start + _CHUNK].T
        for row, found in enumerate(cosines):
            place = start + row
            near = [one for one in np.flatnonzero(found[:place] >= threshold).tolist() if concepts[one] not in same]
            if near:
                same[concepts[place]] = concepts[near[int(np.argmax(found[near]))]]
    return same
