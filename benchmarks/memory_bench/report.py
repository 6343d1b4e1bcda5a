"""A report for people: Markdown tables with significance, and two plots."""

from collections.abc import Sequence
from pathlib import Path

from memory_bench.runner import RunResult
from memory_recall.evaluation import measures
from memory_recall.evaluation.significance import Comparison, compare

_PLOTTED = "recall@10"


def compare_runs(
    first: RunResult, second: RunResult, measure: str, *, seed: int, stratum: str | None = None
) -> Comparison:
    """How the second retriever differs from the first on the questions that both answered, all or those of a stratum.

    Raises:
        ValueError: they did not answer the same questions.
    """
    before, after = first.scores(measure, stratum), second.scores(measure, stratum)
    if before.keys() != after.keys():
        raise ValueError(f"{first.retriever} and {second.retriever} did not answer the same questions")
    order = sorted(before)
    return compare([before[one] for one in order], [after[one] for one in order], seed=seed)


def markdown(results: Sequence[RunResult], *, baseline: str, seed: int) -> str:
    """The whole report."""
    lines = [f"# Retrieval on {results[0].dataset}", "", f"{len(results[0].answers)} questions.", ""]
    lines += _overall(results) + _strata(results) + _significance(results, baseline, seed)
    lines += ["Versions, machine, seed and digests of this run: [manifest.json](manifest.json).", ""]
    return "\n".join(lines)


def _overall(results: Sequence[RunResult]) -> list[str]:
    heading = ["retriever", *measures.MEASURES, "p50 ms", "p95 ms", "build s", "index MiB"]
    rows = []
    for result in results:
        means, latency = result.means(), result.latency()
        size = "" if result.index_bytes is None else f"{result.index_bytes / 2**20:.1f}"
        rows.append(
            [
                result.retriever,
                *(f"{means[name]:.3f}" for name in measures.MEASURES),
                *(f"{latency[name]:.1f}" for name in ("p50", "p95")),
                f"{result.build_seconds:.1f}",
                size,
            ]
        )
    return ["## All questions", "", *_table(heading, rows), ""]


def _strata(results: Sequence[RunResult]) -> list[str]:
    strata = sorted({answer.stratum for answer in results[0].answers})
    rows = [[result.retriever, *(f"{result.means(one)[_PLOTTED]:.3f}" for one in strata)] for result in results]
    return [f"## {_PLOTTED} by stratum", "", *_table(["retriever", *strata], rows), ""]


def _significance(results: Sequence[RunResult], baseline: str, seed: int) -> list[str]:
    base = next((result for result in results if result.retriever == baseline), results[0])
    rows = []
    for result in results:
        if result is base:
            continue
        for measure in (_PLOTTED, "ndcg@10"):
            found = compare_runs(base, result, measure, seed=seed)
            interval = f"{found.low:+.3f} to {found.high:+.3f}"
            rows.append([result.retriever, measure, f"{found.difference:+.3f}", interval, f"{found.p_value:.4f}"])
    heading = ["retriever", "measure", "difference", "95 % interval (bootstrap)", "p (randomisation)"]
    return [f"## Against {base.retriever}", "", *_table(heading, rows), ""]


def _table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    ruler = ["---", *["---:"] * (len(heading) - 1)]
    return [f"| {' | '.join(cells)} |" for cells in (heading, ruler, *rows)]


def plots(results: Sequence[RunResult], directory: Path) -> list[Path]:
    """Quality against latency, and quality by stratum."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    paths = [directory / "quality-latency.svg", directory / "strata.svg"]
    figure, axes = plt.subplots(figsize=(6, 4))
    for result in results:
        quality, latency = result.means()[_PLOTTED], result.latency()["p50"]
        axes.scatter(latency, quality)
        axes.annotate(result.retriever, (latency, quality), textcoords="offset points", xytext=(4, 4), fontsize=7)
    axes.set(xscale="log", xlabel="median latency, ms", ylabel=_PLOTTED)
    figure.tight_layout()
    figure.savefig(paths[0])
    plt.close(figure)
    strata = sorted({answer.stratum for answer in results[0].answers})
    figure, axes = plt.subplots(figsize=(7, 4))
    width = 0.8 / len(results)
    for place, result in enumerate(results):
        heights = [result.means(stratum)[_PLOTTED] for stratum in strata]
        axes.bar([position + place * width for position in range(len(strata))], heights, width, label=result.retriever)
    axes.set(ylabel=_PLOTTED, xticks=[position + 0.4 - width / 2 for position in range(len(strata))])
    axes.set_xticklabels(strata)
    axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(paths[1])
    plt.close(figure)
    return paths
