"""Writes the summary with the headline figures, and a chart of the measurements by number of objects."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memory_bench.operator.parts import KEYS, PartResult
from memory_bench.report import chart, machine, now, write_json
from tests.support.cluster.faults.points import SHARE

MOST: dict[str, float] = {
    "takeovers": 0,
    "lies": 0,
    "edit_latency_500_vs_10": 3,
    "reads_per_min_settled_500": 1200,
    "writes_per_min_settled": 0,
    "rss_mb": 200,
    "restart_to_all_seen_s": 60,
    "recovery_s": 60,
    "leaders": 1,
}
LEAST: dict[str, int] = {"hostile": 12, "situations": 60, "fault_points": 150, "leaders": 1}
NAMESPACES_DELETED = "12/12"
# The limits of figures that consist of several: at most, or from `inputs` and `tried` at least.
WITHIN: dict[str, dict[str, float]] = {
    "withdrawals": {"tried": 6, "longest_s": 60, "texts_after": 0},
    "hostile_tenants": {
        "inputs": 40,
        "longest_loop_pause_ms": 500,
        "longest_loop_busy_ms": 500,
        "other_tenants_delay_s": 1,
        "restarts": 0,
    },
    "tls": {"verified": True, "wrong_ca_refused": True, "rotations_under_load": 1, "recall_errors": 0},
    "admission": {"mutations": 6, "applies_per_min_settled": 0},
    "copies": {"situations": 4, "wrong_database_touched": 0},
}
COUNTED = {"tried", "inputs", "verified", "wrong_ca_refused", "rotations_under_load", "mutations", "situations"}
ALL_READY = {"ready": "all"}


def headline(results: Mapping[str, PartResult]) -> dict[str, Any]:
    """Return the headline figures of all parts; a figure is None if its part did not run or failed."""
    found = {key: value for result in results.values() for key, value in result.figures.items()}
    return {key: found.get(key) for key in KEYS}


def failures(figures: Mapping[str, Any], *, share: float) -> list[str]:
    """Return a line for each measured figure that is outside its accepted range.

    `share` is the fraction of the fault points that was tried. A fault point is one call of the operator that fails in
    one way; with a smaller share, fewer of them are required.
    """
    measured = {key: value for key, value in figures.items() if value is not None}
    least = {key: limit * (min(1.0, share / SHARE) if key == "fault_points" else 1) for key, limit in LEAST.items()}
    lines = [
        f"{key} is {measured[key]}, at most {limit:g} is accepted"
        for key, limit in MOST.items()
        if measured.get(key, limit) > limit
    ]
    lines += [
        f"{key} is {measured[key]}, at least {limit:g} is accepted"
        for key, limit in least.items()
        if measured.get(key, limit) < limit
    ]
    lines += [
        f"{key}.{name} is {measured[key][name]}, at {'least' if name in COUNTED else 'most'} {limit:g} is accepted"
        for key, limits in WITHIN.items()
        if key in measured
        for name, limit in limits.items()
        if (measured[key][name] < limit if name in COUNTED else measured[key][name] > limit)
    ]
    if measured.get("namespaces_deleted", NAMESPACES_DELETED) != NAMESPACES_DELETED:
        lines.append(f"{measured['namespaces_deleted']} namespaces were deleted in time")
    if measured.get("admission", ALL_READY)["ready"] != "all":
        lines.append(f"{measured['admission']['ready']} objects became Ready under admission")
    converged, points = measured.get("fault_points_converged"), measured.get("fault_points")
    if converged != points:
        lines.append(f"{converged} of {points} fault points converged")
    return lines


def write(directory: Path, results: Mapping[str, PartResult], seconds: Mapping[str, float]) -> None:
    """Write `summary.json` and, if the part `scale` has run, the chart `scale.png`.

    The summary keeps the parts of earlier runs that did not run again.
    """
    path = directory / "summary.json"
    parts = json.loads(path.read_text(encoding="utf-8"))["parts"] if path.exists() else {}
    for name, result in results.items():
        took = {"at": now(), "machine": machine(), "seconds": seconds[name]}
        parts[name] = {**took, "figures": result.figures, "details": result.details}
    kept = {name: PartResult(part["figures"], part["details"]) for name, part in parts.items()}
    write_json(path, {"headline": headline(kept), "parts": parts})
    if "scale" in results and results["scale"].figures:
        _draw(directory / "scale.png", parts["scale"]["details"]["sizes"])


def _draw(path: Path, sizes: list[dict[str, Any]]) -> None:
    objects = [one["objects"] for one in sizes]
    with chart(path, columns=3, size=(12, 3.6)) as (edits, reads, memory):
        edits.plot(objects, [one["edit_p50_s"] for one in sizes], "o-", color="#3b6ea5", label="median")
        edits.plot(objects, [one["edit_longest_s"] for one in sizes], "o-", color="#9aa5b1", label="longest")
        edits.set(ylabel="seconds from an edit to its observedGeneration", title="Edits")
        edits.legend()
        reads.plot(objects, [one["reads_per_min"] for one in sizes], "o-", color="#3b6ea5", label="reads")
        reads.plot(objects, [one["writes_per_min"] for one in sizes], "o-", color="#d1495b", label="writes")
        reads.set(ylabel="requests a minute, settled", title="Requests to the API server")
        reads.legend()
        memory.plot(objects, [one["rss_mb"] for one in sizes], "o-", color="#3b6ea5")
        memory.set(ylabel="resident MiB", title="Memory of the operator")
        for axis in (edits, reads, memory):
            axis.set(xlabel="objects", ylim=(0, None), xlim=(0, None))
