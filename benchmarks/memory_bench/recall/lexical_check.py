"""Measures what the candidate budget of the lexical leg costs, by comparing it with BM25 without a budget."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from memory_bench.harness.runner import RunResult
from memory_bench.harness.scoring import Scorer
from memory_bench.recall.evidence import Evidence
from memory_recall.evaluation import measures

_TOLERANCE = 1e-4  # single precision on one side


@dataclass(frozen=True, slots=True)
class LexicalCheck:
    """The recall@10 of three lexical legs: BM25 with a candidate budget, BM25 without one, and `ts_rank`.

    `overlap` is the share of the ten best rows by BM25 without a budget that BM25 with the budget returns.
    """

    bounded: float
    unbounded: float
    ts_rank: float
    overlap: float


def check(evidence: Sequence[Evidence], bounded: RunResult, ts_rank: RunResult) -> LexicalCheck:
    """Compare BM25 with a candidate budget, BM25 without one, and `ts_rank` on one set."""
    given = {answer.query_id: answer.retrieved for answer in bounded.answers}
    found = [_overlap(one, given[one.query.query_id]) for one in evidence]
    scores = Scorer([one.query for one in evidence]).score([one.lexical[: measures.DEPTH] for one in evidence])
    return LexicalCheck(
        bounded=bounded.means()["recall@10"],
        unbounded=float(np.mean([one["recall@10"] for one in scores])),
        ts_rank=ts_rank.means()["recall@10"],
        overlap=float(np.mean(found)),
    )


def _overlap(evidence: Evidence, given: Sequence[int]) -> float:
    """Return which share of the ten best rows by BM25 without a candidate budget is found among the given rows.

    A given row counts if its score reaches that of the tenth best row.
    """
    best = evidence.lexical[: measures.DEPTH]
    if not best:
        return 1.0 if not given else 0.0
    worst = evidence.lexical_scores[best[-1]]
    scores: Mapping[int, float] = evidence.lexical_scores
    right = sum(scores.get(one, 0.0) >= worst * (1 - _TOLERANCE) for one in given[: len(best)])
    return right / len(best)
