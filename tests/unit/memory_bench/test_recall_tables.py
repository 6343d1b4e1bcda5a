"""The comparisons of the recall report within one stratum."""

from typing import Any

from memory_bench.harness.runner import Answered, RunResult
from memory_bench.recall.crossvalidation import SetScores
from memory_bench.recall.lexical_check import LexicalCheck
from memory_bench.recall.model_table import model_by_model
from memory_bench.recall.prompts import PromptScores
from memory_bench.recall.tables import SetMeasurements
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
        ablation={},
        entities="",
        times=unused,
        prompts=PromptScores(SCORES, SCORES),
        overlaps={},
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
