"""Estimates how much memory of the host or the GPU a model needs, before the model is loaded.

On a shared GPU, an allocation that fails after a part of it succeeded can make other processes fail. An allocation that
fails while a batch is computed ends this process without an error that could be reported.

The constants of a GPU are upper bounds of what was measured on an H200 with models of 384 and 1,024 dimensions, batches
of 512 to 16,384 tokens and two to four contexts (docs/adr/0036). No other GPU has been measured. Those of a CPU are
upper bounds of what llama.cpp says of its buffers for encoders of 384 dimensions and for Qwen3's layers of 1,024, with
contexts of 256 to 8,192 tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from memory_embedder.engine.backends import GpuDevice
from memory_embedder.errors import configuration_error
from memory_embedder.models.gguf_header import GgufFacts

_MIB = 1 << 20
_ACTIVATIONS = 14  # F32 rows of the hidden width for each token: 7 of an encoder's graph, 11 of Qwen3's, work buffers
_PROCESS = 160 * _MIB  # Python, its packages and llama.cpp's libraries
_CONTEXT = 8 * _MIB  # of each context on a CPU, whatever its size
_WITHOUT_OUTPUT_LAYER = frozenset({"gemma-embedding", "qwen3"})  # llama.cpp computes the logits of other causal models
_GPU_RUNTIME = 505 * _MIB  # a CUDA context, which exists once a process has asked how much memory is free
_GPU_KERNELS = 90 * _MIB  # kernels that are loaded with the first batch
_GPU_CONTEXT = 110 * _MIB  # of each context, whatever its size: the workspace of cuBLAS and pools of buffers
_GPU_ACTIVATIONS = 10  # F32 rows of the hidden width for each token, with their copies in F16
_MASK_BYTES = 2  # for each pair of a batch's tokens
_HEADROOM = 1.1


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """The estimated memory of a model in bytes, if each of `context_count` contexts holds `capacity` tokens.

    `runtime` is what CUDA itself takes, which is already taken when the free memory of a GPU is known; on a CPU, what
    the process takes without a model.
    """

    capacity: int
    context_count: int
    weights: int
    contexts: int
    runtime: int

    @property
    def model(self) -> int:
        """What the model and its contexts take, with headroom."""
        return int((self.weights + self.contexts) * _HEADROOM)

    @property
    def after_loading(self) -> int:
        """What the contexts take, which are made after the model has been loaded, with headroom."""
        return int(self.contexts * _HEADROOM)

    @property
    def total(self) -> int:
        """All that the process takes."""
        return self.model + self.runtime


def estimate_memory(header: GgufFacts, *, capacity: int, contexts: int, gpu: bool, runtime: bool = True) -> MemoryNeed:
    """Estimate the memory of the weights, the compute buffers and the attention caches.

    Only causal models have attention caches; these are in F16. `runtime` says whether what CUDA or the process itself
    takes belongs to the need, as it does for the first model of a process.
    """
    each = 2 * 2 * header.layers * header.key_value_width * capacity if header.causal else 0
    each += capacity * header.dimensions * 4 * (_GPU_ACTIVATIONS if gpu else _ACTIVATIONS)
    each += _MASK_BYTES * capacity * capacity + (_GPU_CONTEXT if gpu else _CONTEXT)
    if header.causal and header.architecture not in _WITHOUT_OUTPUT_LAYER:
        each += 4 * header.vocabulary * capacity
    return MemoryNeed(
        capacity=capacity,
        context_count=contexts,
        weights=header.file_bytes,
        contexts=contexts * each + (_GPU_KERNELS if gpu else 0),
        runtime=(_GPU_RUNTIME if gpu else _PROCESS) if runtime else 0,
    )


def largest_within(needs: Sequence[MemoryNeed], available: int | None) -> MemoryNeed:
    """Return the first of `needs`, largest first, that fits into `available` bytes, or of all, with None.

    Raises:
        EmbedderError: none fits; the message gives the numbers of the last one in MiB.
    """
    for need in needs:
        if available is None or need.total <= available:
            return need
    least, bound = needs[-1], (available or 0) // _MIB
    raise configuration_error(
        f"The model needs about {least.total // _MIB} MiB with {least.context_count} contexts of {least.capacity} "
        f"tokens, more than the {bound} MiB that are left of what this process may take; raise the container's memory "
        "limit, lower --max-tokens or --contexts, or serve a smaller file.",
    )


def largest_fitting(needs: Sequence[MemoryNeed], device: GpuDevice, limit: int | None, reserved: int = 0) -> MemoryNeed:
    """Return the first of `needs`, largest first, that fits into a GPU's free memory and into `limit` bytes.

    With `limit` None only the free memory counts. `reserved` bytes of the free memory are left to another model.

    Raises:
        EmbedderError: none fits; the message gives the numbers of the last one in MiB.
    """
    for need in needs[:-1]:
        if need.model <= device.memory_free - reserved and (limit is None or need.total <= limit):
            return need
    _check(needs[-1], device, limit, reserved)
    return needs[-1]


def _check(need: MemoryNeed, device: GpuDevice, limit: int | None, reserved: int) -> None:
    free = f"{device.memory_free // _MIB} MiB free"
    if reserved:
        free += f", of which {reserved // _MIB} are kept for the embedding model"
    if limit is not None and need.total > limit:
        raise configuration_error(
            f"The model needs about {need.total // _MIB} MiB on {device.name}, "
            f"more than --gpu-memory-limit ({limit // _MIB} MiB); "
            "raise the limit, lower --batch-tokens or --contexts, or serve a smaller file.",
        )
    if need.model > device.memory_free - reserved:
        raise configuration_error(
            f"The model needs about {need.model // _MIB} MiB but {device.name} has {free}; "
            "free the GPU, lower --batch-tokens or --contexts, or serve a smaller file.",
        )
