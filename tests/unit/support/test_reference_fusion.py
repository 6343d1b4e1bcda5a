"""Fusion as a pure function: what each rule is for, in its smallest example."""

import math
from dataclasses import replace

import pytest

from memory_recall.errors import InvalidInput
from memory_recall.search.fusion import Fusion, SortBy
from tests.support.reference_fusion import Candidate, Fused, Graph, fuse, fuse_with_graph

PLAIN = Fusion(importance=False)


def ids(candidates: list[Candidate], fusion: Fusion = PLAIN, **options: object) -> list[int]:
    return [one.id for one in fuse(candidates, fusion, **options)]  # type: ignore[arg-type]


def test_a_final_lexical_order_is_kept_where_there_is_nothing_to_fuse() -> None:
    """Where the lexical order already has importance in it, importance is not applied again."""
    candidates = [
        Candidate(1, importance=0.0, lexical_rank=1, lexical_score=0.2),
        Candidate(2, importance=1.0, lexical_rank=2, lexical_score=0.9),
    ]
    for sort_by in SortBy:
        assert ids(candidates, Fusion(), sort_by=sort_by, lexical_is_final=True) == [1, 2]


def test_without_candidates_the_fused_list_is_empty() -> None:
    """No candidates, no error."""
    assert fuse([], Fusion()) == []


def test_the_best_of_a_bad_lexical_list_does_not_outvote_the_dense_leg() -> None:
    """One incidental term of many is worth little, however much better than no term it is."""
    incidental = Candidate(1, lexical_rank=1, lexical_score=1.0, dense_rank=2, dense_score=0.3)
    meant = Candidate(2, dense_rank=1, dense_score=0.6)
    assert ids([incidental, meant], max_lexical_score=10.0) == [2, 1]
    assert ids([incidental, meant], Fusion(importance=False, lexical_scale="list"), max_lexical_score=10.0) == [1, 2]


def test_a_row_that_matches_half_of_the_query_gets_a_quarter_of_the_lexical_score() -> None:
    """Terms that match by chance add up; squared they do not outvote the dense leg, as they would by their share."""
    half = Candidate(1, lexical_rank=1, lexical_score=5.0, dense_rank=2, dense_score=0.3)
    meant = Candidate(2, dense_rank=1, dense_score=0.6)
    assert [one.score for one in fuse([half, meant], PLAIN, max_lexical_score=10.0)] == pytest.approx(
        [0.7 * 0.3 / 1.6, 0.075]
    )
    assert ids([half, meant], max_lexical_score=10.0) == [2, 1]
    assert ids([half, meant], Fusion(importance=False, lexical_scale="linear"), max_lexical_score=10.0) == [1, 2]


def test_a_match_of_every_term_outvotes_a_slightly_higher_cosine() -> None:
    """An exact match is a strong sign."""
    exact = Candidate(1, lexical_rank=1, lexical_score=10.0, dense_rank=2, dense_score=0.5)
    close = Candidate(2, dense_rank=1, dense_score=0.6)
    assert ids([exact, close], max_lexical_score=10.0) == [1, 2]


def test_a_row_without_a_vector_counts_as_the_least_similar_of_the_list() -> None:
    """A sensitive row that contains every term stays ahead of rows of low similarity."""
    sensitive = Candidate(1, lexical_rank=1, lexical_score=10.0)
    others = [Candidate(number, dense_rank=number - 1, dense_score=0.3 - number / 100) for number in range(2, 6)]
    assert ids([sensitive, *others], max_lexical_score=10.0)[0] == 1


def test_importance_breaks_ties_and_no_more_when_sorting_by_importance() -> None:
    """The more important of two equals; a better match stays ahead of a more important one."""
    equal = [Candidate(1, 0.2, dense_rank=1, dense_score=0.5), Candidate(2, 0.9, dense_rank=2, dense_score=0.5)]
    assert ids(equal, Fusion(), sort_by=SortBy.IMPORTANCE) == [2, 1]
    unequal = [Candidate(1, 0.2, dense_rank=1, dense_score=0.6), Candidate(2, 0.9, dense_rank=2, dense_score=0.5)]
    assert ids(unequal, Fusion(), sort_by=SortBy.IMPORTANCE) == [1, 2]


