"""`python -m memory_embedder.engine.amx_probe MODEL`: computes one short batch with the best kernels, or dies of it."""

from __future__ import annotations

import sys
from pathlib import Path

from memory_embedder.engine.llama import EngineOptions, LlamaEngine
from memory_embedder.hardening import forbid_core_dumps
from memory_embedder.models.gguf_header import read_facts
from memory_embedder.models.profiles import ModelProfile, Pooling

_TOKENS = 64  # several rows of tiles


def compute_once(path: Path) -> None:
    """One batch of the model as it describes itself."""
    facts = read_facts(path)
    profile = ModelProfile(
        name=path.stem,
        dimensions=facts.dimensions,
        max_tokens=min(_TOKENS, facts.context_length),
        pooling=facts.pooling or Pooling.MEAN,
        query_prefix="",
        document_prefix="",
        licence="",
        default_file=path.name,
    )
    engine = LlamaEngine(EngineOptions(path, profile, batch_tokens=_TOKENS, contexts=1, try_amx=False))
    engine.computer(1).embed([engine.encode("word " * _TOKENS).tokens])


if __name__ == "__main__":
    forbid_core_dumps()
    compute_once(Path(sys.argv[1]))
