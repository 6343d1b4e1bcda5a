"""The command `latency` at its smallest size, with a graph and few questions."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_command_measures_each_design_warm_and_cold(tmp_path: Path) -> None:
    """The last line has the figures of this size; a cold recall reads what a warm one finds in memory."""
    ran = subprocess.run(
        [
            sys.executable, "-m", "memory_bench", "latency", "--rows", "5000", "--questions", "20", "--warm-up", "10",
            "--cold-rounds", "1", "--checked", "2", "--graph",
            "--cache", str(tmp_path / "cache"), "--output", str(tmp_path / "results"),
        ],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": "benchmarks"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    headline = json.loads(ran.stdout.splitlines()[-1])
    assert set(headline) == {
        "p95_5k_vs_plain", "embedder_stopped_adds_ms", "or_overlap", "ann_recall", "graph_added_p95_ms",
    }  # fmt: skip
    (size,) = json.loads((tmp_path / "results" / "latency.json").read_text())["sizes"]
    reads = {(one["arm"], one["condition"]): one for one in size["arms"]}
    assert len(reads) == 18
    for arm in ("ours", "plain"):
        warm, cold = reads[arm, "warm"], reads[arm, "cold"]
        assert warm["buffers_hit"] > 100
        assert cold["buffers_read"] > warm["buffers_read"]
        assert (len(warm["first_milliseconds"]), len(cold["first_milliseconds"])) == (0, 1)
    assert size["index_gib"] > 0
