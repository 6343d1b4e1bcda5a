"""Describes the machine of a run and what it computes with, and measures how fast that multiplies matrices."""

import importlib.metadata
import platform
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from memory_bench.embedder.gpu.matrix_product import gpu_gemm_flops
from memory_embedder.engine.backends import gpu_backend_files
from memory_embedder.engine.hardware import available_threads
from memory_embedder.models.gguf_header import GgufFacts

_FEATURES = ("avx2", "fma", "f16c", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8")
_GEMM_ROWS = 512
_GEMM_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Processor:
    """What a run computes with: the cores of the processor, or the first GPU with all layers of a model on it.

    `contexts` is how many contexts the raw loop has, at most; on a CPU that is also the number of threads that a single
    context uses. `raw_batch_tokens` is the most tokens, and `calibration_texts` the number of texts, with which the raw
    loop's layouts are compared.
    """

    gpu: bool
    contexts: int
    raw_batch_tokens: int
    calibration_texts: int

    @classmethod
    def chosen(cls, *, gpu: bool) -> "Processor":
        """Return this machine's GPU or its cores; a GPU computes one batch while the next is prepared."""
        if gpu:
            return cls(gpu=True, contexts=2, raw_batch_tokens=8192, calibration_texts=128)
        return cls(gpu=False, contexts=available_threads(), raw_batch_tokens=1024, calibration_texts=16)

    @property
    def gpu_layers(self) -> int:
        """The number of layers on the GPU, as the command line of the embedder has it."""
        return -1 if self.gpu else 0

    def llama_server_environment(self) -> dict[str, str]:
        """Return the variables with which llama-server computes there: on a GPU by the CUDA backend of our wheel."""
        backend = next(iter(gpu_backend_files()), None) if self.gpu else None
        return {"GGML_BACKEND_PATH": str(backend)} if backend else {}

    def gemm_flops(self, width: int) -> float:
        """Return the floating-point operations per second of a matrix product, in the type that it computes in."""
        return gpu_gemm_flops(width, _GEMM_SECONDS) if self.gpu else gemm_flops(width, _GEMM_SECONDS)


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
