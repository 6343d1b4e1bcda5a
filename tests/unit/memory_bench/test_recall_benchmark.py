"""The recall benchmark on invented data that is small enough to check by hand, and the tables of its report."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from memory_bench.__main__ import app
from memory_bench.harness.dataset import Dataset, Memory, Query
from memory_bench.harness.runner import Answered, RunResult
from memory_bench.recall import command, costs, production
from memory_bench.recall.costs import Costs
from memory_bench.recall.graph_leg import ARMS, GRAPH, GraphGains, ablation, judge
from memory_bench.recall.long_texts import ALONE, PLACES, answers_of, in_long_texts, rows
from memory_bench.recall.model_table import model_by_model
from memory_bench.recall.prompts import WORDS_BEFORE, in_prompts
from memory_bench.recall.tables import SetMeasurements, figures
from memory_recall.evaluation import measures
from memory_recall.evaluation.significance import Comparison


def test_a_prompt_begins_with_a_memory_that_does_not_answer_the_question() -> None:
    """The memory is neither an answer nor of the same conversation, and the question follows it."""
    rows = (
        Memory(1, "answer " * 40, scope="a"),
        Memory(2, "same " * 40, scope="a"),
        Memory(3, "other " * 40, scope="b"),
    )
    asked = (Query("q", "where?", "all", "a", frozenset({1})), Query("r", "who?", "all", None, frozenset({3, 2})))
    first, second = in_prompts(Dataset("s", rows, asked, 0, ""), seed=0).queries
    assert first.text == "other " * (WORDS_BEFORE - 1) + "other. where?"
    assert second.text == "answer " * (WORDS_BEFORE - 1) + "answer. who?"
    assert (first.relevant, first.scope) == (frozenset({1}), "a")


@pytest.mark.parametrize("words", [12, 40, 300])
def test_an_answer_stands_at_one_place_among_what_answers_nothing(words: int) -> None:
    """Of the text's words as many come before it as the place says; what is around it is the same at each place."""
    answer, other = "The kettle is in the cupboard now.", "Nothing here is about what anybody would ask for."
    memories = (Memory(1, answer), *(Memory(n, f"{n} {other}") for n in range(2, 40)))
    dataset = Dataset("set", memories, (Query("q", "Where is the kettle?", "all", None, frozenset({1})),), 0, "")
    texts = {}
    for share in PLACES.values():
        (only,) = in_long_texts(dataset, words, share, seed=0).memories
        texts[share] = only.content
        assert only.id == 1
        assert len(only.content.split()) == words
        assert len(only.content.split(answer)[0].split()) == round((words - 7) * share)
    assert len({" ".join(text.replace(answer, " ").split()) for text in texts.values()}) == 1
    assert [one.id for one in answers_of(dataset).memories] == [1]


def test_the_table_of_long_texts_has_a_row_for_each_length_and_leg() -> None:
    of = {"dense": 0.5, "hybrid": 0.75}
    table = list(rows({ALONE: {ALONE: of}, "200": dict.fromkeys(PLACES, of)}))
    assert table[0] == ("words", "leg", "beginning", "middle", "end")
    assert table[1] == (ALONE, "dense", "0.500", "0.500", "0.500")
    assert table[4] == ("200", "hybrid", "0.750", "0.750", "0.750")


def test_a_model_without_a_file_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """Before anything is measured, the message names the file, the option and the targets that make files."""
    given = ["recall", str(tmp_path), "--model", "bge-large-en-v1.5", "--model-file", str(tmp_path / "absent.gguf")]
    result = CliRunner().invoke(app, given)
    said = "".join(result.stderr.split())  # lines are broken anywhere
    assert result.exit_code == 1
    assert "absent.gguf" in said
    assert "--model-file" in said
    assert "makesecond-model" in said
    assert "makemultilingual-model" in said
    assert CliRunner().invoke(app, ["recall", str(tmp_path), "--model", "x", "--model", "x"]).exit_code == 1


