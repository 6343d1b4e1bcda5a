"""The scores of the benchmarks are those of `memory evaluate`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_bench.harness.dataset import Query
from memory_bench.harness.scoring import Scorer
from memory_recall.evaluation import measures
from memory_recall.evaluation.judgements import parse_judgements

IDS = st.integers(1, 30)
JUDGED = st.one_of(
    st.lists(IDS, min_size=1, max_size=8).map(lambda ids: {"relevant_ids": ids}),
    st.dictionaries(IDS.map(str), st.integers(0, 3), max_size=12).map(lambda found: {"grades": {**found, "31": 2}}),
)


@given(st.lists(st.tuples(JUDGED, st.lists(IDS, max_size=25)), min_size=1, max_size=4))
def test_scores_equal_those_of_memory_evaluate(questions: list[tuple[dict[str, object], list[int]]]) -> None:
    """On any judgements and rankings, with repeated ids and without any, both ways to score agree for each question."""
    judged = [parse_judgements(record) for record, _ in questions]
    rankings = [ranking for _, ranking in questions]
    queries = [Query("q", "x", "all", None, one.relevant, grades=one.grades) for one in judged]
    found = Scorer(queries).score(rankings)
    for one, ranking, scores in zip(judged, rankings, found, strict=True):
        assert scores == pytest.approx(measures.score(ranking, one.relevant, one.grades).named(), abs=1e-9)


def test_a_repeated_id_changes_no_score() -> None:
    """A retriever that gives its only answer three times has no better scores than one that gives it once."""
    scorer = Scorer([Query("q", "x", "all", None, frozenset({3, 4}))])
    assert scorer.score([[3, 3, 3]]) == scorer.score([[3]])
    assert scorer.score([[9, 9, 3]]) == scorer.score([[9, 3]])
