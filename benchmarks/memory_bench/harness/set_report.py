"""Writes the report of the runs over one labelled set: tables with significance, and JSON files."""

from collections.abc import Sequence
from pathlib import Path

from memory_bench.harness.runner import RunResult
from memory_bench.harness.scoring import MEASURES
from memory_bench.report import RAW, console, markdown_table, write_json, write_private_json
from memory_recall.evaluation.significance import Comparison, compare

_MAIN = "recall@10"


def write_results(
    directory: Path, results: Sequence[RunResult], manifest: dict[str, object], *, baseline: str, seed: int
) -> None:
    """Write summary, manifest and report; only their owner may read the results of each question."""
    for result in results:
        write_private_json(directory / RAW / f"{result.retriever.replace(':', '.')}.json", result.by_question())
    write_json(directory / "summary.json", [result.summary() for result in results])
    write_json(directory / "manifest.json", manifest)
    (directory / "report.md").write_text(markdown(results, baseline=baseline, seed=seed), encoding="utf-8")
    console.print(f"Results are in {directory}.")


def compare_runs(
    first: RunResult, second: RunResult, measure: str, *, seed: int, stratum: str | None = None
) -> Comparison:
    """Compare two runs in one measure, on all questions or on the questions of one stratum.

    Positive differences mean that the second run is better.

    Raises:
        ValueError: the two runs did not answer the same questions.
    """
    before, after = first.scores(measure, stratum), second.scores(measure, stratum)
    if before.keys() != after.keys():
        raise ValueError(f"{first.retriever} and {second.retriever} did not answer the same questions")
    order = sorted(before)
    return compare([before[one] for one in order], [after[one] for one in order], seed=seed)


def markdown(results: Sequence[RunResult], *, baseline: str, seed: int) -> str:
    """Return the report as Markdown: all questions, each stratum, and each retriever against the baseline."""
    sections = {
        "All questions": _overall(results),
        f"{_MAIN} by stratum": _strata(results),
        f"Against {_base(results, baseline).retriever}": _significance(results, baseline, seed),
    }
    parts = [f"# Retrieval on {results[0].dataset}\n", f"{len(results[0].answers)} questions.\n"]
    parts += [f"## {title}\n\n{markdown_table(rows)}" for title, rows in sections.items()]
    parts.append("Versions, machine, seed and digests of this run: [manifest.json](manifest.json).\n")
    return "\n".join(parts)


def _overall(results: Sequence[RunResult]) -> list[list[str]]:
    rows = [["retriever", *MEASURES, "p50 ms", "p95 ms", "build s", "index MiB"]]
    for result in results:
        means, latency = result.means(), result.latency()
        rows.append(
            [
                result.retriever,
                *(f"{means[name]:.3f}" for name in MEASURES),
                *(f"{latency[name]:.1f}" for name in ("p50", "p95")),
                f"{result.build_seconds:.1f}",
                "" if result.index_bytes is None else f"{result.index_bytes / 2**20:.1f}",
            ]
        )
    return rows


def _strata(results: Sequence[RunResult]) -> list[list[str]]:
    strata = sorted({answer.stratum for answer in results[0].answers})
    rows = [[result.retriever, *(f"{result.means(one)[_MAIN]:.3f}" for one in strata)] for result in results]
    return [["retriever", *strata], *rows]


def _base(results: Sequence[RunResult], baseline: str) -> RunResult:
    return next((result for result in results if result.retriever == baseline), results[0])


def _significance(results: Sequence[RunResult], baseline: str, seed: int) -> list[list[str]]:
    base = _base(results, baseline)
    rows = [["retriever", "measure", "difference", "95 % interval (bootstrap)", "p (randomisation)"]]
    for result in results:
        for measure in (_MAIN, "ndcg@10") if result is not base else ():
            found = compare_runs(base, result, measure, seed=seed)
            interval = f"{found.low:+.3f} to {found.high:+.3f}"
            rows.append([result.retriever, measure, f"{found.difference:+.3f}", interval, f"{found.p_value:.4f}"])
    return rows
