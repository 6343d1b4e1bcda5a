"""The command `embedder` at its smallest size, with a replacement for llama-server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
STAND_IN = Path(__file__).with_name("stand_in_llama_server.py")


def bench(*options: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'benchmarks'}", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "memory_bench", "embedder", *options]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=400)


@pytest.fixture
def peer(tmp_path: Path) -> Path:
    program = tmp_path / "llama-server"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {STAND_IN} "$@"\n')
    program.chmod(0o755)
    return program


def test_a_run_writes_results_and_a_chart_and_ends_with_one_line_of_json(tmp_path: Path, peer: Path) -> None:
    done = bench("--quick", "--output", str(tmp_path / "results"), "--llama-server", str(peer))
    assert done.returncode == 0, done.stderr
    last = json.loads(done.stdout.splitlines()[-1])
    processor = last.pop("processor")
    assert last.keys() == {
        "docs_vs_llama_server",
        "docs_vs_llama_embed",
        "docs_vs_raw",
        "query_idle_vs_raw",
        "query_idle_vs_llama_server_at_12_tokens",
        "query_idle_vs_llama_server_at_122_tokens",
        "query_under_bulk_vs_llama_server",
        "bulk_loss_to_lanes",
        "query_idle_p50_ms",
        "query_beside_reranking_p50_ms",
        "query_beside_reranking_bound_ms",
    }
    kept = json.loads((tmp_path / "results" / "all-MiniLM-L6-v2.json").read_text())
    assert kept["summary"] == last
    assert kept["machine"]["processor"] == processor != ""
    raw = json.loads((tmp_path / "results" / "raw" / "all-MiniLM-L6-v2.json").read_text())
    assert raw["least_cosine"] > 0.995
    subjects = {record["subject"] for record in raw["documents"]}
    assert subjects == {"memory-embedder", "llama-server", "raw loop", "Llama.embed", "Llama.embed (512)"}
    assert all(isinstance(value, float) for value in last.values())


def test_a_llama_server_that_does_not_start_is_named_with_the_end_of_its_log(tmp_path: Path) -> None:
    program = tmp_path / "llama-server"
    program.write_text("#!/bin/sh\necho 'no such model' >&2\nexit 3\n")
    program.chmod(0o755)
    done = bench("--quick", "--output", str(tmp_path), "--llama-server", str(program))
    assert done.returncode == 1
    assert "llama-server was not ready" in done.stderr
    assert "no such model" in done.stderr


def test_without_a_gpu_the_gpu_benchmark_says_so_and_measures_nothing(tmp_path: Path) -> None:
    done = bench("--gpu", "--quick", "--output", str(tmp_path / "results"))
    assert done.returncode == 1
    assert "no GPU is to be measured" in done.stderr
    assert "make cuda-wheel" in done.stderr
    assert not (tmp_path / "results").exists()
