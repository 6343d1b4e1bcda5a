"""The command `replicas` at a small size."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_command_measures_both_instances_and_ends_with_one_line_of_figures(tmp_path: Path) -> None:
    """The standby answers recalls, and reading them again costs the primary something."""
    ran = subprocess.run(
        [
            sys.executable, "-m", "memory_bench", "replicas", "--output", str(tmp_path), "--rows", "5000",
            "--clients", "2", "--seconds", "2", "--rounds", "1",
        ],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": "benchmarks:recall"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["two_vs_one"] > 0
    assert found["primary_ms_of_a_recall_on_the_standby"] > 0
    rounds = json.loads((tmp_path / "results.json").read_text())["rounds"]
    assert {name: len(measured) for name, measured in rounds.items()} == {
        "one instance": 1, "two instances": 1, "the standby alone": 1,
    }  # fmt: skip
    assert rounds["one instance"][0]["standby"] < rounds["one instance"][0]["primary"]
    assert rounds["the standby alone"][0]["primary"] < rounds["the standby alone"][0]["standby"]