def test_sets_of_languages_are_measured_without_any_other_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no report of other sets then, and no model but the multilingual one is started."""
    languages = Dataset("many", (Memory(1, "Topf"),), (Query("q", "wo?", "all", "de", frozenset({1})),), 0, "")
    monkeypatch.setattr(command, "_load", lambda _directory: [languages])
    monkeypatch.setattr(command, "_measure_languages", lambda sets: {"sets": len(sets)})
    (tmp_path / "x.gguf").touch()
    given = ["recall", str(tmp_path), "--model", "x", "--model-file", str(tmp_path / "x.gguf"), "--output"]
    result = CliRunner().invoke(app, [*given, str(tmp_path / "out")])
    assert json.loads(result.stdout.splitlines()[-1]) == {"languages": {"sets": 1}}
    assert result.exit_code == 0
    assert not (tmp_path / "out").exists()


def run(name: str, *values: float) -> RunResult:
    """Return a run with these scores of paraphrases, and one question of another stratum with a score of 1."""
    answers = [
        Answered(f"p{number}", "paraphrase", (), dict.fromkeys(measures.MEASURES, value), 1.0)
        for number, value in enumerate(values)
    ]
    other = Answered("e", "exact", (), dict.fromkeys(measures.MEASURES, 1.0), 1.0)
    return RunResult(name, "set", (*answers, other), 0.0, None)


def measured(*results: RunResult) -> SetMeasurements:
    unused: Any = None
    return SetMeasurements(
        name="set",
        results={result.retriever: result for result in results},
        overlaps={},
        costs=unused,
    )


def test_choosing_the_better_leg_by_question_gains_what_only_the_other_leg_finds() -> None:
    """Of four paraphrases the dense leg finds two and the lexical leg a third; other strata do not count."""
    one = measured(run("pg-bm25", 0, 0, 1, 0), run("dense-hnsw", 1, 1, 0, 0), run("hybrid", 1, 1, 0, 0))
    assert one.questions_of("paraphrase") == {"p0", "p1", "p2", "p3"}
    assert one.better_leg("recall@10", "paraphrase") == "dense-hnsw"
    assert one.better_leg_by_question("recall@10", seed=0, stratum="paraphrase").difference == 0.25
    assert one.hybrid_against_better_leg("recall@10", seed=0, stratum="paraphrase").difference == 0
    assert one.hybrid_against("pg-bm25", "recall@10", seed=0, stratum="paraphrase").difference == 0.25


def test_models_are_compared_question_by_question_with_the_first() -> None:
    """Of eight paraphrases the second model finds all and the first none, which eight coin tosses rarely do."""
    first = measured(run("dense-hnsw", *[0] * 8), run("hybrid", *[1] * 8))
    second = measured(run("dense-hnsw", *[1] * 8), run("hybrid", *[1] * 8))
    heading, dense, hybrid, *_ = model_by_model({"first": [first], "second": [second]}, seed=0)
    assert heading == ["set", "measure", "retriever", "first", "second", "difference", "95 % interval", "p"]
    assert dense[:6] == ["set", "recall@10", "dense", "0.111", "1.000", "+0.889"]
    assert float(dense[-1]) < 0.02
    assert hybrid[-1] == "1.0000"


def test_the_last_line_has_the_gain_over_fts5_in_every_measure() -> None:
    """FTS5 finds none of eight paraphrases and hybrid recall all, which eight coin tosses rarely do."""
    found = figures([measured(*runs_of_every_arm(fts5=0, dense=1, hybrid=1))], seed=0)["set"]
    gains: Any = found["vs_production"]
    assert list(gains) == ["recall@5", "recall@10", "ndcg@10", "mrr"]
    assert {gain["gain"] for gain in gains.values()} == {0.8889}
    assert all(0 < gain["p"] < 0.02 for gain in gains.values())


def test_the_report_says_where_hybrid_recall_is_not_better_than_a_leg() -> None:
    """Equal to the dense leg it is not better, and where it loses to this leg it is worse."""
    sets = {
        name: {one.retriever: one for one in runs_of_every_arm(fts5=0, dense=dense, hybrid=hybrid)}
        for name, dense, hybrid in (("equal", 1, 1), ("lost", 1, 0), ("gained", 0, 1))
    }
    tables = production.sections(sets, seed=0)
    rows = [list(row) for row in tables["On which sets hybrid recall is better than the better of its legs (p < .05)"]]
    assert rows[:2] == [["measure", "better", "not significant", "worse"], ["recall@5", "gained", "equal", "lost"]]
    heading, everything, *_ = tables["Hybrid recall against what a store searches with today"]
    assert list(heading)[:3] == ["set", "stratum", "questions"]
    assert list(everything)[:4] == ["equal", "all", "9", "recall@5"]
    assert everything[4].startswith("+0.889, ")


def test_both_paths_latencies_stand_side_by_side_below_those_of_the_first_report() -> None:
    """With the median, the 95th percentile, the mean and the maximum of each."""
    spent = Costs({"FTS5": (1.0, 2.0, 3.0), "hybrid": (10.0, 20.0, 60.0)}, {}, {})
    _, first, row = costs.sections({"set": spent})["Latency from text to ids, FTS5 and hybrid side by side"]
    assert list(first)[1:3] == ["15.7", "27.8"]
    assert list(row) == ["set", "2.0", "2.9", "2.0", "3.0", "20.0", "56.0", "30.0", "60.0"]


def runs_of_every_arm(*, fts5: float, dense: float, hybrid: float) -> list[RunResult]:
    """Return runs over eight paraphrases for both orders; `ts_rank` and the lexical leg find what FTS5 finds."""
    scores = {"FTS5": fts5, "ts_rank": fts5, "lexical": fts5, "dense": dense, "hybrid": hybrid}
    orders = (production.BY_RELEVANCE, production.BY_IMPORTANCE)
    return [run(GRAPH, *[hybrid] * 8)] + [
        run(arms[title], *[score] * 8) for arms in orders for title, score in scores.items()
    ]


def gains(recall: float, ndcg: float = 0.0, p: float = 0.001) -> dict[str, Comparison]:
    return {"recall@10": Comparison(recall, recall, recall, p), "ndcg@10": Comparison(ndcg, ndcg, ndcg, p)}


GAIN = GraphGains(600, gains(0.02), {"a": gains(0.01), "b": gains(-0.002, p=0.5)}, {"a": gains(0.0)}, {})


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "adopted"),
        ({"questions": 599}, "opt-in"),
        ({"multihop": gains(0.019)}, "opt-in"),
        ({"multihop": gains(0.009)}, "rejected"),
        ({"multihop": gains(0.02, p=0.01)}, "rejected"),
        ({"multihop": gains(0.02, -0.001)}, "rejected"),
        ({"sets": {"a": gains(-0.003, p=0.5)}}, "opt-in"),
        ({"sets": {"a": gains(-0.003)}}, "rejected"),
        ({"prompts": {"a": gains(-0.003, p=0.5)}}, "opt-in"),
        ({"prompts": {"a": gains(-0.003)}}, "rejected"),
        ({"own": {"exact": gains(-0.001)}}, "opt-in"),
    ],
)
def test_the_graph_leg_is_judged_by_the_rule_of_its_record(changes: dict[str, Any], verdict: str) -> None:
    """By the multi-hop questions, and by what it takes from any set, any set's prompts and any stratum of our own."""
    assert replace(GAIN, **changes).verdict == verdict


