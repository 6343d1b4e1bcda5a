"""The command `shared-table` at a small size."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_command_ends_with_one_line_of_figures_and_writes_results_and_chart(tmp_path: Path) -> None:
    ran = subprocess.run(
        [
            sys.executable, "-m", "memory_bench", "shared-table", "--output", str(tmp_path), "--rows", "500",
            "--indexed-rows", "400", "--updates", "50", "--seconds", "1",
        ],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": "benchmarks"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert set(json.loads(ran.stdout.splitlines()[-1])) == {
        "longest_wait_ms", "undisturbed_longest_ms", "indexed_update_cost", "indexed_update_cost_with_room",
    }  # fmt: skip
    raw = json.loads((tmp_path / "results.json").read_text())
    for phase in ("undisturbed", "during the migration", "during the index build"):
        assert raw["waits"][phase]["statements"] > 0
    in_place = {case["name"]: case["in_place"] for case in raw["updates"]}
    assert in_place["vector index, fillfactor 85"] > 0.5
    assert in_place["vector index, fillfactor 85, updated_at too"] == 0
    assert "<svg" in (tmp_path / "shared_table.svg").read_text()
