"""Writes the results of the swap benchmark: four main figures, a time line in steps of two seconds, and a chart."""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from memory_bench.report import chart, write_json
from memory_bench.swap.load import Record

_BIN = 2.0


def aggregate(record: Record, crossings: int) -> dict[str, Any]:
    """Return counts, the longest durations and the run's time line in steps of two seconds.

    `crossings` is the number of comparisons across models in the results of the recalls. `semantic_gap_s` is the
    longest time without a recall to which the dense leg contributed.
    """
    recalls = sorted(record.recalls, key=lambda one: one.at)
    semantic = [one.at for one in recalls if one.reason is None]
    gaps = [later - earlier for earlier, later in pairwise(semantic)]
    reasons: dict[str, int] = {}
    for one in recalls:
        if one.reason:
            reasons[one.reason] = reasons.get(one.reason, 0) + 1
    return {
        "recalls": len(recalls),
        "writes": len(record.writes),
        "errors": record.errors,
        "degraded": reasons,
        "cross_space": crossings,
        "semantic_gap_s": max(gaps, default=float("inf")),
        "longest_recall_s": max(one.seconds for one in recalls),
        "longest_write_s": max(seconds for _, seconds in record.writes),
        "bins": _bins(record),
    }


def _bins(record: Record) -> list[dict[str, Any]]:
    bins: dict[int, dict[str, list[float]]] = {}
    for one in record.recalls:
        kept = bins.setdefault(int(one.at / _BIN), {"hybrid": [], "lexical_only": [], "writes": []})
        kept["lexical_only" if one.reason else "hybrid"].append(one.seconds)
    for at, seconds in record.writes:
        bins.setdefault(int(at / _BIN), {"hybrid": [], "lexical_only": [], "writes": []})["writes"].append(seconds)
    return [
        {
            "at": number * _BIN,
            "hybrid": len(kept["hybrid"]),
            "lexical_only": len(kept["lexical_only"]),
            "recall_ms_median": _milliseconds(median, kept["hybrid"] + kept["lexical_only"]),
            "recall_ms_longest": _milliseconds(max, kept["hybrid"] + kept["lexical_only"]),
            "write_ms_longest": _milliseconds(max, kept["writes"]),
        }
        for number, kept in sorted(bins.items())
    ]


def _milliseconds(of: Any, seconds: list[float]) -> float | None:  # noqa: ANN401  (any function of numbers)
    return round(1e3 * of(seconds), 2) if seconds else None


def headline(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return the benchmark's four main figures.

    Comparisons across models are counted only where the good model became active. If it did not, `cross_space` is None,
    one error is counted, and `not_flipped` holds the output of the swap's command.
    """
    bad, good = results["swaps"]["bad"], results["swaps"]["good"]
    measured = results["flipped"] and results["instrument_sees_crossing"]
    return {
        "errors": len(results["errors"]) + (0 if measured else 1),
        "cross_space": results["cross_space"] + sum(results["wrong_rows"].values()) if results["flipped"] else None,
        "semantic_gap_s": round(results["semantic_gap_s"], 3),
        "gate_refused": bad["status"] == 4 and "SwapRefused" in bad["said"],
        **({} if results["flipped"] else {"not_flipped": good["said"]}),
    }


def write(directory: Path, results: Mapping[str, Any]) -> None:
    """Write `results.json` and `swap.png`."""
    write_json(directory / "results.json", {"headline": headline(results), **results})
    _chart(directory / "swap.png", results)


def _stages(events: list[dict[str, Any]]) -> list[tuple[float, str]]:
    """Return the start time and name of each stage of the swaps; stages of at most one second are left out."""
    stages = [(one["at"], one["event"].split()[-1]) for one in events if " is " in one["event"]]
    return [one for one, following in pairwise([*stages, (float("inf"), "")]) if following[0] - one[0] > 1]


def _chart(path: Path, results: Mapping[str, Any]) -> None:
    bins = results["bins"]
    times = [one["at"] for one in bins]
    with chart(path, rows=2, size=(10, 5)) as (rates, waits):
        rates.stackplot(
            times,
            [one["hybrid"] / _BIN for one in bins],
            [one["lexical_only"] / _BIN for one in bins],
            labels=["lexical and dense", "lexical only"],
            colors=["#3b6ea5", "#d1495b"],
        )
        rates.set(ylabel="recalls per second", title=f"Model swaps under load, {results['rows']:,} rows")
        rates.legend(loc="lower left")
        waits.plot(times, [one["recall_ms_median"] for one in bins], color="#3b6ea5", label="recall, median")
        waits.plot(times, [one["recall_ms_longest"] for one in bins], color="#9aa5b1", label="recall, longest")
        waits.plot(times, [one["write_ms_longest"] for one in bins], color="#e6a23c", label="write, longest", alpha=0.7)
        waits.set(yscale="log", ylabel="milliseconds", xlabel="seconds")
        waits.legend(loc="upper right", ncols=3)
        rates.set_ylim(0, 1.5 * results["recalls_per_second"])
        for at, stage in _stages(results["events"]):
            for axis in (rates, waits):
                axis.axvline(at, color="#333333", linewidth=0.7, linestyle=":")
            rates.annotate(f" {stage}", (at, rates.get_ylim()[1]), rotation=90, va="top", ha="left", fontsize=8)
