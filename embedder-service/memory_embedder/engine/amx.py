"""Asks a child process whether AMX kernels compute a model here, because the answer may be an illegal instruction.

Not every machine whose flags promise AMX runs it, and not every build of llama.cpp loads the tile configuration that it
wrote (https://github.com/ggml-org/llama.cpp/pull/26954; our wheel does). Where AMX works, a quantised model takes half
the time; where it does not, a pod would die at its first batch without a word.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import structlog

from memory_embedder.engine.backends import amx_possible

_SECONDS = 120.0  # loading a large file from a slow disk, twice over
_PROBE = "memory_embedder.engine.amx_probe"


def amx_works(model: Path) -> bool:
    """Whether a process that computes this model's quantised weights with what AMX kernels there are lives."""
    if not amx_possible():
        return True
    works = survives([sys.executable, "-m", _PROBE, str(model)], _SECONDS)
    if not works:
        structlog.get_logger("memory_embedder.engine").warning(
            "AMX kernels cannot compute this model here; others take longer", file=model.name
        )
    return works


def survives(command: Sequence[str], seconds: float) -> bool:
    """Whether a process ends by itself, in that time and with success; nothing that it prints is kept."""
    quiet = subprocess.DEVNULL
    try:
        done = subprocess.run(command, stdin=quiet, stdout=quiet, stderr=quiet, timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
