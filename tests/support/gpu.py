"""The GPU of this machine: whether llama.cpp finds one, and the libraries of CUDA."""

import ctypes
from importlib.util import find_spec
from pathlib import Path

from memory_embedder.engine.backends import load_backends


def require_gpu() -> dict[str, object]:
    """Return the description, llama.cpp's name and the memory of the first GPU that llama.cpp finds.

    Raises:
        ValueError: the wheel has no GPU backend or finds no device; nothing falls back to the CPU.
    """
    found = load_backends(avoid_amx=False, gpu=True).gpus
    if not found:
        raise ValueError(
            "no GPU is to be measured: this wheel of llama-cpp-python has no CUDA backend, or there is no device. "
            "On a machine with a GPU install the wheel that `make cuda-wheel` builds, and requirements/cuda.txt, into "
            ".venv."
        )
    return {"gpu": found[0].description, "gpu_name": found[0].name, "gpu_memory_bytes": found[0].memory_total}


def cuda_library(name: str) -> ctypes.CDLL:
    """Load a library of CUDA that pip installs beside the wheel.

    Raises:
        ValueError: it is not installed.
    """
    spec = find_spec("nvidia.cu13") if find_spec("nvidia") else None
    folders = list(spec.submodule_search_locations or ()) if spec else []
    found = [path for folder in folders for path in sorted(Path(folder, "lib").glob(f"{name}.so.*"))]
    if not found:
        raise ValueError(f"{name} is missing; install requirements/cuda.txt into .venv")
    return ctypes.CDLL(str(found[0]))
