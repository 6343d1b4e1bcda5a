"""The benchmark of MaxSim and MMR on invented data that is small enough to check by hand."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from memory_bench.curation.truth import chains_of
from memory_bench.harness.dataset import Dataset, Memory, Query
from memory_bench.harness.scoring import Scorer
from memory_bench.harness.vectors import EmbeddedSet
from memory_bench.recall.evidence import Lexemes, gather
from memory_bench.second_stage import maxsim
from memory_bench.second_stage.costs import Costs, sizes
from memory_bench.second_stage.diversity import (
    facts,
    likeness,
    mmr,
    repeats,
    score_facts,
    score_mmr,
)
from memory_bench.second_stage.reranking import MaxSimScores, compare_tokens, score_maxsim
from memory_bench.second_stage.settings import (
    VARIANTS,
    MaxSimSetting,
    MmrSetting,
    maxsim_settings,
    mmr_settings,
)
from memory_bench.second_stage.tables import MaxSimStudy, MmrStudy, write
from memory_bench.second_stage.verdict import (
    judge_maxsim,
    judge_mmr,
)
from memory_bench.studies.questions import LabelledSet
from memory_recall import Fusion

ALONE = MaxSimSetting(20, "all", "exact", brief_only=False, mixing="share", weight=1.0)
COSTS = Costs(5.0, {"exact": 5.0, "signs": 5.0}, {"exact": 50_000.0, "signs": 2_000.0})


def random_states(*shape: int, seed: int = 0) -> "np.typing.NDArray[np.float32]":
    """Return random unit vectors."""
    return maxsim.unit(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def test_maxsim_is_the_mean_over_query_tokens_of_the_greatest_cosine() -> None:
    """All four variants agree with loops over single tokens."""
    query, memory = random_states(5, 16), random_states(7, 16, seed=1)
    for found, (tokens, states) in zip(maxsim.scores(query, memory), VARIANTS, strict=True):
        rows, columns = (query, memory) if tokens == "all" else (query[1:-1], memory[1:-1])
        if states == "signs":
            signs = [[1.0 if value >= 0 else -1.0 for value in row] for row in columns]
            columns = np.array(signs, dtype=np.float32) / 4
        expected = sum(max(float(np.dot(row, column)) for column in columns) for row in rows) / len(rows)
        assert found == pytest.approx(expected, abs=1e-6)


def test_a_text_without_words_keeps_the_tokens_that_begin_and_end_it() -> None:
    """An empty memory has two tokens; leaving them out would leave nothing to compare with."""
    query, empty = random_states(5, 16), random_states(2, 16, seed=1)
    found = maxsim.scores(query, empty)[VARIANTS.index(("inner", "exact"))]
    assert found == pytest.approx(float((query[1:-1] @ empty.T).max(axis=1).mean()), abs=1e-6)


def test_packed_signs_are_one_bit_a_dimension_and_come_back() -> None:
    """Dimensions that fill no whole byte are padded, and the padding does not come back."""
    states = random_states(3, 12)
    assert len(maxsim.packed(states)) == 3 * 2
    np.testing.assert_array_equal(maxsim.unpacked(maxsim.packed(states), 12), maxsim.by_signs(states))
    assert sizes([3, 5], 384) == {"exact": 4 * 384 * 2, "signs": 4 * 48}


def test_a_mixture_adds_a_multiple_or_takes_a_share_and_may_leave_prompts_alone() -> None:
    """Shares scale both scores to 0 to 1 first; a question that is not brief keeps its fused scores."""
    fused, similar = np.array([0.8, 0.6, 0.4]), np.array([0.1, 0.1, 0.3])
    np.testing.assert_allclose(replace(ALONE, weight=0.5).totals(fused, similar, brief=1.0), [0.5, 0.25, 0.5])
    multiple = replace(ALONE, mixing="times", weight=2.0)
    np.testing.assert_allclose(multiple.totals(fused, similar, brief=0.1), [1.0, 0.8, 1.0])
    assert replace(multiple, brief_only=True).totals(fused, similar, brief=0.5) is fused
    np.testing.assert_array_equal(ALONE.totals(fused, np.ones(3), brief=1.0), np.zeros(3))


def plain_mmr(
    relevance: Sequence[float], cosines: Sequence[Sequence[float]], setting: MmrSetting, count: int
) -> list[int]:
    """Choose one memory after another with loops."""
    chosen, left = [0], list(range(1, len(relevance)))

    def value(one: int) -> float:
        alike = max(max(0.0, (cosines[one][other] - setting.floor) / (1 - setting.floor)) for other in chosen)
        return setting.trade * relevance[one] - (1 - setting.trade) * alike

    while left and len(chosen) < count:
        best = max(left, key=lambda one: (value(one), -one))
        chosen.append(best)
        left.remove(best)
    return chosen


def test_mmr_chooses_what_loops_over_single_memories_choose() -> None:
    """All settings at once give what each gives alone, on thirty random lists."""
    chance = np.random.default_rng(0)
    settings = [one for one in mmr_settings() if one.depth == 20]
    for _ in range(30):
        relevance = np.sort(chance.random(20))[::-1] / 1.0
        vectors = maxsim.unit((chance.normal(size=(20, 3)) + 1).astype(np.float32)).astype(np.float64)
        cosines = vectors @ vectors.T
        found = mmr(relevance, cosines, settings, 10)
        expected = [plain_mmr(relevance.tolist(), cosines.tolist(), one, 10) for one in settings]
        assert found.tolist() == expected


def test_mmr_puts_a_near_duplicate_below_a_less_relevant_other_memory() -> None:
    """The second memory says what the first one says; with a floor above their cosine it keeps its place."""
    cosines = np.array([[1.0, 0.9, 0.1], [0.9, 1.0, 0.1], [0.1, 0.1, 1.0]])
    relevance = np.array([1.0, 0.9, 0.7])
    found = mmr(relevance, cosines, [MmrSetting(0.5, 0.0, 20), MmrSetting(0.5, 0.95, 20)], 3)
    assert found.tolist() == [[0, 2, 1], [0, 1, 2]]
    assert mmr(relevance[:2], cosines[:2, :2], [MmrSetting(0.5, 0.0, 20)], 10).tolist() == [[0, 1]]


def test_repeats_and_facts_count_what_restates_one_another() -> None:
    """Memories 1, 2 and 3 state one fact, through a chain and a judged pair; 9 states one of its own."""
    groups = chains_of([(1, 2), (2, 3)])
    assert repeats([3, 9, 1, 2], groups) == 2
    assert repeats([9, 8], groups) == 0
    assert facts([1, 9], {2, 3, 9, 7}, groups) == pytest.approx(1 / 3)
    assert facts([3, 2], {2, 3}, groups) == 1.0
    assert likeness(np.array([[1.0, 0.2, 0.6], [0.2, 1.0, 0.4], [0.6, 0.4, 1.0]])) == pytest.approx(0.4)
    assert likeness(np.ones((1, 1))) == 0.0


class WordStates:
    """Gives each distinct word a random state of its own, between two that are those of every text."""

    def states(self, texts: Sequence[str]) -> Iterator["np.typing.NDArray[np.float32]"]:
        """Yield the states of each text; they are not of length one."""
        for text in texts:
            words = ["<", *text.lower().strip("?").split(), ">"]
            yield np.concatenate([3 * random_states(1, 64, seed=sum(map(ord, word))) for word in words])


def labelled(name: str = "set") -> LabelledSet:
    """Return a set of 60 memories in which the second answer is the sixteenth memory by meaning and shares no lexeme.

    Its tokens are those of the question, which the lexemes do not tell, as if Postgres had stemmed them otherwise.
    """
    rows = [Memory(number, f"filler{number:03}") for number in range(1, 61)]
    rows[0], rows[15] = Memory(1, "harbour bridge"), Memory(16, "which harbour")
    query = Query("q", "which harbour?", "natural", None, frozenset({1, 16}))
    dataset = Dataset(name, tuple(rows), (query,), 0, "")
    lexemes = Lexemes((("harbour", "bridge"), *((f"filler{number:03}",) for number in range(2, 61))), (("harbour",),))
    angles = np.linspace(0.1, 1.0, len(rows))
    vectors = np.zeros((len(rows), 64), dtype=np.float32)
    vectors[:, 0], vectors[:, 1] = np.cos(angles), np.sin(angles)
    embedded = EmbeddedSet("m", vectors, np.eye(1, 64, dtype=np.float32))
    return LabelledSet(dataset, gather(dataset, lexemes, embedded), embedded, Fusion())


def test_maxsim_brings_up_a_memory_whose_tokens_are_those_of_the_question() -> None:
    """By MaxSim alone the sixteenth memory is among the ten; without weight nothing changes."""
    one = labelled()
    compared = compare_tokens([one, one], WordStates())
    scores = score_maxsim(one, compared.similar[0], [ALONE, replace(ALONE, mixing="times", weight=0.0)])
    assert scores.plain[0, 0] == 0.5
    assert scores.scores[:, 0, 0].tolist() == [1.0, 0.5]
    assert compared.similar[0].tolist() == compared.similar[1].tolist()
    assert compared.similar[0][0, :, 0].max() == pytest.approx(1.0)
    assert (len(compared.tokens), set(compared.tokens)) == (30, {3, 4})


def test_states_that_are_not_those_that_were_pooled_are_noticed() -> None:
    """Where the vectors are means of the states their cosine is 1, and elsewhere the worst one is told."""
    one = labelled()
    states = list(WordStates().states([each.content for each in one.dataset.memories]))
    means = maxsim.unit(np.stack([each.mean(axis=0) for each in states]))
    agreeing = replace(one, embedded=replace(one.embedded, memories=means))
    assert compare_tokens([agreeing], WordStates()).worst_pooled == pytest.approx(1.0)
    assert compare_tokens([one], WordStates()).worst_pooled < 0.9


def test_scores_are_those_of_the_harness() -> None:
    """Graded judgements are scored as everywhere else, with MaxSim, with MMR and without either."""
    one = labelled()
    (query,) = one.dataset.queries
    graded = replace(query, grades={1: 2, 16: 3, 4: 1}, relevant=frozenset({1, 16}))
    evidence = [replace(each, query=graded) for each in one.evidence]
    one = replace(one, dataset=replace(one.dataset, queries=(graded,)), evidence=evidence)
    scorer = Scorer([graded])
    (plain,) = scorer.score([list(range(1, 11))])
    (first,) = scorer.score([[16, *range(1, 10)]])
    similar = np.zeros((1, 30, len(VARIANTS)), dtype=np.float32)
    similar[0, 15] = 1.0
    with_it = score_maxsim(one, similar, [ALONE])
    assert with_it.plain[0].tolist() == pytest.approx([plain["recall@10"], plain["ndcg@10"]])
    assert with_it.scores[0, 0].tolist() == pytest.approx([first["recall@10"], first["ndcg@10"]])
    assert score_mmr(one, [MmrSetting(1.0, 0.0, 20)]).scores[0, 0].tolist() == pytest.approx(with_it.plain[0].tolist())


def test_mmr_makes_the_ten_less_alike_and_repeats_are_counted_by_fact() -> None:
    """The nearer two memories are, the nearer are their numbers; 1 to 10 state five facts, of which 1 is relevant."""
    one, settings = labelled(), [MmrSetting(1.0, 0.0, 20), MmrSetting(0.1, 0.0, 50)]
    scores = score_mmr(one, settings)
    assert scores.likeness[0, 0] == pytest.approx(scores.plain_likeness[0])
    assert scores.likeness[1, 0] < scores.plain_likeness[0] - 0.001
    found = score_facts(one, settings, chains_of([(1, 2), (3, 4), (5, 6), (7, 8), (9, 10), (1, 16)]))
    assert (found.plain_repeats.tolist(), found.plain_facts.tolist()) == ([5.0], [1.0])
    assert found.repeats[0].tolist() == [5.0]
    assert found.repeats[1, 0] < 5.0


def test_all_settings_of_the_decision_record_are_compared() -> None:
    """MaxSim has 176 settings and MMR 60, each once."""
    assert len(set(maxsim_settings())) == len(maxsim_settings()) == 176
    assert len(set(mmr_settings())) == len(mmr_settings()) == 60


def test_the_report_opens_with_both_verdicts_and_has_every_setting(tmp_path: Path) -> None:
    """Two sets with one question each are too few to adopt anything; what was chosen is kept beside the report."""
    sets = [labelled("a"), labelled("homelab")]
    compared = compare_tokens(sets, WordStates())
    scored: list[MaxSimScores] = [
        score_maxsim(one, similar, maxsim_settings()) for one, similar in zip(sets, compared.similar, strict=True)
    ]
    diverse = [score_mmr(one, mmr_settings()) for one in sets]
    counted = score_facts(sets[1], mmr_settings(), {1: 1, 2: 1})
    tokens = {one.dataset.name: compared.tokens for one in sets}
    study = MaxSimStudy(scored, scored, tokens, 1.0, judge_maxsim(scored, scored, COSTS, seed=0))
    other = MmrStudy(diverse, diverse, counted, judge_mmr(diverse, diverse, counted, seed=0))
    write(study, other, tmp_path, model="m", dimensions=64, seed=0)
    report = (tmp_path / "report.md").read_text()
    assert report.startswith("# The ten chosen again: MaxSim rejected, MMR rejected\n")
    assert report.count("\n## ") == 10
    assert "| stored, signs | 5.0 | 2,000 |" in report
    assert all(f"| {one} |" in report for one in (*maxsim_settings(), *mmr_settings()))
    kept = json.loads((tmp_path / "summary.json").read_text())
    assert (kept["maxsim"]["verdict"], kept["mmr"]["verdict"]) == ("rejected", "rejected")
    assert set(kept["maxsim"]["chosen"]) == {"a", "homelab"}
