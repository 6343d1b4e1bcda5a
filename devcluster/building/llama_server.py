"""Builds llama-server from its locked source, once for each version of the build recipe, and keeps it in the cache.

The recipe is devcluster/build-llama-server. Like our wheel, the program is compiled for every processor with AVX2, so
that it still works if the cache is moved to another machine. On a GPU the same program loads our wheel's CUDA backend.
"""

import shutil
import tempfile
from pathlib import Path

from devcluster import processes
from devcluster.building.binaries import go_architecture
from devcluster.building.digests import digest_of_files
from devcluster.errors import DevclusterError
from devcluster.locks import locked
from devcluster.progress import Reporter
from devcluster.settings import REPOSITORY

RECIPE = "devcluster/build-llama-server"
_INPUTS = (
    RECIPE,
    "embedder-service/apply-patches",
    "embedder-service/packaging/fewer-processor-variants.patch",
    "requirements/llama.txt",
    "requirements/llama-build.txt",
)
_REMEDY = "apt-get install --yes --no-install-recommends g++ patch python3-venv"


def llama_server_program(cache: Path, reporter: Reporter) -> Path:
    """Return the path of llama-server, which is first built if it is missing (about ten minutes on two processors)."""
    key = digest_of_files(REPOSITORY, _INPUTS, {"architecture": go_architecture()})
    directory = cache / "llama-server" / key
    program = directory / "llama-server"
    with locked(directory.parent / ".lock", lambda: reporter.say("Another session builds llama-server; waiting.")):
        if not program.exists():
            _build(directory, reporter)
    return program


def _build(directory: Path, reporter: Reporter) -> None:
    if not processes.exists("c++"):
        raise DevclusterError("llama-server has to be compiled and there is no C++ compiler", remedy=_REMEDY)
    with tempfile.TemporaryDirectory(prefix=".building-", dir=directory.parent) as scratch:
        target = Path(scratch, "out")
        with reporter.step("Build llama-server, the peer (about 10 minutes, once)") as step:
            processes.stream([REPOSITORY / RECIPE, target], step.note, remedy=_REMEDY)
            step.note("")
        shutil.rmtree(directory, ignore_errors=True)
        target.rename(directory)
