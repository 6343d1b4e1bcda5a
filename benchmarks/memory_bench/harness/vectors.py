"""Embeds the texts of a labelled set and caches the vectors on disk, since embedding takes most of a run's time.

Each model has a folder of its own. Within it the cache key is made of the digest of the model's file (or its name, if
the embedder reports no digest), the kind of text and the texts themselves, so that vectors of different models, or of
different files under one name, are never confused. A text can be guessed from its vector, so only their owner may read
the files.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import numpy as np
from rich.progress import Progress

from memory_bench.harness.dataset import Dataset
from memory_bench.report import console, create_private
from memory_recall import EmbedderClient
from memory_recall.embedding.wire import Vectors
from tests.support.model_files.cache import CACHE

_BATCH = 32
_SHARD = 512  # texts in one file of the cache: what a run that is stopped loses at most


@dataclass(frozen=True, slots=True)
class EmbeddedSet:
    """The vectors of a set's memories and queries: arrays of shape (count, dimensions), in the set's order.

    `digest` is the digest of the model's file, or None if the embedder reports none.
    """

    model: str
    memories: Vectors
    queries: Vectors
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class _Shards:
    """The cached files of one model; `model` identifies the model's file, since several files may have one name."""

    directory: Path
    model: str

    def path(self, kind: str, texts: Sequence[str]) -> Path:
        """Return the file of the vectors of these texts."""
        key = hashlib.sha256("\0".join((self.model, kind, *texts)).encode()).hexdigest()
        return self.directory / f"{kind}-{key[:32]}.npy"


class VectorCache:
    """A cache of vectors on disk; texts without a cached vector are embedded."""

    def __init__(self, client: EmbedderClient, directory: Path, progress: Callable[[int], None]) -> None:
        self._client = client
        self._directory = directory
        self._progress = progress

    async def embed(self, memories: Sequence[str], queries: Sequence[str]) -> EmbeddedSet:
        """Return the vectors of memories and queries; texts without cached vectors are embedded.

        Raises:
            MemoryIndexError: the embedder returned no vectors.
        """
        info = await self._client.model_info()
        shards = _Shards(self._directory / quote(info.name, safe=""), info.digest or info.name)
        return EmbeddedSet(
            model=info.name,
            memories=await self._all(shards, "document", memories),
            queries=await self._all(shards, "query", queries),
            digest=info.digest,
        )

    async def _all(self, stored: _Shards, kind: str, texts: Sequence[str]) -> Vectors:
        starts = range(0, len(texts), _SHARD)
        shards = [await self._shard(stored, kind, texts[start : start + _SHARD]) for start in starts]
        return np.concatenate(shards) if shards else np.empty((0, 0), dtype=np.float32)

    async def _shard(self, stored: _Shards, kind: str, texts: Sequence[str]) -> Vectors:
        path = stored.path(kind, texts)
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
        unfinished = path.with_suffix(".part.npy")
        with create_private(unfinished) as file:
            np.save(file, vectors)
        unfinished.rename(path)
        return vectors


async def embed_dataset(dataset: Dataset, url: str) -> EmbeddedSet:
    """Return the vectors of a labelled set from the cache, or else from the embedder at `url`; a progress bar is shown.

    Raises:
        MemoryIndexError: the embedder at `url` returned no vectors.
    """
    texts, questions = [one.content for one in dataset.memories], [one.text for one in dataset.queries]
    return await _embed(dataset.name, texts, questions, url)


async def embed_texts(name: str, queries: Sequence[str], url: str) -> Vectors:
    """Return the vectors of queries, as an array of shape (queries, dimensions), from the cache or the embedder.

    Raises:
        MemoryIndexError: the embedder at `url` returned no vectors.
    """
    return (await _embed(f"what is asked of {name}", [], queries, url)).queries


async def _embed(name: str, memories: Sequence[str], queries: Sequence[str], url: str) -> EmbeddedSet:
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task(f"embedding {name}", total=len(memories) + len(queries))
        async with EmbedderClient(url) as client:
            cache = VectorCache(client, CACHE / "vectors", lambda done: bar.advance(task, done))
            return await cache.embed(memories, queries)
