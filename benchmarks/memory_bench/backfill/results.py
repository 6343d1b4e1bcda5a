"""Writes the results of the backfill benchmark as JSON, and a chart of the throughputs and of peak memory."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memory_bench.report import chart, write_json


def headline(results: Mapping[str, Any]) -> dict[str, float | int]:
    """Return the benchmark's four main figures.

    `rss_growth` is how much more memory the larger backfill needs than the smaller one, as a fraction: 0.02 means 2 %.
    """
    return {
        "vs_embedder": round(results["embedder"]["vs_embedder"], 3),
        "null_vs_bare_update": round(results["null"]["null_vs_bare_update"], 3),
        "rss_growth": round(results["null"]["rss_growth"], 3),
        "double_embedded": results["double"]["double_embedded"],
    }


def write(directory: Path, results: Mapping[str, Any]) -> None:
    """Write `results.json` and `backfill.svg`."""
    write_json(directory / "results.json", {"headline": headline(results), **results})
    _chart(directory / "backfill.svg", results)


def _chart(path: Path, results: Mapping[str, Any]) -> None:
    with chart(path, columns=3, size=(11, 3.6)) as (real, null, memory):
        for axes, part, title in ((real, "embedder", "Real embedder"), (null, "null", "Null embedder")):
            rates = results[part]["rows_per_second"]
            _labelled_bars(axes, rates, "{:,.0f}", colours=["#9aa5b1", "#3b6ea5"])
            axes.set(title=f"{title}, {results[part]['rows']:,} rows", ylabel="rows per second")
        peaks = results["null"]["peak_rss_mib"]
        _labelled_bars(memory, {f"{int(rows):,} rows": peak for rows, peak in peaks.items()}, "{:.0f}", ["#3b6ea5"])
        memory.set(title="Peak memory of a backfill", ylabel="MiB")


def _labelled_bars(axes: Any, heights: Mapping[str, float], form: str, colours: list[str]) -> None:  # noqa: ANN401  (axes of matplotlib, which is imported only where a chart is drawn)
    bars = axes.bar(list(heights), list(heights.values()), color=colours, width=0.6)
    axes.bar_label(bars, fmt=form)
    axes.margins(y=0.15)
