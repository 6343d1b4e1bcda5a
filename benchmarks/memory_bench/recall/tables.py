"""Writes the tables of the recall report, and computes the benchmark's main figures."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from memory_bench.harness import scoring
from memory_bench.harness.runner import RunResult
from memory_bench.harness.set_report import compare_runs
from memory_bench.recall import costs, graph_leg, production
from memory_bench.recall.costs import Costs
from memory_bench.recall.graph_leg import MEASURES
from memory_bench.recall.production import DENSE, HYBRID, LEGS, LEXICAL
from memory_bench.report import markdown_table, write_json
from memory_recall.evaluation.significance import Comparison, compare


@dataclass(frozen=True, slots=True)
class SetMeasurements:
    """All measurements of one labelled set.

    `overlaps` maps a question's id to the set's own label for how many of the question's words the answer contains.
    `prompt_runs` are those of the questions inside prompts.
    """

    name: str
    results: Mapping[str, RunResult]
    overlaps: Mapping[str, str]
    costs: Costs
    prompt_runs: Mapping[str, RunResult] = field(default_factory=dict)

    def better_leg(self, measure: str, stratum: str | None = None) -> str:
        """Return the name of the lexical or the dense retriever, whichever has the greater mean in this measure."""
        return max(LEGS, key=lambda name: self.results[name].means(stratum)[measure])

    def hybrid_against_better_leg(self, measure: str, *, seed: int, stratum: str | None = None) -> Comparison:
        """Compare hybrid recall in its default fusion with the leg that is better in this measure."""
        return self.hybrid_against(self.better_leg(measure, stratum), measure, seed=seed, stratum=stratum)

    def hybrid_against(self, leg: str, measure: str, *, seed: int, stratum: str | None = None) -> Comparison:
        """Compare hybrid recall in its default fusion with the retriever `leg`."""
        return compare_runs(self.results[leg], self.results[HYBRID], measure, seed=seed, stratum=stratum)

    def questions_of(self, stratum: str) -> set[str]:
        """Return the ids of the questions of one stratum."""
        return {answer.query_id for answer in self.results[HYBRID].answers if answer.stratum == stratum}

    def better_leg_by_question(self, measure: str, *, seed: int, stratum: str) -> Comparison:
        """Compare an ideal choice of leg for each question of a stratum with the better leg of the whole stratum.

        This is an upper bound of what any choice of leg by question could gain.
        """
        questions = self.questions_of(stratum)
        pairs = [_of(self.results[name], questions, measure) for name in LEGS]
        leg = _of(self.results[self.better_leg(measure, stratum)], questions, measure)
        return compare(leg, [max(both) for both in zip(*pairs, strict=True)], seed=seed)


def figures(measured: Sequence[SetMeasurements], *, seed: int) -> dict[str, dict[str, object]]:
    """Return, for each set, recall@10 of both legs and of hybrid recall, a p value, and the gains over production.

    The p value is that of the difference between hybrid recall and the better leg. If a set has multi-hop questions,
    "graph" has the gains of the served graph leg on all of these (ADR 26).
    """
    found: dict[str, dict[str, object]] = {}
    for one in measured:
        means = {name: one.results[name].means()["recall@10"] for name in (*LEGS, HYBRID)}
        p_value = one.hybrid_against_better_leg("recall@10", seed=seed).p_value
        found[one.name] = {
            "lexical": round(means[LEXICAL], 4),
            "dense": round(means[DENSE], 4),
            "hybrid": round(means[HYBRID], 4),
            "p_value": round(p_value, 4),
            "vs_production": production.against_production(one.results, seed=seed),
        }
    gains = graph_leg.judge(
        {one.name: one.results for one in measured}, {one.name: one.prompt_runs for one in measured}, seed=seed
    )
    return found if gains is None else found | {"graph": gains.figures()}


def write(
    measured: Sequence[SetMeasurements],
    directory: Path,
    *,
    model: str,
    seed: int,
    compared: Iterator[Sequence[str]] | None = None,
) -> None:
    """Write the recall report of one model, and its tables as JSON.

    `compared` holds the rows of a table that compares this model with others.
    """
    directory.mkdir(parents=True, exist_ok=True)
    runs = {one.name: one.results for one in measured}
    spent = {one.name: one.costs for one in measured}
    sections = [
        f"# Recall on every set\n\n{model}; recall@10 / nDCG@10 unless said otherwise. See `benchmarks/README.md`.\n",
        *(_section(title, rows) for title, rows in production.sections(runs, seed=seed).items()),
        *(_section(title, rows) for title, rows in costs.sections(spent).items()),
        _section("By stratum", _strata(measured, seed)),
        _section("What each leg adds", graph_leg.ablation(runs, seed=seed)),
        _section("By how many words question and answer share", _overlaps(measured, seed)),
        _section("Index against exact search, recall@10", _index(measured)),
    ]
    if compared is not None:
        sections.append(_section("Model by model", compared))
    (directory / "report.md").write_text("\n".join(sections), encoding="utf-8")
    data = {
        "model": model,
        "figures": figures(measured, seed=seed),
        "legs": graph_leg.legs(runs),
    }
    write_json(directory / "summary.json", data)


def _section(title: str, rows: Iterator[Sequence[str]]) -> str:
    return f"## {title}\n\n{markdown_table(rows)}"


def _strata(measured: Sequence[SetMeasurements], seed: int) -> Iterator[Sequence[str]]:
    against = ("against the better leg (p)", "the better for each question, against it (p)", "against lexical (p)")
    yield ["set", "stratum", "measure", "questions", "lexical", "dense", "hybrid", *against]
    for one in measured:
        for stratum in production.strata(one.results):
            for measure in scoring.MEASURES:
                means = [f"{one.results[name].means(stratum)[measure]:.3f}" for name in (*LEGS, HYBRID)]
                gains = (
                    one.hybrid_against_better_leg(measure, seed=seed, stratum=stratum),
                    one.better_leg_by_question(measure, seed=seed, stratum=stratum),
                    one.hybrid_against(LEXICAL, measure, seed=seed, stratum=stratum),
                )
                cells = [production.with_interval(gain) for gain in gains]
                yield [one.name, stratum, measure, str(len(one.questions_of(stratum))), *means, *cells]


def _overlaps(measured: Sequence[SetMeasurements], seed: int) -> Iterator[Sequence[str]]:
    yield ["set", "overlap", "measure", "questions", "lexical", "dense", "hybrid", "against the better leg (p)"]
    for one in measured:
        for overlap in sorted(set(one.overlaps.values())):
            questions = {name for name, value in one.overlaps.items() if value == overlap}
            for measure in MEASURES:
                scores = {name: _of(one.results[name], questions, measure) for name in (*LEGS, HYBRID)}
                better = max((scores[name] for name in LEGS), key=lambda found: float(np.mean(found)))
                gain = compare(better, scores[HYBRID], seed=seed)
                means = [f"{np.mean(found):.3f}" for found in scores.values()]
                yield [
                    one.name,
                    overlap,
                    measure,
                    str(len(questions)),
                    *means,
                    f"{gain.difference:+.3f} ({gain.p_value:.4f})",
                ]


def _of(result: RunResult, questions: set[str], measure: str) -> list[float]:
    return [answer.scores[measure] for answer in result.answers if answer.query_id in questions]


def _index(measured: Sequence[SetMeasurements]) -> Iterator[Sequence[str]]:
    yield ["set", "exact", "HNSW", "same ten"]
    for one in measured:
        exact, index = one.results["dense-exact"], one.results["dense-hnsw"]
        pairs = zip(exact.answers, index.answers, strict=True)
        same = np.mean([len(set(a.retrieved[:10]) & set(b.retrieved[:10])) / 10 for a, b in pairs])
        yield [one.name, *(f"{each.means()['recall@10']:.4f}" for each in (exact, index)), f"{same:.4f}"]
