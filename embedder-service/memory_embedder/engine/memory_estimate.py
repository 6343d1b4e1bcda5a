"""Estimates how much memory of the host or the GPU a model needs, before the model is loaded.

On a shared GPU, an allocation that fails after a part of it succeeded can make other processes fail.
"""

from __future__ import annotations

from dataclasses import dataclass

from memory_embedder.engine.backends import GpuDevice
from memory_embedder.errors import EmbedderError, ErrorKind
from memory_embedder.models.gguf_header import GgufFacts
from memory_embedder.models.profiles import Pooling

_MIB = 1 << 20
_ACTIVATIONS = 14  # F32 rows of the hidden width alive at an encoder's widest point (its feed-forward is 4 of them)
_GPU_RUNTIME = 300 * _MIB  # a CUDA context with cuBLAS
_HEADROOM = 1.1


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """The estimated memory of a model in bytes, if each context holds `capacity` tokens."""

    capacity: int
    weights: int
    contexts: int
    runtime: int

    @property
    def total(self) -> int:
        """Sum of all parts, with headroom."""
        return int((self.weights + self.contexts + self.runtime) * _HEADROOM)


def estimate_memory(header: GgufFacts, *, capacity: int, contexts: int, gpu: bool) -> MemoryNeed:
    """Estimate the memory of the weights, the compute buffers and the attention caches.

    Only causal models have attention caches; these are in F16.
    """
    compute = capacity * header.dimensions * 4 * _ACTIVATIONS
    cached = 2 * 2 * header.layers * header.key_value_width * capacity if header.pooling is Pooling.LAST else 0
    return MemoryNeed(
        capacity=capacity,
        weights=header.file_bytes,
        contexts=contexts * (compute + cached),
        runtime=_GPU_RUNTIME if gpu else 0,
    )


def check_gpu_memory(need: MemoryNeed, device: GpuDevice, limit: int | None) -> None:
    """Check that a model fits into the free memory of a GPU and, unless `limit` is None, into `limit` bytes.

    Raises:
        EmbedderError: the model does not fit; the message gives the numbers in MiB.
    """
    need_mib, free_mib = need.total // _MIB, device.memory_free // _MIB
    if limit is not None and need.total > limit:
        raise EmbedderError(
            ErrorKind.CONFIGURATION,
            f"The model needs about {need_mib} MiB on {device.name}, "
            f"more than --gpu-memory-limit ({limit // _MIB} MiB); "
            "raise the limit, lower --batch-tokens or --contexts, or serve a smaller file.",
        )
    if need.total > device.memory_free:
        raise EmbedderError(
            ErrorKind.CONFIGURATION,
            f"The model needs about {need_mib} MiB but {device.name} has {free_mib} MiB free; "
            "free the GPU, lower --batch-tokens, or serve a smaller file.",
        )
