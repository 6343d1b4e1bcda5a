"""The interface between the service and llama.cpp. Tests can replace the engine behind it by a fake."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from memory_embedder.models.profiles import ModelProfile, Pooling

TokenIds = npt.NDArray[np.int32]
Vectors = npt.NDArray[np.float32]
PairTokenizer = Callable[[Sequence[str]], list["EncodedText"]]


@dataclass(frozen=True, slots=True)
class EncodedText:
    """Token ids of a text, and whether it was truncated to the model's window."""

    tokens: TokenIds
    truncated: bool


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How to load a model.

    `contexts` is how many contexts there will be at most. Where memory is too small for them, there may be fewer, but
    at least `least_contexts`, which by default is as many. On a GPU that is its free memory, and at most
    `gpu_memory_limit` bytes; on a CPU it is `memory` bytes, where None means any number.

    `reserved` is None for the first model of a process. For a second one it is the number of bytes of a GPU's memory
    that the contexts of the first will still take; what CUDA or the process itself takes was counted for the first.

    `on_cpu` are the options that are used instead where a GPU is requested and none is found.

    `digest` is the digest that the file must have, or None to accept any file. With `try_amx` True, AMX kernels compute
    quantised weights only if a test in a child process succeeds; with `try_amx` False, they are used without this test.
    """

    path: Path
    profile: ModelProfile
    batch_tokens: int
    contexts: int
    least_contexts: int | None = None
    memory: int | None = None
    reserved: int | None = None
    gpu_layers: int = 0
    gpu_memory_limit: int | None = None
    try_amx: bool = True
    digest: str | None = None
    on_cpu: "EngineOptions | None" = None


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """Facts about the loaded model and the device that it runs on, for logs and metrics.

    `contexts_estimate_bytes` is the part of the estimated memory that is taken after loading. `most_contexts` is how
    many contexts there may be at once, in the memory that there is. `width` is the number of dimensions that
    the model itself yields, if its vectors are cut to `dimensions`; `normalizes_cut` is that of the profile. `digest`
    is that of the file as it is served (`models.profiles.served_digest`).
    """

    dimensions: int
    max_tokens: int
    pooling: Pooling
    device: str
    description: str
    kernels: str
    layers_offloaded: int
    layers_total: int
    memory_estimate_bytes: int
    contexts_estimate_bytes: int
    most_contexts: int
    batch_capacity: int
    max_sequences: int
    digest: str
    width: int | None = None
    normalizes_cut: bool = False


class Computer(Protocol):
    """A llama.cpp context, which computes one batch at a time on the thread that owns the context."""

    def embed(self, sequences: Sequence[TokenIds]) -> Vectors:
        """Compute one unit vector per sequence of token ids, as an array of shape (sequences, dimensions).

        The vector of a reranker has one element, the score of the pair, and is not scaled. A row that cannot be used is
        NaN throughout (see `engine.vectors`); its context stays usable.

        Raises:
            EmbedderError: the engine failed; the context must then be closed and replaced.
        """
        ...

    def use_threads(self, threads: int) -> None:
        """Set the number of threads for the next batches."""
        ...

    def close(self) -> None:
        """Free the context."""
        ...


class Engine(Protocol):
    """A loaded model: it tokenises texts and makes the contexts that compute vectors."""

    @property
    def facts(self) -> EngineFacts:
        """Properties of the loaded model."""
        ...

    def encode(self, text: str) -> EncodedText:
        """Tokenise a text; a text longer than the model's window loses its end but keeps the final special token.

        The method is thread-safe.
        """
        ...

    def pair_tokenizer(self, query: str) -> PairTokenizer:
        """Return a function that tokenises the query together with each text, for a reranker; one thread at a time.

        The query is tokenised by the first call alone. Of a pair that is longer than the model's window, the query
        keeps half of the window and the text gets the rest.
        """
        ...

    def computer(self, threads: int) -> Computer:
        """Make a llama.cpp context that computes with `threads` threads."""
        ...

    def close(self) -> None:
        """Free the model; all of its contexts must be closed before."""
        ...
