"""The command `embedder` at its smallest size, with a replacement for llama-server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
STAND_IN = Path(__file__).with_name("stand_in_llama_server.py")


def bench(*options: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'benchmarks'}", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "memory_bench", "embedder", *options]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=400)


def test_a_llama_server_that_does_not_start_is_named_with_the_end_of_its_log(tmp_path: Path) -> None:
    program = tmp_path / "llama-server"
    program.write_text("#!/bin/sh\necho 'no such model' >&2\nexit 3\n")
    program.chmod(0o755)
    done = bench("--quick", "--output", str(tmp_path), "--llama-server", str(program))
    assert done.returncode == 1
    assert "llama-server ended with status 3 at its start" in done.stderr
    assert "no such model" in done.stderr


def test_without_a_gpu_the_gpu_benchmark_says_so_and_measures_nothing(tmp_path: Path) -> None:
    done = bench("--gpu", "--quick", "--output", str(tmp_path / "results"))
    assert done.returncode == 1
    assert "no GPU is to be measured" in done.stderr
    assert "make cuda-wheel" in done.stderr
    assert not (tmp_path / "results").exists()
