"""Writes the results of the backfill benchmark as JSON."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memory_bench.report import write_json


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
    """Write `results.json`."""
    write_json(directory / "results.json", {"headline": headline(results), **results})
