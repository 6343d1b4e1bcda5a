"""Measures what the candidate budget of the lexical leg costs: BM25 with the budget against BM25 without it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from memory_bench.harness.runner import RunResult
from memory_bench.recall.evidence import Evidence
from memory_recall.evaluation import measures

_TOLERANCE = 1e-4  # single precision on one side


@dataclass(frozen=True, slots=True)
class LexicalCheck:
    """The recall@10 of three lexical legs, and the overlap of bounded and unbounded BM25.

    `overlap` is the share of the ten best rows by unbounded BM25 that the bounded leg returns.
    """

    bounded: float
    unbounded: float
    ts_rank: float
    overlap: float


def check(evidence: Sequence[Evidence], bounded: RunResult, ts_rank: RunResult) -> LexicalCheck:
    """Compare bounded BM25, unbounded BM25 and `ts_rank` on one set."""
    given = {answer.query_id: answer.retrieved for answer in bounded.answers}
    found = [_overlap(one, given[one.query.query_id]) for one in evidence]
    unbounded = [measures.recall_at(one.lexical, one.query.relevant, measures.DEPTH) for one in evidence]
    return LexicalCheck(
        bounded=bounded.means()["recall@10"],
        unbounded=float(np.mean(unbounded)),
        ts_rank=ts_rank.means()["recall@10"],
        overlap=float(np.mean(found)),
    )


def _overlap(evidence: Evidence, given: Sequence[int]) -> float:
    """Return the share of the first ten given rows whose scores reach that of the tenth best row by unbounded BM25."""
    best = evidence.lexical[: measures.DEPTH]
    if not best:
        return 1.0 if not given else 0.0
    worst = evidence.lexical_scores[best[-1]]
    scores: Mapping[int, float] = evidence.lexical_scores
    right = sum(scores.get(one, 0.0) >= worst * (1 - _TOLERANCE) for one in given[: len(best)])
    return right / len(best)
