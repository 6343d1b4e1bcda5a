"""The cache of vectors: what it tells apart, and who may read it."""

import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from memory_bench.harness.vectors import VectorCache


@dataclass
class Batch:
    vectors: Any


@dataclass
class Info:
    name: str
    digest: str | None


class Embedder:
    """Counts the texts that it embeds."""

    def __init__(self, name: str, digest: str | None) -> None:
        self.info = Info(name, digest)
        self.embedded = 0

    async def model_info(self) -> Info:
        return self.info

    async def embed_documents(self, texts: Sequence[str]) -> Batch:
        self.embedded += len(texts)
        return Batch(np.full((len(texts), 2), self.embedded, dtype=np.float32))

    embed_queries = embed_documents


def modes(directory: Path) -> list[int]:
    return [stat.S_IMODE(path.stat().st_mode) for path in directory.rglob("*") if path.is_file()]


async def embedded(directory: Path, name: str, digest: str | None) -> int:
    """Embed three texts through the cache, and return how many of them the embedder had to embed."""
    embedder = Embedder(name, digest)
    cache = VectorCache(cast("Any", embedder), directory, lambda _: None)
    found = await cache.embed(["a", "b"], ["a"])
    assert (found.model, found.digest, found.memories.shape) == (name, digest, (2, 2))
    return embedder.embedded


async def test_vectors_are_cached_for_each_model_and_each_file_of_it(tmp_path: Path) -> None:
    """Neither another file under a model's name nor a file under another model's name gets cached vectors."""
    assert await embedded(tmp_path, "m", "sha256:1") == 3
    assert await embedded(tmp_path, "m", "sha256:1") == 0
    assert await embedded(tmp_path, "m", "sha256:2") == 3
    assert await embedded(tmp_path, "other/m", "sha256:1") == 3
    assert await embedded(tmp_path, "m", None) == 3


async def test_only_the_owner_reads_cached_vectors(tmp_path: Path) -> None:
    """A text can be guessed from its vector."""
    await embedded(tmp_path, "m", None)
    assert modes(tmp_path) == [0o600, 0o600]
