"""The command `embedder-flood` with 150 requests; `make flood-embedder` sends 10,000."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from memory_bench.embedder_flood.flood import Outcome

ROOT = Path(__file__).parents[3]


def test_a_flood_is_answered_without_server_errors_and_leaves_memory_as_it_was(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'benchmarks'}"}
    kept = tmp_path / "flood.json"
    command = [sys.executable, "-m", "memory_bench", "embedder-flood", "--count", "150", "--output", str(kept)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    outcome = json.loads(kept.read_text())["outcome"]
    assert outcome == json.loads(done.stdout)
    assert outcome["server_errors"] == outcome["unanswered"] == 0
    assert 0.2 < outcome["malformed"] / outcome["requests"] < 0.4
    assert outcome["statuses"]["200"] >= 75
    assert sum(outcome["statuses"].values()) == 150


def test_growth_server_errors_and_unanswered_requests_each_fail_a_flood() -> None:
    def passed(*, errors: int = 0, unanswered: int = 0, after: int = 100) -> bool:
        return Outcome(10, 3, {}, 0, errors, unanswered, rss_before=100, rss_after=after, seconds=1.0).passed

    assert passed()
    assert passed(after=104)
    assert not passed(after=106)
    assert not passed(after=94)
    assert not passed(errors=1)
    assert not passed(unanswered=1)
