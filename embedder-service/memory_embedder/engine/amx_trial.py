"""Computes one short batch of a model with the best kernels.

`memory_embedder.engine.amx` runs it as a child process, which may end with an illegal instruction. Its arguments are
the model file, and the number of dimensions, window and pooling of its profile.
"""

import sys
from pathlib import Path

from memory_embedder.engine.llama import LlamaEngine
from memory_embedder.engine.protocol import EngineOptions
from memory_embedder.engine.vectors import require_usable
from memory_embedder.hardening import forbid_core_dumps
from memory_embedder.models.profiles import ModelProfile, Pooling

_TOKENS = 64  # several rows of tiles


def compute_once(path: Path, width: int, window: int, pooling: Pooling) -> None:
    """Load the model file, and compute one text with it."""
    profile = ModelProfile(path.stem, width, min(_TOKENS, window), pooling)
    engine = LlamaEngine(EngineOptions(path, profile, batch_tokens=_TOKENS, contexts=1, try_amx=False))
    require_usable(engine.computer(1).embed([engine.encode("word " * _TOKENS).tokens]))


if __name__ == "__main__":
    forbid_core_dumps()
    file, width, window, pooling = sys.argv[1:]
    compute_once(Path(file), int(width), int(window), Pooling(pooling))
