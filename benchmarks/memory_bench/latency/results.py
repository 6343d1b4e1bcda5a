"""Writes the results of the latency benchmark: JSON with the main figures, and tables.

Ratios are those of two designs under the same condition, warm or cold caches (see `conditions`). A figure that does not
say `cold` is one of warm caches.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np

from memory_bench.latency.conditions import COLD, CONDITIONS, WARM, Condition, Measured
from memory_bench.latency.designs import EMBEDDER_STOPPED, LEXICAL_ONLY, OURS, PLAIN, WITH_GRAPH
from memory_bench.latency.warming import Warming
from memory_bench.report import RAW, machine, markdown_table, now, write_json

SMALL, LARGE = 5_000, 1_000_000


@dataclass(frozen=True, slots=True)
class SizeResult:
    """The measurements at one table size; `arms` holds those of each design under each condition.

    `ann_recall` maps a filter (all rows, or one user's rows) to the recall@50 of the HNSW index. `or_overlap` is the
    share of the ten best rows by BM25 without a candidate budget that the lexical leg returns. `build_seconds` maps the
    steps of filling the database to their time, and `sizes` its parts to their bytes. `huge_pages` says whether the
    server's shared memory was in huge pages, which make a search of a large index faster. `warming` is what reading
    ahead gives after a start of the server.
    """

    rows: int
    arms: tuple[Measured, ...]
    ann_recall: Mapping[str, float]
    or_overlap: float
    build_seconds: Mapping[str, float]
    sizes: Mapping[str, int]
    huge_pages: bool
    warming: Warming

    def p(self, arm: str, percent: float, condition: Condition = WARM) -> float:
        """Return a percentile of one design's times in milliseconds; `percent` is from 0 to 100."""
        return self.measured(arm, condition).percentile(percent)

    def p95_ratio(self, condition: Condition) -> float:
        """Return our 95th percentile divided by that of the plain design under the same condition."""
        return self.p(OURS, 95, condition) / self.p(PLAIN, 95, condition)

    @property
    def index_gib(self) -> float:
        """The size of the HNSW index in GiB."""
        return self.sizes["hnsw"] / 2**30

    @property
    def build_minutes(self) -> float:
        """The minutes that building the HNSW index took."""
        return self.build_seconds["hnsw"] / 60

    @property
    def stopped_adds(self) -> float:
        """The milliseconds by which a stopped embedder delays recall, compared with a purely lexical recall.

        The value is the median over all questions of the warm measurements.
        """
        stopped, lexical = (self.measured(arm, WARM).milliseconds for arm in (EMBEDDER_STOPPED, LEXICAL_ONLY))
        return median(one - other for one, other in zip(stopped, lexical, strict=True))

    @property
    def graph_adds(self) -> float | None:
        """The milliseconds that the graph leg adds to the 95th percentile, or None if it was not measured."""
        if all(one.arm != WITH_GRAPH for one in self.arms):
            return None
        return self.p(WITH_GRAPH, 95) - self.p(OURS, 95)

    def summary(self) -> dict[str, object]:
        """Return all fields as a dictionary for JSON, with percentiles instead of every single time.

        The reads are means for one recall: buffers of 8 KiB, and bytes that came from the disk.
        """
        return {
            **asdict(self),
            "arms": [_summary(one) for one in self.arms],
            "warming": self.warming.summary(self.p(OURS, 95)),
            "p95_vs_plain": {condition: round(self.p95_ratio(condition), 4) for condition in CONDITIONS},
            "index_gib": round(self.index_gib, 4),
            "build_minutes": round(self.build_minutes, 2),
        }

    def measured(self, arm: str, condition: Condition) -> Measured:
        """Return what was measured of one design under one condition."""
        return next(one for one in self.arms if (one.arm, one.condition) == (arm, condition))


@dataclass(frozen=True, slots=True)
class InTurn:
    """The times of our recall with warm caches at the smallest and at the largest size, measured in turn, in ms."""

    small: tuple[float, ...]
    large: tuple[float, ...]

    @property
    def p95_ratio(self) -> float:
        """The 95th percentile at the largest size divided by that at the smallest."""
        return float(np.percentile(self.large, 95) / np.percentile(self.small, 95))

    def summary(self) -> dict[str, dict[str, float]]:
        """Return percentiles in milliseconds by the number of rows."""
        both = {str(SMALL): self.small, str(LARGE): self.large}
        return {
            rows: {f"p{percent}": round(float(np.percentile(times, percent)), 3) for percent in (50, 95, 99)}
            for rows, times in both.items()
        }


def _summary(measured: Measured) -> dict[str, object]:
    return {
        "arm": measured.arm,
        "condition": measured.condition,
        **{f"p{percent}": round(measured.percentile(percent), 3) for percent in (50, 95, 99)},
        **{name: round(value, 1) for name, value in asdict(measured.reads).items()},
        "first_milliseconds": [round(one, 1) for one in measured.first_milliseconds],
        "kept_bytes": measured.kept_bytes,
        "in_memory": measured.in_memory,
    }


def figures(results: Sequence[SizeResult], in_turn: InTurn | None) -> dict[str, float]:
    """Return the benchmark's main figures.

    Figures with `vs_plain` are the 95th percentile of our times divided by that of the plain design's times.
    `p95_1m_vs_5k` divides the 95th percentile of our times in the largest table by that in the smallest table, if they
    were measured in turn. If the graph leg was measured, `graph_added_p95_ms` is what it adds to the 95th percentile of
    our times, the most over all sizes below a million rows, and `graph_added_p95_1m_ms` is the same at a million.

    At a million rows, `bytes_read_cold` is what one recall of ours read from the disk with cold caches, on average, and
    `index_gib` and `build_minutes` are size and build time of the HNSW index. `cold_p95_1m_ms` is followed by the same
    after the sync worker has read ahead, `cold_p95_1m_ms_read_ahead`. `seconds_to_warm_1m` are the seconds until the
    95th percentile is within twice the warm one; it is absent if it is not. `while_reading_1m_vs_cold` divides the time
    of recalls meanwhile by that of the same cold ones, and `after_vacuum_p95_1m_ms` is that of warm recalls after a
    vacuum.
    """
    by_rows = {one.rows: one for one in results}
    found: dict[str, float] = {}
    if LARGE in by_rows:
        large = by_rows[LARGE]
        found["p95_1m_vs_plain"] = large.p95_ratio(WARM)
        if in_turn is not None:
            found["p95_1m_vs_5k"] = in_turn.p95_ratio
        found["cold_p95_1m_ms"] = large.p(OURS, 95, COLD)
        found |= _warming_figures(large)
        found["cold_1m_vs_plain_cold"] = large.p95_ratio(COLD)
        found["bytes_read_cold"] = round(large.measured(OURS, COLD).reads.disk_bytes)
        found["index_gib"] = large.index_gib
        found["build_minutes"] = large.build_minutes
    if SMALL in by_rows:
        found["p95_5k_vs_plain"] = by_rows[SMALL].p95_ratio(WARM)
    found["embedder_stopped_adds_ms"] = max(one.stopped_adds for one in results)
    found["or_overlap"] = min(one.or_overlap for one in results)
    found["ann_recall"] = min(min(one.ann_recall.values()) for one in results)
    added = {one.rows: one.graph_adds for one in results if one.graph_adds is not None}
    if LARGE in added:
        found["graph_added_p95_1m_ms"] = added.pop(LARGE)
    if added:
        found["graph_added_p95_ms"] = max(added.values())
    return {name: round(value, 4) for name, value in found.items()}


def _warming_figures(large: SizeResult) -> dict[str, float]:
    warming = large.warming
    seconds, slower = warming.seconds_to_warm(large.p(OURS, 95)), warming.meanwhile_vs_cold
    return {
        "cold_p95_1m_ms_read_ahead": warming.after_p95,
        **({"seconds_to_warm_1m": seconds} if seconds is not None else {}),
        **({"while_reading_1m_vs_cold": slower} if slower is not None else {}),
        "after_vacuum_p95_1m_ms": float(np.percentile(warming.after_vacuum, 95)),
    }


def table(results: Sequence[SizeResult]) -> str:
    """Return three Markdown tables: of times and reads by size, design and condition; of the indexes; of warming."""
    heading = ("p50 / p95 ms", "buffers hit / read", "MiB from disk")
    times = [["rows", "design", *(f"{condition}: {column}" for condition in CONDITIONS for column in heading)]]
    for one in results:
        for arm in dict.fromkeys(measured.arm for measured in one.arms):
            cells = [cell for condition in CONDITIONS for cell in _cells(one.measured(arm, condition))]
            times.append([f"{one.rows:,}", arm, *cells])
    indexes = [
        ["rows", "HNSW index, GiB", "its build, minutes", "index recall@50", "BM25 top-10 overlap", "huge pages"]
    ]
    for one in results:
        shares = " / ".join(f"{share:.3f}" for share in one.ann_recall.values())
        size, minutes = f"{one.index_gib:.3f}", f"{one.build_minutes:.1f}"
        huge = "yes" if one.huge_pages else "no"
        indexes.append([f"{one.rows:,}", size, minutes, shares, f"{one.or_overlap:.3f}", huge])
    warming = [["rows", "read ahead by", "seconds", "p95 after it / cold / warm, ms", "recalls meanwhile vs cold"]]
    for one in results:
        found = one.warming
        percentiles = " / ".join(f"{p:.1f}" for p in (found.after_p95, one.p(OURS, 95, COLD), one.p(OURS, 95)))
        slower = "-" if found.meanwhile_vs_cold is None else f"{found.meanwhile_vs_cold:.2f}"
        by = "pg_prewarm" if found.extension else "searches"
        warming.append([f"{one.rows:,}", by, f"{max(found.seconds):.1f}", percentiles, slower])
    return "\n".join(map(markdown_table, (times, indexes, warming)))


def _cells(measured: Measured) -> tuple[str, str, str]:
    reads = measured.reads
    return (
        f"{measured.percentile(50):.1f} / {measured.percentile(95):.1f}",
        f"{reads.buffers_hit:,.0f} / {reads.buffers_read:,.0f}",
        f"{reads.disk_bytes / 2**20:.2f}",
    )


def write(results: Sequence[SizeResult], in_turn: InTurn | None, directory: Path) -> None:
    """Write figures and tables, and the single times into a folder that git ignores."""
    kept = {
        "made_at": now(),
        "machine": machine(),
        "figures": figures(results, in_turn),
        "in_turn": in_turn and in_turn.summary(),
        "sizes": [one.summary() for one in results],
    }
    write_json(directory / "latency.json", kept)
    write_json(directory / RAW / "milliseconds.json", [asdict(one) for one in results])
    (directory / "latency.md").write_text(table(results), encoding="utf-8")
