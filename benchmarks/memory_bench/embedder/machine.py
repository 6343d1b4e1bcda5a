"""Describes the machine of a run, and measures how fast the machine multiplies matrices."""

import importlib.metadata
import platform
import statistics
import time
from pathlib import Path

import numpy as np

from memory_embedder.engine.backends import load_backends
from memory_embedder.engine.hardware import available_threads
from memory_embedder.models.gguf_header import GgufFacts

_FEATURES = ("avx2", "fma", "f16c", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8")
_GEMM_ROWS = 512


def describe_machine() -> dict[str, object]:
    """Return the processor and its vector instructions, the number of threads, and software versions."""
    facts = _processor()
    flags = facts.get("flags", "").split()
    return {
        "processor": facts.get("model name", platform.machine()),
        "family_model_stepping": [facts.get(name, "") for name in ("cpu family", "model", "stepping")],
        "features": [name for name in _FEATURES if name in flags],
        "threads": available_threads(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "llama_cpp_python": importlib.metadata.version("llama-cpp-python"),
        "numpy": np.__version__,
    }


def require_gpu() -> dict[str, object]:
    """Return name, description and memory of the first GPU that llama.cpp finds.

    Raises:
        ValueError: the wheel has no GPU backend or finds no device; the benchmark does not fall back to the CPU.
    """
    found = load_backends(avoid_amx=False, gpu=True).gpus
    if not found:
        raise ValueError(
            "no GPU is to be measured: this wheel of llama-cpp-python has no CUDA backend, or there is no device. "
            "On a machine with a GPU install the wheel that `make cuda-wheel` builds, and requirements/cuda.txt, into "
            ".venv."
        )
    return {"name": found[0].name, "description": found[0].description, "memory_bytes": found[0].memory_total}


def gemm_flops(width: int, seconds: float) -> float:
    """Return the floating-point operations per second of numpy's F32 matrix product.

    The matrices have the shape of those in a feed-forward layer of width `width`. The result is an upper bound for
    computing embeddings on all cores, because attention, norms and memory access are left out.
    """
    rng = np.random.default_rng(0)
    left = rng.standard_normal((_GEMM_ROWS, width), dtype=np.float32)
    right = rng.standard_normal((width, 4 * width), dtype=np.float32)
    durations: list[float] = []
    until = time.perf_counter() + seconds
    while len(durations) < 3 or time.perf_counter() < until:
        started = time.perf_counter()
        left @ right
        durations.append(time.perf_counter() - started)
    return 2.0 * _GEMM_ROWS * width * 4 * width / statistics.median(durations)


def text_flops(facts: GgufFacts, tokens: int) -> float:
    """Return the number of floating-point operations that a BERT model needs for one text of `tokens` tokens.

    With T tokens and width h, each layer takes 24 h^2 operations per token for its matrices (four of h x h, two of h x
    4h), and 4 h T^2 operations per text for attention.
    """
    width = facts.dimensions
    return facts.layers * (24.0 * width * width * tokens + 4.0 * width * tokens * tokens)


def _processor() -> dict[str, str]:
    pairs = (line.partition(":") for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines())
    facts: dict[str, str] = {}
    for name, _, value in pairs:
        facts.setdefault(name.strip(), value.strip())
    return facts