def multihop(name: str, dataset: str, *values: float) -> RunResult:
    """Return a run with these scores of multi-hop questions, and one question of another stratum with a score of 1."""
    answers = [
        Answered(f"q{number}", "multihop", (), dict.fromkeys(measures.MEASURES, value), 1.0)
        for number, value in enumerate(values)
    ]
    other = Answered("e", "exact", (), dict.fromkeys(measures.MEASURES, 1.0), 1.0)
    return RunResult(name, dataset, (*answers, other), 0.0, None)


def test_the_gain_of_the_graph_leg_is_that_over_the_multihop_questions_of_all_sets() -> None:
    """Two sets of four such questions, of which the graph leg finds three more; it costs one prompt of the second."""
    plain = {name: {"hybrid": multihop("hybrid", name, 0, 0, 0, 1)} for name in ("homelab", "b")}
    graph = {"homelab": multihop(GRAPH, "homelab", 1, 1, 0, 1), "b": multihop(GRAPH, "b", 0, 0, 1, 1)}
    sets = {name: {**runs, GRAPH: graph[name]} for name, runs in plain.items()}
    prompts = {
        name: {"hybrid": multihop("hybrid", name, 1), GRAPH: multihop(GRAPH, name, name != "b")} for name in sets
    }
    found = judge(sets, prompts, seed=0)
    assert found is not None
    assert found.questions == 8
    assert found.multihop["recall@10"].difference == pytest.approx(3 / 8)
    assert found.sets["homelab"]["recall@10"].difference == pytest.approx(2 / 5)
    assert found.prompts["b"]["ndcg@10"].difference == pytest.approx(-1 / 2)
    assert set(found.own) == {"exact", "multihop"}
    assert found.figures()["worst_set_recall@10"] == 0.2


def test_sets_without_multihop_questions_do_not_judge_the_graph_leg() -> None:
    assert judge({"set": {"hybrid": run("hybrid", 1), GRAPH: run(GRAPH, 1)}}, {}, seed=0) is None


def test_the_ablation_says_what_each_leg_adds() -> None:
    """By stratum, from all three legs down to one."""
    scores = {"lexical, dense, graph": 1.0, "lexical, dense": 0.5, "dense": 0.5, "lexical": 0.0}
    runs = {arm: run(arm, *[scores[legs]] * 8) for legs, arm in ARMS.items()}
    heading, _, _, _, _, paraphrases, _ = ablation({"set": runs}, seed=0)
    assert heading == [
        *("set", "stratum", "questions", "measure", *ARMS),
        *("what graph adds (p)", "what lexical adds (p)", "what dense adds (p)"),
    ]
    assert paraphrases[:8] == ["set", "paraphrase", "8", "recall@10", "1.000", "0.500", "0.500", "0.000"]
    assert [one.split()[0] for one in paraphrases[8:]] == ["+0.500", "+0.000", "+0.500"]
