"""Tests in a child process whether kernels with AMX, Intel's matrix instructions, compute a model on this machine.

The test needs a process of its own because it may end with an illegal instruction. Some machines whose CPU flags
include AMX cannot run it, and some builds of llama.cpp do not load the whole tile configuration
(https://github.com/ggml-org/llama.cpp/pull/26954; a build with this project's patches does). With AMX, a quantised
model takes half the time. If AMX were used on a machine where it fails, the pod would die at its first batch without a
message.
"""

import subprocess
import sys
from collections.abc import Sequence

import structlog

from memory_embedder.engine.backends import amx_possible
from memory_embedder.models.model_file import ModelFile
from memory_embedder.models.profiles import ModelProfile

_SECONDS = 120.0  # loading a large file from a slow disk, twice over
_TRIAL = "memory_embedder.engine.amx_trial"  # a name, since that module imports the engine, which imports this one


def amx_works(model: ModelFile, profile: ModelProfile) -> bool:
    """Return whether this machine's fastest CPU kernels compute a quantised model of this profile without a crash.

    Return True without a test if these kernels do not use AMX.
    """
    if not amx_possible():
        return True
    described = (str(profile.width), str(profile.max_tokens), profile.pooling)
    command = [sys.executable, "-m", _TRIAL, str(model.reference), *described]
    works = survives(command, _SECONDS, inherited=(model.descriptor,))
    if not works:
        structlog.get_logger("memory_embedder.engine").warning(
            "AMX kernels cannot compute this model here; others take longer", file=model.path.name
        )
    return works


def survives(command: Sequence[str], seconds: float, *, inherited: Sequence[int] = ()) -> bool:
    """Run a command and return whether it ends with success within `seconds`; its output is discarded.

    `inherited` are the descriptors of open files that the command may use.
    """
    quiet = subprocess.DEVNULL
    try:
        done = subprocess.run(
            command, stdin=quiet, stdout=quiet, stderr=quiet, pass_fds=inherited, timeout=seconds, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
