"""Loads llama.cpp's compute backends: the GPU backend if the build has one, and this machine's fastest CPU kernels.

The portable build ships one CPU library per processor generation. Each library returns a score for this machine; 0
means that the library cannot run here. The library with the best score is loaded, or the best library without AMX
(Intel's matrix instructions) if AMX kernels have failed. Libraries are registered once per process because ggml's
registry is process-wide.
"""

import ctypes
import os
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from memory_embedder.errors import configuration_error

_GPU_TYPES = frozenset({1, 2})  # dedicated, integrated
_WITH_AMX = frozenset({"sapphirerapids"})
_BUILT_IN = "built-in"  # a wheel whose kernels were chosen when it was compiled
_MAY_USE_AMX = frozenset({*_WITH_AMX, _BUILT_IN})
_GPU_LIBRARIES = ("cuda", "hip", "vulkan")
# llama.cpp ends the process where it records a CUDA graph while another thread computes (docs/adr/0036 and
# https://github.com/ggml-org/llama.cpp/issues/11804). Any value switches graphs off.
_WITHOUT_GRAPHS = "GGML_CUDA_DISABLE_GRAPHS"


@dataclass(frozen=True, slots=True)
class GpuDevice:
    """A GPU that a backend found; its memory is in bytes."""

    name: str
    description: str
    memory_free: int
    memory_total: int


@dataclass(frozen=True, slots=True)
class Backends:
    """The name of the loaded CPU kernels, and the GPUs that were found."""

    kernels: str
    gpus: tuple[GpuDevice, ...]

    @property
    def amx(self) -> bool:
        """Whether the CPU kernels may use AMX instructions."""
        return self.kernels in _MAY_USE_AMX


def choose_variant(scores: dict[str, int], *, avoid_amx: bool) -> str | None:
    """Return the name of the CPU library with the best score, or None if none runs here.

    `scores` are by library name; 0 means that the library does not run. `avoid_amx` leaves out libraries that use AMX.
    """
    usable = {name: score for name, score in scores.items() if score > 0 and not (avoid_amx and name in _WITH_AMX)}
    return max(usable, key=lambda name: (usable[name], name), default=None)


def load_backends(*, avoid_amx: bool, gpu: bool) -> Backends:
    """Load the backends, unless this process has loaded them already, and return what is loaded.

    Raises:
        EmbedderError: llama.cpp's libraries cannot be loaded, or none of them runs on this processor.
    """
    registry = _registry()
    if gpu:
        registry.load_gpu()
    return Backends(kernels=registry.load_cpu(avoid_amx=avoid_amx), gpus=_gpus(_ggml()))


def find_gpus() -> tuple[GpuDevice, ...]:
    """Load the GPU backend, unless this process has loaded it already, and return the GPUs that it finds.

    Raises:
        EmbedderError: llama.cpp's libraries cannot be loaded.
    """
    _registry().load_gpu()
    return _gpus(_ggml())


def gpu_backend_files() -> list[Path]:
    """Return the libraries of the wheel that compute on GPUs; a wheel for CPUs has none."""
    directory = _plugin_directory()
    return [path for name in _GPU_LIBRARIES for path in sorted(directory.glob(f"libggml-{name}*.so"))]


def amx_possible() -> bool:
    """Return whether AMX may be used to compute quantised weights.

    This is so if the best CPU library uses AMX, or if the CPU kernels are built into llama.cpp and may therefore use
    it.
    """
    return _registry().best() in _MAY_USE_AMX


