"""The four retrieval measures of the evaluation, as pure functions of one ranked list.

Recall and reciprocal rank ask only whether a document is relevant. nDCG also takes grades; a grade is a document's
gain, as in trec_eval. A document that a list repeats counts only where it stands first, as if the repetitions were not
there. The measures are undefined for a question without relevant documents; `parse_judgements` refuses such questions.
"""

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TypeVar

Id = TypeVar("Id", bound=int | str)

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


def score(ranked: Sequence[Id], relevant: AbstractSet[Id], grades: Mapping[Id, int] | None = None) -> Scores:
    """Return all measures of one ranked list.

    `grades` holds the grades of judged documents; without it every relevant document has the same gain.
    """
    distinct = list(dict.fromkeys(ranked))
    return Scores(
        recall_5=_recall_at(distinct, relevant, 5),
        recall_10=_recall_at(distinct, relevant, 10),
        ndcg_10=_ndcg_at(distinct, grades or dict.fromkeys(relevant, 1), 10),
        mrr=_reciprocal_rank(distinct, relevant, DEPTH),
    )


def _recall_at(ranked: Sequence[Id], relevant: AbstractSet[Id], depth: int) -> float:
    """Return the share of the relevant documents that are among the first `depth`."""
    return len(relevant & set(ranked[:depth])) / len(relevant)


def _ndcg_at(ranked: Sequence[Id], grades: Mapping[Id, int], depth: int) -> float:
    """Return the discounted cumulative gain of the first `depth`, divided by that of an ideal list."""
    gain = _discounted([grades.get(document, 0) for document in ranked[:depth]])
    return gain / _discounted(sorted(grades.values(), reverse=True)[:depth])


def _discounted(gains: Sequence[int]) -> float:
    """Return the sum of the gains, each divided by the binary logarithm of its rank plus one."""
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, start=1))


def _reciprocal_rank(ranked: Sequence[Id], relevant: AbstractSet[Id], depth: int) -> float:
    """Return 1 / rank of the first relevant document, or 0 if none is among the first `depth`."""
    return next((1 / rank for rank, document in enumerate(ranked[:depth], start=1) if document in relevant), 0.0)


def mean(scores: Sequence[Scores]) -> Scores:
    """Return the mean of each measure over questions."""
    count = len(scores)
    return Scores(
        recall_5=sum(one.recall_5 for one in scores) / count,
        recall_10=sum(one.recall_10 for one in scores) / count,
        ndcg_10=sum(one.ndcg_10 for one in scores) / count,
        mrr=sum(one.mrr for one in scores) / count,
    )