def test_importance_cannot_lift_the_last_of_the_list_over_the_first() -> None:
    """The prior multiplies what sets a row apart from the least similar one, not the similarity itself."""
    candidates = [
        Candidate(number, importance=1.0 if number == 50 else 0.0, dense_rank=number, dense_score=0.8 - number / 100)
        for number in range(1, 51)
    ]
    assert ids(candidates, Fusion())[0] == 1


@pytest.mark.parametrize("method", ["convex", "rrf"])
def test_a_time_that_the_query_names_raises_memories_near_it_and_drops_none(method: str) -> None:
    """By half its score and no more, and only where relevance decides."""
    candidates = [Candidate(number, dense_rank=number, dense_score=0.9 - number / 10) for number in (1, 2, 3, 4)]
    timed = [replace(one, closeness=1.0 if one.id in {2, 4} else 0.0) for one in candidates]
    fusion = Fusion(method=method, importance=False)  # type: ignore[arg-type]  # parametrised
    plain, lifted = ({one.id: one.score for one in fuse(pool, fusion)} for pool in (candidates, timed))
    assert lifted == {number: score * (1.5 if number in {2, 4} else 1.0) for number, score in plain.items()}
    assert ids(timed, fusion, sort_by=SortBy.IMPORTANCE) == ids(candidates, fusion, sort_by=SortBy.IMPORTANCE)


def test_reciprocal_ranks_add_up_over_the_legs() -> None:
    """Second in both legs beats first in one."""
    candidates = [
        Candidate(1, lexical_rank=1, lexical_score=9.0),
        Candidate(2, lexical_rank=2, lexical_score=1.0, dense_rank=2, dense_score=0.1),
        Candidate(3, dense_rank=1, dense_score=0.9),
    ]
    scores = {one.id: one.score for one in fuse(candidates, Fusion(method="rrf", k=10, importance=False))}
    assert scores == {1: pytest.approx(1 / 11), 2: pytest.approx(2 / 12), 3: pytest.approx(1 / 11)}


@pytest.mark.parametrize("options", [{"alpha": 1.1}, {"alpha": -0.1}, {"k": -1}, {"dense_weight": -1}])
def test_parameters_out_of_range_are_refused(options: dict[str, float]) -> None:
    """At once, not at the first recall."""
    with pytest.raises(InvalidInput, match="cannot be used"):
        Fusion(**options)  # type: ignore[arg-type]


def test_the_graph_passes_scores_on_by_rarity_and_never_back_to_where_they_came_from() -> None:
    """The rarer concept passes more; one that a single memory has, or too many have, passes nothing."""
    concepts = {1: {1, 2, 3, 4}, 2: {1}, 3: {2}, 4: {2}, **{number: {3} for number in range(10, 20)}}
    received = Graph(concepts, rows=100, most=10).reach([Fused(1, 0.5)])
    rare, common = math.log(100 / 2), math.log(100 / 3)
    assert received == pytest.approx(
        {2: 0.5 * rare / (rare + common) / 2, 3: 0.5 * common / (rare + common) / 3, 4: received[3]}
    )


def test_what_the_graph_reaches_follows_the_first_five_whose_places_and_scores_stay() -> None:
    """A query with more words than a memory can match has no graph, nor has an answer of the lexical leg alone."""
    legs = [Candidate(number, dense_rank=number, dense_score=1 - number / 20) for number in range(1, 9)]
    others = [Candidate(20, dense_score=0.5), Candidate(21, dense_score=0.5)]
    graph = Graph({1: {1}, 20: {1}}, rows=100, most=10)
    plain = fuse(legs, PLAIN)
    found = fuse_with_graph(legs, others, graph, PLAIN, max_lexical_score=6.0, whole_query_score=11.0)
    assert found[:5] == plain[:5]
    assert found[5] == Fused(20, plain[4].score)  # its sum would be greater than the score before it
    assert found[6:] == plain[5:]
    assert fuse_with_graph(legs, others, graph, PLAIN, max_lexical_score=6.0, whole_query_score=12.0) == plain
    lexical = [replace(one, dense_rank=None, lexical_rank=one.id, lexical_score=1.0) for one in legs]
    assert len(fuse_with_graph(lexical, others, graph, PLAIN, max_lexical_score=None, whole_query_score=None)) == 8
