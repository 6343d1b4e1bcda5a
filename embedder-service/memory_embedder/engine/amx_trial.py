"""Computes one short batch of a model with the best kernels: `python -m memory_embedder.engine.amx_trial MODEL`.

`memory_embedder.engine.amx` runs it as a child process, which may end with an illegal instruction.
"""

import sys
from pathlib import Path

from memory_embedder.engine.llama import LlamaEngine
from memory_embedder.engine.protocol import EngineOptions
from memory_embedder.engine.vectors import require_usable
from memory_embedder.hardening import forbid_core_dumps
from memory_embedder.models.gguf_header import read_facts
from memory_embedder.models.profiles import ModelProfile, Pooling

_TOKENS = 64  # several rows of tiles


def compute_once(path: Path) -> None:
    """Load the model file, and compute one text with it."""
    facts = read_facts(path)
    window = min(_TOKENS, facts.context_length)
    pooling = facts.pooling or Pooling.MEAN
    profile = ModelProfile(path.stem, 1 if pooling is Pooling.RANK else facts.dimensions, window, pooling)
    engine = LlamaEngine(EngineOptions(path, profile, batch_tokens=_TOKENS, contexts=1, try_amx=False))
    require_usable(engine.computer(1).embed([engine.encode("word " * _TOKENS).tokens]))


if __name__ == "__main__":
    forbid_core_dumps()
    compute_once(Path(sys.argv[1]))