@cache
def _ggml() -> ctypes.CDLL:
    # libllama links against this very name; a copy under another name would have a registry of its own, which llama
    # never reads.
    path = _package() / "lib" / "libggml.so.0"
    try:
        library = ctypes.CDLL(str(path if path.exists() else path.with_name("libggml.so")))
    except OSError as error:
        raise configuration_error(
            "llama-cpp-python's libraries cannot be loaded; install the wheel that the build makes.",
        ) from error
    library.ggml_backend_load.argtypes = [ctypes.c_char_p]
    library.ggml_backend_load.restype = ctypes.c_void_p
    library.ggml_backend_dev_count.restype = ctypes.c_size_t
    library.ggml_backend_dev_get.argtypes = [ctypes.c_size_t]
    library.ggml_backend_dev_get.restype = ctypes.c_void_p
    for name in ("name", "description"):
        function = getattr(library, f"ggml_backend_dev_{name}")
        function.argtypes, function.restype = [ctypes.c_void_p], ctypes.c_char_p
    library.ggml_backend_dev_type.argtypes = [ctypes.c_void_p]
    library.ggml_backend_dev_memory.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    library.ggml_backend_dev_memory.restype = None
    return library


class _Registry:
    """The backend libraries that this process has loaded."""

    def __init__(self) -> None:
        self._library = _ggml()
        self._directory = _plugin_directory()
        self._gpu_tried = False
        self._kernels: str | None = None

    def load_gpu(self) -> None:
        if not self._gpu_tried:
            self._gpu_tried = True
            os.environ.setdefault(_WITHOUT_GRAPHS, "1")
            for path in gpu_backend_files():
                self._library.ggml_backend_load(str(path).encode())

    def best(self) -> str | None:
        """Return the name of the CPU kernels that are or would be loaded; None if none runs on this processor."""
        paths = _variants(self._directory)
        return self._kernels or (choose_variant(_scores(paths), avoid_amx=False) if paths else _BUILT_IN)

    def load_cpu(self, *, avoid_amx: bool) -> str:
        if self._kernels is None:
            self._kernels = _load_cpu(self._library, self._directory, avoid_amx=avoid_amx)
        return self._kernels


@cache
def _registry() -> _Registry:
    return _Registry()


def _load_cpu(library: ctypes.CDLL, directory: Path, *, avoid_amx: bool) -> str:
    paths = _variants(directory)
    if not paths:
        if library.ggml_backend_dev_count() == 0:
            raise configuration_error(f"No CPU backend of llama.cpp lies in {directory}; install the portable wheel.")
        return _BUILT_IN
    name = choose_variant(_scores(paths), avoid_amx=avoid_amx)
    if name is None or not library.ggml_backend_load(str(paths[name]).encode()):
        raise configuration_error("This processor runs none of the shipped kernels; x86-64 with AVX2 is the least.")
    return name


def _variants(directory: Path) -> dict[str, Path]:
    return {path.stem.removeprefix("libggml-cpu-"): path for path in directory.glob("libggml-cpu-*.so")}


def _scores(paths: dict[str, Path]) -> dict[str, int]:
    return {name: _score(path) for name, path in paths.items()}


def _score(path: Path) -> int:
    try:
        return int(ctypes.CDLL(str(path)).ggml_backend_score())
    except (OSError, AttributeError):
        return 0


def _gpus(library: ctypes.CDLL) -> tuple[GpuDevice, ...]:
    found = []
    for index in range(library.ggml_backend_dev_count()):
        device = library.ggml_backend_dev_get(index)
        if library.ggml_backend_dev_type(device) not in _GPU_TYPES:
            continue
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        library.ggml_backend_dev_memory(device, ctypes.byref(free), ctypes.byref(total))
        name, description = library.ggml_backend_dev_name(device), library.ggml_backend_dev_description(device)
        found.append(GpuDevice(name.decode(), description.decode(), free.value, total.value))
    return tuple(found)


def _package() -> Path:
    spec = find_spec("llama_cpp")
    if spec is None or spec.origin is None:
        raise configuration_error("llama-cpp-python is not installed; `make setup` builds its wheel.")
    return Path(spec.origin).parent


def _plugin_directory() -> Path:
    # The wheel's install rules put run-time libraries into site-packages/bin; a build from source may keep them
    # beside the others.
    package = _package()
    installed = package.parent / "bin"
    return installed if any(installed.glob("libggml-cpu*.so")) else package / "lib"
