"""The interface between the service and llama.cpp: code above it is tested with a fake and handles no pointer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from memory_embedder.models.profiles import Pooling

TokenIds = npt.NDArray[np.int32]
Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class EncodedText:
    """Token ids of a text, and whether it was truncated to the model's window."""

    tokens: TokenIds
    truncated: bool


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """The loaded model and where it runs, as status and metrics report it."""

    dimensions: int
    max_tokens: int
    pooling: Pooling
    device: str
    description: str
    kernels: str
    layers_offloaded: int
    layers_total: int
    memory_estimate_bytes: int
    batch_capacity: int
    max_sequences: int
    digest: str


class Computer(Protocol):
    """A llama.cpp context, which computes one batch at a time on the thread that owns it."""

    def embed(self, sequences: Sequence[TokenIds]) -> Vectors:
        """Compute unit vectors of shape (sequences, dimensions).

        Raises:
            EmbedderError: the engine failed; the context must be closed.
        """
        ...

    def use_threads(self, threads: int) -> None:
        """Set the number of threads for the next batches."""
        ...

    def close(self) -> None:
        """Free the context."""
        ...


class Engine(Protocol):
    """A loaded model."""

    @property
    def facts(self) -> EngineFacts:
        """Properties of the loaded model."""
        ...

    def encode(self, text: str) -> EncodedText:
        """Tokenise a text; one beyond the window loses its end but keeps the final separator. Thread-safe."""
        ...

    def computer(self, threads: int) -> Computer:
        """Make a context that computes with a number of threads."""
        ...

    def close(self) -> None:
        """Free the model; every context must be closed before."""
        ...
