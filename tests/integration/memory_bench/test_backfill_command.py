"""The command `backfill` at a small size, and its measurements where something goes wrong."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from memory_bench.backfill import killed_worker, null_embedder, user_updates
from memory_bench.postgres import MeasuredServer

ROOT = Path(__file__).resolve().parents[3]


def test_the_command_ends_with_one_line_of_figures_and_writes_results_and_chart(tmp_path: Path) -> None:
    ran = subprocess.run(
        [
            sys.executable, "-m", "memory_bench", "backfill", "--dataset", "examples/homelab",
            "--output", str(tmp_path),
            "--real-rows", "24", "--real-seconds", "0", "--rows", "2500", "--null-seconds", "0", "--small", "500",
        ],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": "benchmarks"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    headline = json.loads(ran.stdout.splitlines()[-1])
    assert set(headline) == {
        "vs_embedder", "null_vs_bare_update", "rss_growth", "double_embedded", "user_update_ratio",
    }  # fmt: skip
    assert headline["double_embedded"] == 0
    raw = json.loads((tmp_path / "results.json").read_text())
    assert raw["embedder"]["rows"] == 24
    assert {run["side"] for run in raw["embedder"]["runs"]} == {"embedder", "backfill"}
    assert len([run for run in raw["null"]["runs"] if run["side"] == "null-backfill"]) == 2
    peaks = [run["peak_rss_kib"] for run in raw["null"]["runs"]]
    assert len(set(peaks)) > 1, "each process has a peak of its own, not that of the one that started it"


async def test_updates_of_other_columns_are_compared_before_and_after_the_adoption(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the backfill leaves room on each page, more of them touch no index than on the full pages before it."""
    monkeypatch.setattr(user_updates, "UPDATES_A_ROW", 3)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "benchmarks"))  # for the process that backfills
    async with MeasuredServer() as server:
        found = await user_updates.measure(server, rows=600)
    assert found["hot"]["after"] > found["hot"]["before"]
    assert found["user_update_ratio"] > 0 < found["processor_ratio"]


async def test_a_text_that_is_sent_twice_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    once = killed_worker.CountingEmbedder._respond

    def twice(self: killed_worker.CountingEmbedder, path: str, body: bytes) -> bytes:
        once(self, path, body)
        return once(self, path, body)

    monkeypatch.setattr(killed_worker.CountingEmbedder, "_respond", twice)
    async with MeasuredServer() as server:
        assert (await killed_worker.measure(server, rows=1000))["double_embedded"] > 0


async def test_a_run_that_fails_gives_no_figures() -> None:
    with pytest.raises(RuntimeError, match="bare-update ended with status"):
        await null_embedder.run_process("bare-update", "postgresql://nobody@127.0.0.1:1/none", "1")
