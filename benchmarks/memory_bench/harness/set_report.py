"""Writes the report of the runs over one labelled set: tables with significance, two charts, and JSON files."""

from collections.abc import Sequence
from pathlib import Path

from memory_bench.harness.runner import RunResult
from memory_bench.harness.scoring import MEASURES
from memory_bench.report import RAW, chart, console, grouped_bars, markdown_table, write_json, write_private_json
from memory_recall.evaluation.significance import Comparison, compare

_PLOTTED = "recall@10"


def write_results(
    directory: Path, results: Sequence[RunResult], manifest: dict[str, object], *, baseline: str, seed: int
) -> None:
    """Write summary, manifest, report and charts; only their owner may read the results of each question."""
    for result in results:
        write_private_json(directory / RAW / f"{result.retriever.replace(':', '.')}.json", result.by_question())
    write_json(directory / "summary.json", [result.summary() for result in results])
    write_json(directory / "manifest.json", manifest)
    (directory / "report.md").write_text(markdown(results, baseline=baseline, seed=seed), encoding="utf-8")
    plots(results, directory)
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
        f"{_PLOTTED} by stratum": _strata(results),
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
    rows = [[result.retriever, *(f"{result.means(one)[_PLOTTED]:.3f}" for one in strata)] for result in results]
    return [["retriever", *strata], *rows]


def _base(results: Sequence[RunResult], baseline: str) -> RunResult:
    return next((result for result in results if result.retriever == baseline), results[0])


def _significance(results: Sequence[RunResult], baseline: str, seed: int) -> list[list[str]]:
    base = _base(results, baseline)
    rows = [["retriever", "measure", "difference", "95 % interval (bootstrap)", "p (randomisation)"]]
    for result in results:
        for measure in (_PLOTTED, "ndcg@10") if result is not base else ():
            found = compare_runs(base, result, measure, seed=seed)
            interval = f"{found.low:+.3f} to {found.high:+.3f}"
            rows.append([result.retriever, measure, f"{found.difference:+.3f}", interval, f"{found.p_value:.4f}"])
    return rows


def plots(results: Sequence[RunResult], directory: Path) -> list[Path]:
    """Draw a chart of quality against latency and a chart of quality by stratum; return the paths of both charts."""
    paths = [directory / "quality-latency.svg", directory / "strata.svg"]
    with chart(paths[0], size=(6, 4)) as axes:
        for result in results:
            place = (result.latency()["p50"], result.means()[_PLOTTED])
            axes.scatter(*place)
            axes.annotate(result.retriever, place, textcoords="offset points", xytext=(4, 4), fontsize=7)
        axes.set(xscale="log", xlabel="median latency, ms", ylabel=_PLOTTED)
    strata = sorted({answer.stratum for answer in results[0].answers})
    with chart(paths[1], size=(7, 4)) as axes:
        grouped_bars(axes, strata, {one.retriever: [one.means(each)[_PLOTTED] for each in strata] for one in results})
        axes.set(ylabel=_PLOTTED)
        axes.legend(fontsize=7)
    return paths
