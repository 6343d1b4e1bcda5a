"""Writes the results of the latency benchmark: JSON with the main figures, a table, and a chart over table size."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from memory_bench.latency.measure import EMBEDDER_STOPPED, LEXICAL_ONLY, WITH_GRAPH, Measured
from memory_bench.report import RAW, chart, machine, markdown_table, now, write_json

SMALL, LARGE = 5_000, 1_000_000
_SHOWN = ("ours", "plain")


@dataclass(frozen=True, slots=True)
class SizeResult:
    """The measurements at one table size; `arms` holds the times of the compared configurations.

    `ann_recall` maps a filter (all rows, or one user's rows) to the recall@50 of the HNSW index. `or_overlap` is the
    share of the ten best rows by BM25 without a candidate budget that the lexical leg returns.
    """

    rows: int
    arms: tuple[Measured, ...]
    ann_recall: Mapping[str, float]
    or_overlap: float
    build_seconds: Mapping[str, float]

    def p(self, arm: str, percent: float) -> float:
        """Return a percentile of one configuration's times in milliseconds; `percent` is from 0 to 100."""
        return self._arm(arm).percentile(percent)

    @property
    def stopped_adds(self) -> float:
        """The milliseconds by which a stopped embedder delays recall, compared with a purely lexical recall.

        The value is the median over all questions.
        """
        pairs = zip(self._arm(EMBEDDER_STOPPED).milliseconds, self._arm(LEXICAL_ONLY).milliseconds, strict=True)
        return median(stopped - lexical for stopped, lexical in pairs)

    @property
    def graph_adds(self) -> float | None:
        """The milliseconds that the graph leg adds to the 95th percentile, or None if it was not measured."""
        if all(one.arm != WITH_GRAPH for one in self.arms):
            return None
        return self.p(WITH_GRAPH, 95) - self.p("ours", 95)

    def summary(self) -> dict[str, object]:
        """Return all fields as a dictionary for JSON, with percentiles instead of every single time."""
        arms = [
            {"arm": one.arm, **{f"p{percent}": round(one.percentile(percent), 3) for percent in (50, 95, 99)}}
            for one in self.arms
        ]
        return {**asdict(self), "arms": arms}

    def _arm(self, name: str) -> Measured:
        return next(one for one in self.arms if one.arm == name)


def figures(results: Sequence[SizeResult]) -> dict[str, float]:
    """Return the benchmark's main figures.

    Figures with `vs_plain` are the 95th percentile of our times divided by that of the plain design's times.
    `p95_1m_vs_5k` divides the 95th percentile of our times in the largest table by that in the smallest table. If the
    graph leg was measured, `graph_added_p95_ms` is what it adds to the 95th percentile of our times, the most over all
    sizes below a million rows, and `graph_added_p95_1m_ms` is the same at a million.
    """
    by_rows = {one.rows: one for one in results}
    found = {}
    if LARGE in by_rows:
        large = by_rows[LARGE]
        found["p95_1m_vs_plain"] = large.p("ours", 95) / large.p("plain", 95)
        if SMALL in by_rows:
            found["p95_1m_vs_5k"] = large.p("ours", 95) / by_rows[SMALL].p("ours", 95)
    if SMALL in by_rows:
        found["p95_5k_vs_plain"] = by_rows[SMALL].p("ours", 95) / by_rows[SMALL].p("plain", 95)
    found["embedder_stopped_adds_ms"] = max(one.stopped_adds for one in results)
    found["or_overlap"] = min(one.or_overlap for one in results)
    found["ann_recall"] = min(min(one.ann_recall.values()) for one in results)
    added = {one.rows: one.graph_adds for one in results if one.graph_adds is not None}
    if LARGE in added:
        found["graph_added_p95_1m_ms"] = added.pop(LARGE)
    if added:
        found["graph_added_p95_ms"] = max(added.values())
    return {name: round(value, 4) for name, value in found.items()}


def table(results: Sequence[SizeResult]) -> str:
    """Return a Markdown table of the median and 95th percentile of every configuration at every table size."""
    arms = [one.arm for one in results[0].arms]
    rows = [["rows", *(f"{arm}: p50 / p95 ms" for arm in arms), "index recall@50", "BM25 top-10 overlap"]]
    for one in results:
        times = [f"{one.p(arm, 50):.1f} / {one.p(arm, 95):.1f}" for arm in arms]
        shares = " / ".join(f"{share:.3f}" for share in one.ann_recall.values())
        rows.append([f"{one.rows:,}", *times, shares, f"{one.or_overlap:.3f}"])
    return markdown_table(rows)


def write(results: Sequence[SizeResult], directory: Path) -> None:
    """Write figures, table and chart, and the single times into a folder that git ignores."""
    kept = {
        "made_at": now(),
        "machine": machine(),
        "figures": figures(results),
        "sizes": [one.summary() for one in results],
    }
    write_json(directory / "latency.json", kept)
    write_json(directory / RAW / "milliseconds.json", [asdict(one) for one in results])
    (directory / "latency.md").write_text(table(results), encoding="utf-8")
    plot(results, directory / "latency.svg")


def plot(results: Sequence[SizeResult], path: Path) -> None:
    """Draw the times against the number of rows, both on logarithmic axes."""
    rows = [one.rows for one in results]
    with chart(path, size=(6.4, 4.2)) as axes:
        for arm, colour in zip(_SHOWN, ("tab:blue", "tab:orange"), strict=True):
            for percent, style in ((50, "-"), (95, "--")):
                times = [one.p(arm, percent) for one in results]
                axes.plot(rows, times, style, marker="o", color=colour, label=f"{arm} design p{percent}")
                axes.annotate(f"{times[-1]:.0f}", (rows[-1], times[-1]), textcoords="offset points", xytext=(5, 3))
        axes.set(xscale="log", yscale="log", xlabel="rows", ylabel="ms, database part")
        axes.set_xlim(rows[0] * 0.8, rows[-1] * 2)
        axes.set_xticks(rows, [f"{one:,}" for one in rows])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.legend()
