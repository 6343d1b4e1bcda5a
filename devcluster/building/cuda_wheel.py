"""Builds the wheel of llama-cpp-python with the CUDA backend, and keeps it in the cache beside the CPU wheel.

The recipe is the script embedder-service/add-cuda-backend, which extends the CPU wheel. Compiling takes more than an
hour on two processors. Therefore sources and objects are kept until the wheel is built, and after an interruption the
same command continues the build.
"""

import shutil
from pathlib import Path

from devcluster import processes
from devcluster.building.digests import digest_of_files
from devcluster.building.wheel import build_llama_wheel, wheel_key
from devcluster.errors import DevclusterError
from devcluster.locks import locked
from devcluster.progress import Reporter
from devcluster.settings import REPOSITORY, Settings

RECIPE = "embedder-service/add-cuda-backend"
_INPUTS = (
    RECIPE,
    "requirements/llama.txt",
    "requirements/llama-build.txt",
    "requirements/cuda.txt",
    "requirements/cuda-build.txt",
)
_REMEDY = "apt-get install --yes --no-install-recommends g++ binutils python3-venv"


def cuda_wheel_key(settings: Settings) -> str:
    """Compute the digest of the recipe, the files that it reads, and the GPU architectures of the build."""
    return digest_of_files(REPOSITORY, _INPUTS, {"wheel": wheel_key(), "architectures": settings.cuda_architectures})


def cuda_wheel_path(settings: Settings) -> Path | None:
    """Return the path of the wheel, or None if it is not built yet."""
    return next(_directory(settings).glob("llama_cpp_python-*.whl"), None)


def build_cuda_wheel(settings: Settings, reporter: Reporter) -> Path:
    """Return the path of the wheel; build a missing one first."""
    wheel = build_llama_wheel(settings, reporter)
    directory = _directory(settings)
    # A lock of its own, so that builds of other wheels do not wait an hour for this one.
    lock = directory.with_name(f".{directory.name}.lock")
    with locked(lock, lambda: reporter.say("Another session is building the wheel; waiting.")):
        built = cuda_wheel_path(settings)
        if built is None:
            _build(wheel, directory, settings, reporter)
            built = cuda_wheel_path(settings)
    if built is None:
        raise DevclusterError(f"{RECIPE} made no wheel", remedy=f"run it by hand: {RECIPE} {wheel} /tmp/wheels")
    return built


def _build(wheel: Path, directory: Path, settings: Settings, reporter: Reporter) -> None:
    if not processes.exists("c++"):
        raise DevclusterError("the CUDA backend has to be compiled, which needs c++", remedy=_REMEDY)
    objects = directory.with_name(f".{directory.name}.objects")
    target = objects / "out"
    environment = {"BUILD_DIR": str(objects), "CUDA_ARCHITECTURES": settings.cuda_architectures}
    with reporter.step(f"Build the CUDA backend of llama.cpp for {settings.cuda_architectures}") as step:
        processes.stream([REPOSITORY / RECIPE, wheel, target], step.note, env=environment, remedy=_REMEDY)
        step.note("")
    shutil.rmtree(directory, ignore_errors=True)
    target.rename(directory)
    shutil.rmtree(objects)


def _directory(settings: Settings) -> Path:
    return settings.cache_dir / "wheels" / f"llama-cuda-{cuda_wheel_key(settings)}"
