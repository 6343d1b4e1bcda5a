"""Our measures equal those of ir_measures."""

import ir_measures
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ir_measures import RR, R, nDCG

from memory_recall.evaluation import measures


@given(
    ranked=st.lists(st.integers(0, 40), unique=True, max_size=30),
    relevant=st.sets(st.integers(0, 40), min_size=1, max_size=15),
)
def test_measures_equal_those_of_ir_measures(ranked: list[int], relevant: set[int]) -> None:
    """Recall, nDCG and reciprocal rank agree with the reference implementation on any ranking."""
    qrels = [ir_measures.Qrel("q", str(document), 1) for document in relevant]
    run = [ir_measures.ScoredDoc("q", str(document), -rank) for rank, document in enumerate(ranked)]
    expected = ir_measures.calc_aggregate([R @ 5, R @ 10, nDCG @ 10, RR @ 10], qrels, run)
    ours = measures.score(ranked, relevant)
    assert [expected[R @ 5], expected[R @ 10], expected[nDCG @ 10], expected[RR @ 10]] == pytest.approx(
        [ours.recall_5, ours.recall_10, ours.ndcg_10, ours.mrr], abs=1e-9
    )


def test_the_mean_counts_every_question_once() -> None:
    """A question with many relevant documents weighs as much as one with a single one."""
    perfect, hopeless = measures.score([1, 2], {1}), measures.score([1, 2], {3, 4, 5})
    assert measures.mean([perfect, hopeless]).named() == {"recall@5": 0.5, "recall@10": 0.5, "ndcg@10": 0.5, "mrr": 0.5}
