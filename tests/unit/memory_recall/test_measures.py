"""Our measures equal those of ir_measures."""

import ir_measures
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ir_measures import RR, R, nDCG

from memory_recall.evaluation import measures
from memory_recall.evaluation.judgements import HIGHEST_GRADE, RELEVANT_FROM

IDS = st.integers(0, 40)
THEIRS = [R(rel=RELEVANT_FROM) @ 5, R(rel=RELEVANT_FROM) @ 10, nDCG @ 10, RR(rel=RELEVANT_FROM) @ 10]


def reference(ranked: list[int], grades: dict[int, int]) -> list[float]:
    qrels = [ir_measures.Qrel("q", str(document), grade) for document, grade in grades.items()]
    run = [ir_measures.ScoredDoc("q", str(document), -rank) for rank, document in enumerate(ranked)]
    found = ir_measures.calc_aggregate(THEIRS, qrels, run)
    return [found[measure] for measure in THEIRS]


def values(scores: measures.Scores) -> list[float]:
    return list(scores.named().values())


@given(ranked=st.lists(IDS, unique=True, max_size=30), relevant=st.sets(IDS, min_size=1, max_size=15))
def test_measures_equal_those_of_ir_measures(ranked: list[int], relevant: set[int]) -> None:
    """Recall, nDCG and reciprocal rank agree with the reference implementation on any ranking."""
    ours = values(measures.score(ranked, relevant))
    assert ours == pytest.approx(reference(ranked, dict.fromkeys(relevant, RELEVANT_FROM)), abs=1e-9)


@given(
    ranked=st.lists(IDS, unique=True, max_size=30),
    grades=st.dictionaries(IDS, st.integers(0, HIGHEST_GRADE), max_size=20),
    answer=IDS,
)
def test_graded_measures_equal_those_of_ir_measures(ranked: list[int], grades: dict[int, int], answer: int) -> None:
    """A grade is a gain of nDCG, and only from the grade of a partial answer on is a memory relevant to the others."""
    grades = {**grades, answer: HIGHEST_GRADE}
    relevant = {one for one, grade in grades.items() if grade >= RELEVANT_FROM}
    assert values(measures.score(ranked, relevant, grades)) == pytest.approx(reference(ranked, grades), abs=1e-9)


@given(ranked=st.lists(IDS, max_size=60), relevant=st.sets(IDS, min_size=1, max_size=15))
def test_a_repeated_id_changes_no_measure(ranked: list[int], relevant: set[int]) -> None:
    """Of repeated ids only the first counts, and no measure exceeds one."""
    once = measures.score(list(dict.fromkeys(ranked)), relevant)
    assert measures.score(ranked, relevant) == once
    assert max(values(once)) <= 1 + 1e-12


def test_one_answer_given_three_times_is_one_answer() -> None:
    """A retriever that repeats the only answer has found it once."""
    assert values(measures.score([3, 3, 3], {3})) == [1, 1, 1, 1]
    assert measures.score([7, 7, 3], {3}).mrr == 0.5


def test_the_mean_counts_every_question_once() -> None:
    """A question with many relevant documents weighs as much as one with a single one."""
    perfect, hopeless = measures.score([1, 2], {1}), measures.score([1, 2], {3, 4, 5})
    assert measures.mean([perfect, hopeless]).named() == {"recall@5": 0.5, "recall@10": 0.5, "ndcg@10": 0.5, "mrr": 0.5}
