"""Builds the wheel of llama-cpp-python once for each version of its recipe, and keeps it in the cache.

The recipe is the script embedder-service/build-llama-wheel with the patches beside it. The Dockerfile of the embedder
runs the same script. Both pass `--kernels`, which adds this project's faster CPU kernels to llama.cpp.
"""

import re
import shutil
import tempfile
from pathlib import Path

from devcluster import processes
from devcluster.building.binaries import go_architecture
from devcluster.building.digests import digest_of_files
from devcluster.errors import DevclusterError
from devcluster.locks import locked
from devcluster.progress import Reporter
from devcluster.settings import REPOSITORY, Settings

RECIPE = "embedder-service/build-llama-wheel"
_INPUTS = (
    RECIPE,
    "embedder-service/apply-patches",
    "embedder-service/keep-own-variant",
    "embedder-service/kernels",
    "embedder-service/packaging",
    "requirements/llama.txt",
    "requirements/llama-build.txt",
)
TITLE = "Build llama-cpp-python"
OWN_TITLE = "Build llama-cpp-python for this processor"
ARM64_TITLE = "Build llama-cpp-python for arm64"
_PROGRAMS = ("c++", "patch")
_CROSS_COMPILER = "aarch64-linux-gnu-g++"
_REMEDY = "apt-get install --yes --no-install-recommends g++ patch python3-venv"
_CROSS_REMEDY = "apt-get install --yes --no-install-recommends g++-aarch64-linux-gnu patch python3-venv"
_TITLES = {"--for-tests": TITLE, "--this-processor": OWN_TITLE, "--arm64": ARM64_TITLE}
_FEATURES = re.compile(r"^(?:flags|Features)\s*:(.*)$", re.MULTILINE)  # as x86 and ARM processors name the line


def wheel_key() -> str:
    """Compute the digest of the build recipe, the files that it reads, and the machine's architecture."""
    return digest_of_files(REPOSITORY, _INPUTS, {"architecture": go_architecture()})


def own_wheel_key(cpuinfo: str) -> str:
    """Compute the digest of what `wheel_key` is of, and of the features that /proc/cpuinfo lists of the processor.

    Processors that share a cache, as on a home directory of a network, share a wheel only if they have the same
    features.
    """
    listed = _FEATURES.search(cpuinfo)
    features = " ".join(sorted(set(listed[1].split()))) if listed else ""
    return digest_of_files(REPOSITORY, _INPUTS, {"architecture": go_architecture(), "features": features})


def wheel_path(settings: Settings) -> Path | None:
    """Return the path of the wheel, or None if it is not built yet."""
    return next(_directory(settings).glob("llama_cpp_python-*.whl"), None)


def directory_for_tests(settings: Settings) -> Path:
    """Return the directory of the files that only tests need.

    It contains the patched source files as llama.cpp released them, and a CPU backend without this project's kernels.
    """
    return _directory(settings) / "for-tests"


def build_llama_wheel(settings: Settings, reporter: Reporter) -> Path:
    """Return the path of the wheel; build a missing wheel first, which takes about ten minutes on two processors."""
    directory = _directory(settings)
    with locked(directory.parent / ".lock", lambda: reporter.say("Another session is building the wheel; waiting.")):
        built = wheel_path(settings)
        if built is None:
            _build(directory, reporter)
            built = wheel_path(settings)
    if built is None:
        raise DevclusterError(f"{RECIPE} made no wheel", remedy=f"run it by hand: {RECIPE} /tmp/wheels")
    return built


def own_wheel_path(settings: Settings) -> Path | None:
    """Return the path of a wheel that serves on this machine, or None: the portable one, else one for this machine."""
    return wheel_path(settings) or next(_own_directory(settings).glob("llama_cpp_python-*.whl"), None)


def build_own_wheel(settings: Settings, reporter: Reporter) -> Path:
    """Return the path of a wheel that serves on this machine; it takes a third of a portable one's time to build.

    If the cache has no portable wheel, one for processors with this machine's features is built.
    """
    directory = _own_directory(settings)
    with locked(directory.parent / ".lock", lambda: reporter.say("Another session is building the wheel; waiting.")):
        if own_wheel_path(settings) is None:
            _build(directory, reporter, "--this-processor")
        built = own_wheel_path(settings)
    if built is None:
        raise DevclusterError(f"{RECIPE} made no wheel", remedy=f"run {RECIPE} --this-processor /tmp/wheels")
    return built


def build_arm64_wheel(settings: Settings, reporter: Reporter) -> Path:
    """Return the path of a wheel for arm64; on a machine of another architecture a missing one is cross-compiled."""
    if go_architecture() == "arm64":
        return build_llama_wheel(settings, reporter)
    directory = settings.cache_dir / "wheels" / f"llama-arm64-{wheel_key()}"
    with locked(directory.parent / ".lock", lambda: reporter.say("Another session is building the wheel; waiting.")):
        built = next(directory.glob("llama_cpp_python-*_aarch64.whl"), None)
        if built is None:
            _build(directory, reporter, "--arm64")
            built = next(directory.glob("llama_cpp_python-*_aarch64.whl"), None)
    if built is None:
        raise DevclusterError(f"{RECIPE} made no wheel for arm64", remedy=f"run {RECIPE} --arm64 /tmp/wheels")
    return built


def _build(directory: Path, reporter: Reporter, option: str = "--for-tests") -> None:
    programs, remedy = ((*_PROGRAMS, _CROSS_COMPILER), _CROSS_REMEDY) if option == "--arm64" else (_PROGRAMS, _REMEDY)
    missing = [program for program in programs if not processes.exists(program)]
    if missing:
        raise DevclusterError(f"llama.cpp has to be compiled, which needs {' and '.join(missing)}", remedy=remedy)
    with tempfile.TemporaryDirectory(prefix=".wheel-", dir=directory.parent) as scratch:
        target = Path(scratch, "out")
        with reporter.step(_TITLES[option]) as step:
            processes.stream([REPOSITORY / RECIPE, "--kernels", option, target], step.note, remedy=remedy)
            step.note("")
        shutil.rmtree(directory, ignore_errors=True)
        target.rename(directory)


def _own_directory(settings: Settings) -> Path:
    cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    return settings.cache_dir / "wheels" / f"llama-own-{own_wheel_key(cpuinfo)}"


def _directory(settings: Settings) -> Path:
    return settings.cache_dir / "wheels" / f"llama-{wheel_key()}"
