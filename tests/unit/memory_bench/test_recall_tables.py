"""The comparisons of the recall report, and its tables of costs."""

from typing import Any

from memory_bench.harness.runner import Answered, RunResult
from memory_bench.recall import costs, production
from memory_bench.recall.costs import Costs
from memory_bench.recall.crossvalidation import SetScores
from memory_bench.recall.lexical_check import LexicalCheck
from memory_bench.recall.model_table import model_by_model
from memory_bench.recall.prompts import PromptScores
from memory_bench.recall.tables import SetMeasurements, figures
from memory_recall.evaluation import measures

SCORES = SetScores("set", (), {}, {})


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
        lexical=LexicalCheck(0, 0, 0, 0),
        without_prior=SCORES,
        with_prior=SCORES,
        times=unused,
        prompts=PromptScores(SCORES, SCORES),
        overlaps={},
        costs=unused,
        graph=unused,
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
    return [run(arms[title], *[score] * 8) for arms in orders for title, score in scores.items()]
