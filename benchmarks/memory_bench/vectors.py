"""Vectors of a set's texts from an embedder, kept on disk, since embedding is by far the dearest part of a run.

The cache is keyed by the model file's digest (its name where the service knows no digest), the kind of text and the
texts themselves, so a vector can never be taken for another model's.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from memory_recall.embedding.client import EmbedderClient, Vectors

_BATCH = 32
_SHARD = 512  # what is lost at most when the embedder goes away


@dataclass(frozen=True, slots=True)
class EmbeddedSet:
    """The vectors of a set's memories and queries, in the set's order."""

    model: str
    memories: Vectors
    queries: Vectors


class VectorCache:
    """Embeds texts once."""

    def __init__(self, client: EmbedderClient, directory: Path, progress: Callable[[int], None]) -> None:
        self._client = client
        self._directory = directory
        self._progress = progress

    async def embed(self, memories: Sequence[str], queries: Sequence[str]) -> EmbeddedSet:
        """The vectors of both, from disk where they are known.

        Raises:
            MemoryIndexError: the embedder gave none.
        """
        info = await self._client.model_info()
        model = info.digest or info.name
        return EmbeddedSet(
            model=info.name,
            memories=await self._all(model, "document", memories),
            queries=await self._all(model, "query", queries),
        )

    async def _all(self, model: str, kind: str, texts: Sequence[str]) -> Vectors:
        starts = range(0, len(texts), _SHARD)
        shards = [await self._shard(model, kind, texts[start : start + _SHARD]) for start in starts]
        return np.concatenate(shards)

    async def _shard(self, model: str, kind: str, texts: Sequence[str]) -> Vectors:
        key = hashlib.sha256("\0".join((model, kind, *texts)).encode()).hexdigest()
        path = self._directory / f"{kind}-{key[:32]}.npy"
        if path.is_file():
            known: Vectors = np.load(path)
            self._progress(len(texts))
            return known
        embed = self._client.embed_queries if kind == "query" else self._client.embed_documents
        batches = []
        for start in range(0, len(texts), _BATCH):
            batch = texts[start : start + _BATCH]
            batches.append((await embed(batch)).vectors)
            self._progress(len(batch))
        vectors = np.concatenate(batches)
        self._directory.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".part.npy")
        np.save(unfinished, vectors)
        unfinished.rename(path)
        return vectors
