"""The seam between the service and llama.cpp. Everything above it can be tested with a fake; nothing above it sees a
pointer.
"""

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
    """A text as the model sees it."""

    tokens: TokenIds
    truncated: bool


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What was loaded, and where it runs: the truth that status and metrics report."""

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


class Computer(Protocol):
    """One context: computes one batch at a time, on the thread that owns it."""

    def embed(self, sequences: Sequence[TokenIds]) -> Vectors:
        """Unit vectors, one row per sequence; raises `EmbedderError` when the engine fails."""
        ...

    def use_threads(self, threads: int) -> None:
        """Computes the batches that follow with so many threads."""
        ...

    def close(self) -> None:
        """Frees the context."""
        ...


class Engine(Protocol):
    """A loaded model."""

    @property
    def facts(self) -> EngineFacts:
        """What was loaded."""
        ...

    def encode(self, text: str) -> EncodedText:
        """Tokenises, keeping the final separator when the text is cut; thread-safe."""
        ...

    def computer(self, threads: int) -> Computer:
        """A new context."""
        ...

    def close(self) -> None:
        """Frees the model; every computer must be closed before."""
        ...
