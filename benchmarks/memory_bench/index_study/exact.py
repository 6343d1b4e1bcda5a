"""What exact searches keep of the true neighbours: the most that an index over the same expression can find."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from memory_bench.index_study.designs import CANDIDATES, LEAST_RECALL, SMALLER, Kind
from memory_bench.index_study.rankings import Places, candidates, nearest, nearest_by_signs, rotation
from memory_bench.index_study.vectors import Halves, Vectors
from memory_recall.hnsw.search_effort import DENSE_DEPTH

ROTATED = "centred signs, rotated"
_SAMPLE = 300  # rows whose neighbours give the local dimensionality


@dataclass(frozen=True, slots=True)
class ExactShares:
    """The share of the fifty true neighbours among the first candidates of exact searches, by expression and number.

    `name` says which vectors, and `dimensionality` is the local dimensionality of their rows. The expressions are those
    of the smaller kinds, and `ROTATED`, which no index can have.
    """

    name: str
    dimensions: int
    rows: int
    dimensionality: float
    shares: Mapping[str, Sequence[float]]

    @property
    def possible(self) -> tuple[Kind, ...]:
        """The kinds whose index might find as much as the rule demands, with the most candidates."""
        return tuple(kind for kind in SMALLER if self.shares[kind][-1] >= LEAST_RECALL)


def exact_shares(vectors: Vectors, name: str) -> ExactShares:
    """Return what exact searches keep of these vectors."""
    rows, asked, mean, most = vectors.rows, vectors.questions, vectors.mean, max(CANDIDATES)
    true = nearest(rows, asked, DENSE_DEPTH)
    found: dict[str, Places] = {kind: candidates(kind, rows, asked, most, mean) for kind in SMALLER}
    turn = rotation(vectors.dimensions)
    found[ROTATED] = nearest_by_signs(
        (rows - mean).astype(np.float32) @ turn, (asked - mean).astype(np.float32) @ turn, most
    )
    shares = {one: shares_kept(places, true, CANDIDATES) for one, places in found.items()}
    return ExactShares(name, vectors.dimensions, len(rows), local_dimensionality(rows), shares)


def shares_kept(found: Places, true: Places, counts: Sequence[int]) -> list[float]:
    """Return the mean share of the fifty true neighbours that are among the first `count` candidates, by count."""
    deep = true[:, :DENSE_DEPTH]
    return [
        float(np.mean([np.isin(wanted, given).mean() for wanted, given in zip(deep, found[:, :count], strict=True)]))
        for count in counts
    ]


def local_dimensionality(rows: Halves) -> float:
    """Return the mean local dimensionality of a sample of rows: maximum likelihood over fifty neighbours."""
    sample = np.random.default_rng(0).choice(len(rows), min(_SAMPLE, len(rows)), replace=False)
    near = nearest(rows, rows[sample], DENSE_DEPTH + 1)
    found = []
    for place, others in zip(sample, near, strict=True):
        differences = rows[others[others != place][:DENSE_DEPTH]].astype(np.float64) - rows[place]
        distances = np.linalg.norm(differences, axis=1)
        distances = distances[distances > 0]
        found.append(-1 / np.log(distances[:-1] / distances[-1]).mean())
    return float(np.mean(found))
