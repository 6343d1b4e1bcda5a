"""The four retrieval measures of the evaluation, as pure functions of one ranked list.

Relevance is binary. The measures are undefined for a question without relevant documents; `parse_questions` refuses
such questions.
"""

import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

MEASURES = ("recall@5", "recall@10", "ndcg@10", "mrr")
DEPTH = 10  # how many results every measure needs


@dataclass(frozen=True, slots=True)
class Scores:
    """The four measures of one question, or their means over many questions."""

    recall_5: float
    recall_10: float
    ndcg_10: float
    mrr: float

    def named(self) -> dict[str, float]:
        """Return the measures by the names that reports use, such as recall@10."""
        return dict(zip(MEASURES, (self.recall_5, self.recall_10, self.ndcg_10, self.mrr), strict=True))


def recall_at(ranked: Sequence[int], relevant: AbstractSet[int], depth: int) -> float:
    """Return the share of the relevant documents that are among the first `depth`."""
    return len(relevant & set(ranked[:depth])) / len(relevant)


def ndcg_at(ranked: Sequence[int], relevant: AbstractSet[int], depth: int) -> float:
    """Return the discounted cumulative gain of the first `depth`, divided by that of an ideal list."""
    gain = sum(1 / math.log2(rank + 2) for rank, document in enumerate(ranked[:depth]) if document in relevant)
    ideal = sum(1 / math.log2(rank + 2) for rank in range(min(depth, len(relevant))))
    return gain / ideal


def reciprocal_rank(ranked: Sequence[int], relevant: AbstractSet[int], depth: int = DEPTH) -> float:
    """Return 1 / rank of the first relevant document, or 0 if none is among the first `depth`."""
    return next((1 / rank for rank, document in enumerate(ranked[:depth], start=1) if document in relevant), 0.0)


def score(ranked: Sequence[int], relevant: AbstractSet[int]) -> Scores:
    """Return all measures of one ranked list."""
    return Scores(
        recall_5=recall_at(ranked, relevant, 5),
        recall_10=recall_at(ranked, relevant, 10),
        ndcg_10=ndcg_at(ranked, relevant, 10),
        mrr=reciprocal_rank(ranked, relevant),
    )


def mean(scores: Sequence[Scores]) -> Scores:
    """Return the mean of each measure over questions."""
    count = len(scores)
    return Scores(
        recall_5=sum(one.recall_5 for one in scores) / count,
        recall_10=sum(one.recall_10 for one in scores) / count,
        ndcg_10=sum(one.ndcg_10 for one in scores) / count,
        mrr=sum(one.mrr for one in scores) / count,
    )
