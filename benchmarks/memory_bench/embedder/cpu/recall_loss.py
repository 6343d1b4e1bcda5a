"""What recall loses where vectors are computed in eight bits, by exact search of labelled sets."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from memory_bench.embedder.subject import Vectors
from memory_bench.harness.dataset import Dataset
from memory_bench.harness.scoring import Scorer
from memory_recall.evaluation.significance import compare
from memory_recall.schema.columns.keys import MemoryId

_MEASURE, _DEPTH = "recall@10", 10
_TEXTS = 256  # sent to a peer at a time

Embed = Callable[[Sequence[str]], Vectors]
"""Returns the unit vectors of texts, one row each."""


@dataclass(frozen=True, slots=True)
class RecallLoss:
    """Mean recall@10 of one set by exact vectors and by those of `subject`, and how sure the difference is.

    `low` and `high` bound what is lost with 95 % confidence; `p_value` is that of a paired randomisation test.
    """

    subject: str
    name: str
    questions: int
    exact: float
    lost: float
    low: float
    high: float
    p_value: float


def recall_loss(dataset: Dataset, exact: Embed, subject: str, rounded: Embed) -> RecallLoss:
    """Search a set by vectors of `exact` and by those of a subject, each question among the memories of its scope."""
    scorer = Scorer(dataset.queries)
    scores = [[one[_MEASURE] for one in scorer.score(_rankings(dataset, embed))] for embed in (rounded, exact)]
    found = compare(*scores)
    return RecallLoss(
        subject,
        dataset.name,
        len(dataset.queries),
        round(float(np.mean(scores[1])), 4),
        *(round(figure, 4) for figure in (found.difference, found.low, found.high, found.p_value)),
    )


def _rankings(dataset: Dataset, embed: Embed) -> list[list[MemoryId]]:
    memories = _embedded(embed, [memory.content for memory in dataset.memories])
    queries = _embedded(embed, [query.text for query in dataset.queries])
    scopes = np.array([memory.scope or "" for memory in dataset.memories])
    found: list[list[MemoryId]] = []
    for query, vector in zip(dataset.queries, queries, strict=True):
        cosines = memories @ vector
        if query.scope is not None:
            cosines = np.where(scopes == query.scope, cosines, -np.inf)
        best = np.argsort(-cosines, kind="stable")[:_DEPTH]
        found.append([dataset.memories[place].id for place in best if np.isfinite(cosines[place])])
    return found


def _embedded(embed: Embed, texts: Sequence[str]) -> Vectors:
    return np.concatenate([embed(texts[first : first + _TEXTS]) for first in range(0, len(texts), _TEXTS)])
