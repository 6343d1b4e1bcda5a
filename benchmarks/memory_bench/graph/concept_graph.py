"""The concept graph of one scope: memories, the concepts that join them, and the ways from some memories to others.

The graph has two kinds of nodes, memories and concepts, and a link wherever a memory has a concept. Memories that share
a concept are one hop apart. All ways are computed for many questions at once, with sparse matrices.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import sparse

from memory_bench.studies.questions import Numbers

Walk = Literal["1 hop", "2 hops", "12 hops", "cosine"]
WALKS: tuple[Walk, ...] = ("1 hop", "2 hops", "12 hops", "cosine")

DECAY = 0.5  # how much of a score the next hop still has
LEAST_MEMORIES = 2
_ALWAYS_ALLOWED = 5  # memories that a concept may have in a scope of any size
_HOPS: Mapping[str, int] = {"1 hop": 1, "2 hops": 2, "12 hops": 12}


@dataclass(frozen=True, slots=True)
class ConceptGraph:
    """The graph of one scope.

    `links` has the shape (memories, concepts); a link weighs the logarithm of the number of memories over the number
    of those that have the concept. `column` holds the column of each concept.
    """

    column: Mapping[str, int]
    links: Any

    @staticmethod
    def build(concepts: Sequence[Collection[str]], *, common: float) -> "ConceptGraph":
        """Return the graph of memories with these concepts, in their order.

        A concept joins memories if at least two of them have it, and at most the share `common` (0 to 1) or five.
        """
        counted = Counter(one for found in concepts for one in found)
        most = max(_ALWAYS_ALLOWED, int(common * len(concepts)))
        column = {
            one: place
            for place, one in enumerate(
                sorted(one for one, count in counted.items() if LEAST_MEMORIES <= count <= most)
            )
        }
        pairs = [(row, column[one]) for row, found in enumerate(concepts) for one in found if one in column]
        rows, columns = (np.array(one, dtype=np.int64) for one in (zip(*pairs, strict=True) if pairs else ((), ())))
        names = list(column)
        rarity = np.array([np.log(len(concepts) / counted[names[place]]) for place in columns])
        return ConceptGraph(column, sparse.csr_array((rarity, (rows, columns)), shape=(len(concepts), len(column))))

    def named(self, concepts: Collection[str]) -> int:
        """Return how many of these concepts join memories of the scope."""
        return sum(one in self.column for one in concepts)

    def agreement(self, memories: Sequence[int]) -> float:
        """Return the share (0 to 1) of these memories, given by place, that share a concept with another of them."""
        if not len(memories):
            return 0.0
        chosen = self.links[list(memories)]
        shared = (chosen @ chosen.T).toarray()
        np.fill_diagonal(shared, 0.0)
        return float((shared.max(axis=1, initial=0.0) > 0).mean())

    def reach(self, starts: Numbers, walk: Walk) -> Numbers:
        """Return the scores of all memories for each question, shape (memories, questions).

        `starts` has the same shape and holds the scores of the memories from which a question's walk begins.
        """
        if walk == "cosine":
            return self._nearest(starts)
        out, back = _normalised(self.links), _normalised(self.links.T)
        returning = np.asarray((out * back.T).sum(axis=1)).ravel()[:, None]
        total, score = np.zeros_like(starts), starts / np.maximum(starts.sum(axis=0), 1e-12)
        for hop in range(_HOPS[walk]):
            score = back.T @ (out.T @ score) - returning * score
            total += DECAY**hop * score
        return total

    def _nearest(self, starts: Numbers) -> Numbers:
        length = np.sqrt(np.asarray((self.links * self.links).sum(axis=1)).ravel())
        unit = sparse.csr_array(self.links * (1 / np.maximum(length, 1e-12))[:, None])
        best = np.zeros_like(starts)
        for question in range(starts.shape[1]):
            first = np.flatnonzero(starts[:, question])
            cosines = (unit[first] @ unit.T).toarray() * starts[first, question][:, None]
            cosines[np.arange(len(first)), first] = 0.0
            best[:, question] = cosines.max(axis=0, initial=0.0)
        return best


def _normalised(links: Any) -> Any:  # noqa: ANN401  (scipy's sparse arrays have no types)
    """Return the links with each row's sum scaled to one; a row without links stays empty."""
    sums = np.asarray(links.sum(axis=1)).ravel()
    return sparse.csr_array(links * (1 / np.where(sums > 0, sums, 1.0))[:, None])
