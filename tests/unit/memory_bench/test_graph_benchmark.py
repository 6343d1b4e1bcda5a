"""The concept graph's benchmark on invented data that is small enough to check by hand."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memory_bench.graph.ablation import ablate
from memory_bench.graph.choice import choose, nested
from memory_bench.graph.concept_graph import WALKS, ConceptGraph
from memory_bench.graph.nearness import same_concepts, shared_concepts
from memory_bench.graph.sets import GraphMeasurements, GraphScores, measure_graph, rankings, score_graph
from memory_bench.graph.settings import FACTORS, Leg, Question, Setting, Weighting, first_family, second_family
from memory_bench.graph.tables import write
from memory_bench.graph.verdict import Outcome, judge, judge_family
from memory_bench.harness.dataset import Dataset, Memory, Query
from memory_bench.harness.scoring import Scorer
from memory_bench.harness.vectors import EmbeddedSet
from memory_bench.recall.evidence import Lexemes, gather
from memory_bench.studies.gains import corrected_p, greatest_by_chance
from memory_bench.studies.questions import LabelledSet
from memory_recall import Fusion
from memory_recall.evaluation.significance import Comparison

STRONG = (Leg("words", 0.1, 5, "1 hop"), Weighting(0.2, "plain", 5))
WEAK = (Leg("words", 0.1, 5, "1 hop"), Weighting(0.05, "plain", 5))


def filled(*concepts: str, count: int = 60) -> list[set[str]]:
    """Return memories with these concepts, one each or several separated by spaces, and others without any."""
    return [set(one.split()) for one in concepts] + [set() for _ in range(count - len(concepts))]


def starts(count: int, *places: int) -> "np.typing.NDArray[np.float64]":
    """Return starting scores of 1 at these places, for one question."""
    found = np.zeros((count, 1))
    found[list(places)] = 1.0
    return found


def test_a_concept_of_one_memory_or_of_too_many_joins_none() -> None:
    """A tenth of sixty memories may share a concept, and five of any number."""
    graph = ConceptGraph.build(filled(*["often rare"] * 2, *["often"] * 5, "single"), common=0.1)
    assert set(graph.column) == {"rare"}
    assert set(ConceptGraph.build(filled(*["often"] * 5, count=10), common=0.1).column) == {"often"}


def test_a_walk_reaches_further_memories_by_further_hops_with_half_the_score() -> None:
    """From the first memory one hop reaches the second, and only two hops the third, which shares nothing with it."""
    graph = ConceptGraph.build(filled("a", "a b", "b"), common=0.1)
    one, two = (graph.reach(starts(60, 0), walk)[:, 0] for walk in ("1 hop", "2 hops"))  # type: ignore[arg-type]
    assert np.flatnonzero(one).tolist() == [1]
    assert np.flatnonzero(two).tolist() == [0, 1, 2]
    assert one[1] == pytest.approx(0.5)
    assert two[2] == pytest.approx(0.5 * one[1] * 0.25)


@pytest.mark.parametrize("walk", WALKS)
def test_nothing_returns_to_a_memory_from_itself(walk: str) -> None:
    """A memory whose concepts lead nowhere else has no score, whatever the walk."""
    graph = ConceptGraph.build(filled("a b", "c", "c"), common=0.1)
    assert not graph.reach(starts(60, 0), walk).any()  # type: ignore[arg-type]


def test_agreement_is_the_share_of_first_memories_that_share_a_concept() -> None:
    """Two of three share one; the third has a concept that only other memories have."""
    graph = ConceptGraph.build(filled("a", "a", "b", "b"), common=0.1)
    assert graph.agreement([0, 1, 2]) == pytest.approx(2 / 3)
    assert graph.agreement([]) == 0
    assert graph.named({"a", "unknown"}) == 1


def test_the_factors_of_a_weight_are_shares() -> None:
    """A question that doubts nothing, agrees in nothing and names nothing has no weight but the plain one."""
    none, all_of_it = Question(0.0, 0.0, 0, 0.0), Question(1.0, 1.0, 7, 1.0)
    assert [name for name, factor in FACTORS.items() if factor(none)] == ["plain"]
    assert {factor(all_of_it) for factor in FACTORS.values()} == {1.0}


def test_a_question_inside_a_prompt_has_no_weight_where_brief_ones_alone_have_one() -> None:
    """The limit is one half; above it the weight is whole, and a squared share falls faster than the share."""
    prompt, question = Question(1.0, 1.0, 2, 0.5), Question(1.0, 1.0, 2, 0.6)
    assert [FACTORS["brief above .5"](one) for one in (prompt, question)] == [0.0, 1.0]
    assert [FACTORS["brief squared"](one) for one in (prompt, question)] == pytest.approx([0.25, 0.36])


def labelled(*, scope: str | None = None) -> LabelledSet:
    """Return a set of 130 memories in which the question's second answer is reached over a word of the first only.

    The first answer holds the question's word and is nearest, the second shares the word `bridge` with it. A memory of
    another scope shares the word as well.
    """
    rows = [Memory(1, "harbour bridge", scope="x"), Memory(2, "bridge", scope="x"), Memory(3, "bridge", scope="y")]
    rows += [Memory(number, f"filler{number:03}", scope="x") for number in range(4, 131)]
    query = Query("q", "harbour?", "multihop", scope, frozenset({1, 2}))
    dataset = Dataset("set", tuple(rows), (query,), 0, "")
    lexemes = Lexemes(tuple(tuple(one.content.split()) for one in rows), (("harbour",),))
    angles = np.linspace(0.1, 1.0, len(rows))
    angles[1:3] = 1.0
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    embedded = EmbeddedSet("m", vectors, np.array([[1.0, 0.0]], dtype=np.float32))
    return LabelledSet(dataset, gather(dataset, lexemes, embedded), embedded, Fusion())


def test_the_graph_reaches_a_memory_that_neither_other_leg_has() -> None:
    """Without the graph the second answer is not among the ten; with it, it is, behind the five that stay."""
    one = labelled()
    scores = score_graph(one, [WEAK, STRONG])
    assert scores.plain[0, 0] == 0.5
    assert scores.scores[:, 0, 0].tolist() == [0.5, 1.0]
    assert (scores.missing.tolist(), scores.beyond.tolist()) == ([1], [[1], [1]])
    (ranked,) = rankings(one, STRONG)
    (plain,) = rankings(one, (STRONG[0], Weighting(0.0, "plain", 0)))
    assert ranked[:5] == plain[:5]
    assert 2 in ranked[5:]


def test_the_walk_does_not_leave_the_scope() -> None:
    """The memory of the other scope shares the word, and is neither reached nor counted."""
    (ranked,) = rankings(labelled(scope="x"), STRONG)
    assert 2 in ranked
    assert 3 not in ranked
    assert 3 in rankings(labelled(), STRONG)[0]


def test_scores_are_those_of_the_harness() -> None:
    """Graded judgements, the graph leg and its absence are scored as everywhere else."""
    one = labelled()
    (query,) = one.dataset.queries
    graded = replace(query, grades={1: 2, 2: 3, 4: 1}, relevant=frozenset({1, 2}))
    evidence = [replace(each, query=graded) for each in one.evidence]
    one = replace(one, dataset=replace(one.dataset, queries=(graded,)), evidence=evidence)
    found, scorer = score_graph(one, [STRONG]), Scorer([graded])
    (expected,) = scorer.score(rankings(one, STRONG))
    assert found.scores[0, 0].tolist() == pytest.approx([expected["recall@10"], expected["ndcg@10"]])
    (plain,) = ablate(one, None)["B"]
    assert found.plain[0].tolist() == pytest.approx([plain["recall@10"], plain["ndcg@10"]])


def test_configuration_a_of_the_ablation_has_the_graph_leg() -> None:
    """Only A finds the second answer; without an admissible setting it is B."""
    found = ablate(labelled(), STRONG)
    assert [found[name][0]["recall@10"] for name in "ABCD"] == [1.0, 0.5, 0.5, 0.5]
    assert ablate(labelled(), None)["A"] == found["B"]


def gained(name: str, *gains: float, settings: Sequence[Setting] = (WEAK, STRONG), count: int = 201) -> GraphScores:
    """Return a set in which each setting raises both scores of two in three multi-hop questions by its gain."""
    plain = np.full((count, 2), 0.4)
    change = np.tile([1.5, 1.5, 0.0], count // 3)[None, :, None] * np.array(gains)[:, None, None]
    scores = (plain + change * np.ones((1, 1, 2))).astype(np.float32)
    nothing = np.zeros(count, dtype=np.int64)
    beyond = np.ones((len(gains), count), dtype=np.int16)
    return GraphScores(name, ("multihop",) * count, tuple(settings), plain, scores, beyond, nothing)


def test_a_setting_that_makes_a_set_worse_is_not_chosen_and_of_equal_ones_the_smaller_weight_is() -> None:
    """The stronger setting gains more on average, but loses on the second set."""
    assert choose([gained("a", 0.03, 0.2), gained("b", 0.03, -0.01)]) == (0, 1)
    assert choose([gained("a", 0.03, 0.2), gained("b", 0.03, 0.2)]) == (1, 2)
    assert choose([gained("a", 0.03, 0.0315)]) == (0, 2)
    assert choose([gained("a", -0.1, -0.1)]) == (None, 0)


def test_a_set_is_judged_by_what_the_others_choose() -> None:
    """Set a alone would forbid the stronger setting, which is therefore chosen for it, and loses there."""
    sets = [gained("a", 0.03, -0.1), gained("b", 0.03, 0.2), gained("c", 0.03, 0.2)]
    assert [(fold.judged, fold.setting) for fold in nested(sets)] == [("a", 1), ("b", 0), ("c", 0)]
    found = judge_family([gained("a", 0.03, -0.1, count=60), gained("homelab", 0.03, 0.2, count=60)], seed=0)
    assert found.sets["a"]["recall@10"].difference == pytest.approx(-0.1)
    assert (found.questions, found.beyond, set(found.own)) == (120, 120, {"", "multihop"})


def change(recall: float, ndcg: float | None = None, *, p: float = 0.001) -> dict[str, Comparison]:
    """Return the changes of both measures, with one p value."""
    return {
        "recall@10": Comparison(recall, recall, recall, p),
        "ndcg@10": Comparison(recall if ndcg is None else ndcg, recall, recall, p),
    }


FOUND: dict[str, Any] = {"beyond": 3, "missing": 5}


def outcome(multihop: dict[str, Comparison], *, p: float = 0.001, count: int = 600, **others: Any) -> Outcome:
    """Return an outcome in which no set changes unless `others` says so."""
    nothing = {"a": change(0), "homelab": change(0)}
    fields = {"questions": count, "multihop": multihop, "p": p, "sets": nothing, "prompts": {}, "own": {}, **others}
    return Outcome(**fields, **FOUND)


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (outcome(change(0.02)), "adopted"),
        (outcome(change(0.0199)), "opt-in"),
        (outcome(change(0.03), count=599), "opt-in"),
        (outcome(change(0.03, -0.001)), "rejected"),
        (outcome(change(0.03), p=0.01), "rejected"),
        (outcome(change(0.0099)), "rejected"),
        (outcome(change(0.03), sets={"a": change(-0.0021)}), "rejected"),
        (outcome(change(0.03), sets={"a": change(-0.002, -0.003, p=0.05)}), "adopted"),
        (outcome(change(0.03), sets={"a": change(-0.0021, p=0.05)}), "opt-in"),
        (outcome(change(0.03), own={"": change(-0.0021, p=0.05)}), "opt-in"),
        (outcome(change(0.03), own={"": change(0), "exact": change(-0.1, p=0.05)}), "adopted"),
        (outcome(change(0.03), own={"": change(0), "exact": change(-0.1, p=0.04)}), "opt-in"),
        (outcome(change(0.03), own={"": change(-0.1, p=0.04)}), "rejected"),
        (outcome(change(0.03), prompts={"a": change(-0.002, -0.003)}), "adopted"),
        (outcome(change(0.03), prompts={"a": change(-0.0021, p=0.05)}), "opt-in"),
        (outcome(change(0.03), prompts={"a": change(-0.0021)}), "rejected"),
    ],
)
def test_the_verdict_is_that_of_the_rules(found: Outcome, verdict: str) -> None:
    """The gain on multi-hop questions decides, whether a set loses, and whether a stratum of our own set does."""
    assert found.verdict == verdict


def test_the_last_line_has_what_the_rules_look_at() -> None:
    """The set that fares worst is named by its change, and what only the graph leg has by its number."""
    found = outcome(change(0.0301, 0.01), sets={"a": change(0.5, 0.4), "b": change(-0.001, 0.2)})
    assert found.figures() == {
        "multihop_questions": 600, "recall@10_gain": 0.0301, "p": 0.001, "ndcg@10_gain": 0.01,
        "worst_set_recall@10": -0.001, "worst_set_ndcg@10": 0.2, "reached_beyond_both_legs": 3, "verdict": "adopted",
    }  # fmt: skip


def test_a_p_value_rises_with_the_number_of_settings_that_were_tried() -> None:
    """The greatest of forty gains by chance is greater than a single one."""
    chance = np.random.default_rng(0)
    noise = chance.normal(0, 0.2, (40, 100)).astype(np.float32)
    alone, among = (greatest_by_chance(noise[:count], seed=1) for count in (1, 40))
    assert corrected_p(alone, 0.05) < 0.05 < corrected_p(among, 0.05)
    assert corrected_p(among, 10.0) == pytest.approx(1 / 10_001)


def test_all_settings_of_the_decision_record_are_compared() -> None:
    """The first family has 32 legs and 48 weightings, the second two of these legs and 64 weightings, each once."""
    assert len(set(first_family())) == len(first_family()) == 1_536
    assert len(set(second_family())) == len(second_family()) == 128
    assert not set(first_family()) & set(second_family())


def test_both_families_are_measured_and_the_second_one_is_judged() -> None:
    """The first family gains nothing and the second does; p is corrected for both, and prompts are judged as well."""
    nothing, gain = gained("a", 0.0, 0.0, count=60), gained("a", 0.03, 0.03, count=60)
    found = [
        GraphMeasurements(replace(nothing, name=name), replace(gain, name=name), replace(gain, name=name))
        for name in "ab"
    ]
    verdict = judge(found, seed=0)
    assert verdict.multihop["recall@10"].difference == pytest.approx(0.03)
    assert set(verdict.prompts) == {"a", "b"}
    wild = [replace(one, first=gained(one.first.name, 0.3, 0.3, count=60)) for one in found]
    assert judge(wild, seed=0).p > verdict.p


def test_a_setting_that_makes_prompts_worse_is_not_chosen() -> None:
    """The stronger setting gains more on questions, and loses in prompts."""
    assert choose([gained("a", 0.03, 0.2)], [gained("a", 0.0, -0.01)]) == (0, 1)


def test_a_question_is_brief_unless_it_says_more_than_a_memory_can_match() -> None:
    """The real measurement of a set has the same questions in both families and in prompts."""
    one = labelled()
    found = measure_graph(one, replace(one, evidence=[replace(each, whole_query_score=1e6) for each in one.evidence]))
    place = second_family().index((STRONG[0], Weighting(0.2, "brief above .5", 5)))
    assert (found.second.gains[place, 0, 0], found.prompts.gains[place, 0, 0]) == (0.5, 0.0)
    assert found.first.gains[first_family().index(STRONG), 0, 0] == 0.5


def test_near_concepts_count_as_the_one_that_more_memories_have() -> None:
    """Nearness is not handed on: what is near to a merged concept only stays itself."""
    memories = [Memory(number, "database databases dbm boat-7 harbour") for number in range(2)]
    memories += [Memory(9, "database harbour")]
    concepts = shared_concepts(memories, "words")
    assert concepts == ["database", "harbour", "dbm"]
    angles = np.array([0.0, 0.4, 0.75])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    assert same_concepts(concepts, vectors, 0.9) == {"harbour": "database"}
    assert same_concepts(concepts, vectors, 0.7) == {"harbour": "database", "dbm": "database"}


def test_the_report_opens_with_the_verdict_and_has_a_table_of_every_kind(tmp_path: Path) -> None:
    """Two sets with one question each are too few to adopt anything; what was chosen is kept beside the report."""
    one = labelled()
    measured = [measure_graph(replace(one, dataset=replace(one.dataset, name=name)), one) for name in ("a", "b")]
    measured = [replace(found, prompts=replace(found.prompts, name=found.second.name)) for found in measured]
    near = [[score_graph(replace(one, dataset=replace(one.dataset, name=name)), [STRONG]) for name in "ab"]] * 4
    ablation = {name: ablate(one, STRONG) for name in "ab"}
    write(measured, judge(measured, seed=0), tmp_path, near=near, ablation=ablation, model="m", seed=0)
    report = (tmp_path / "report.md").read_text()
    assert report.startswith("# The concept graph as a third leg: rejected\n")
    assert "| a | multihop | 1 | recall@10 | 1.000 | 0.500 | 0.500 | 0.500 | +0.500 (1.0000) |" in report
    assert "| to be found | 1 | 1 | 2 |" in report
    assert report.count("\n## ") == 10
    assert json.loads((tmp_path / "summary.json").read_text())["graph"]["verdict"] == "rejected"
