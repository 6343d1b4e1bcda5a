"""Runs one measurement in a process of its own, so that the peak memory of the measured work can be read.

    python -m memory_bench.backfill.measured_process null-backfill DSN ROWS
    python -m memory_bench.backfill.measured_process random-backfill DSN ROWS
    python -m memory_bench.backfill.measured_process bare-update DSN ROWS
    python -m memory_bench.backfill.measured_process backfill DSN EMBEDDER_URL

The time is measured from before the first connection to after the last stored row; the start of Python is not included.
The last line on standard output is one JSON object.
"""

import asyncio
import json
import resource
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pgvector import HalfVector
from pgvector.asyncpg import register_vector

from memory_recall import EmbedderClient
from memory_recall.embedding.bounded_answer import BeforeSending
from memory_recall.embedding.served_model import ServedModel
from memory_recall.embedding.wire import EmbeddedBatch, Vectors
from memory_recall.indexing.backfill import backfill
from memory_recall.indexing.document_embedder import DocumentEmbedder
from memory_recall.indexing.pipeline import PipelineOptions
from memory_recall.indexing.progress import LogProgress, WorkerMetrics
from memory_recall.indexing.worker import WorkerPlan
from memory_recall.postgres.connection import DsnText, connect

NULL_MODEL, NULL_DIMENSIONS = "null", 384
BARE_BATCH_ROWS = 1024  # as many as a backfill stores in one statement at most
_BARE_UPDATE = (
    "UPDATE memories m SET embedding = v.embedding FROM unnest($1::bigint[], $2::halfvec[]) AS v(id, embedding) "
    "WHERE m.id = v.id"
)


class NullEmbedder:
    """An embedder that returns the same vector for each text at once, so that only the backfill itself costs time."""

    async def model_info(self) -> ServedModel:
        """Return the name and dimensions of the null embedder's model."""
        return ServedModel(NULL_MODEL, NULL_DIMENSIONS)

    async def embed_documents(
        self,
        texts: Sequence[str],
        *,
        skip: bool = False,  # noqa: ARG002  (no text fails)
        before_sending: BeforeSending | None = None,
    ) -> EmbeddedBatch:
        """Return a vector for each text, once it may be sent."""
        if before_sending is not None:
            await before_sending()
        return EmbeddedBatch(self.vectors(len(texts)), 0)

    async def embed_queries(self, texts: Sequence[str]) -> EmbeddedBatch:
        """Return a vector for each text."""
        return await self.embed_documents(texts)

    def vectors(self, count: int) -> Vectors:
        """Return the same vector `count` times."""
        return np.full((count, NULL_DIMENSIONS), 0.05, dtype=np.float32)


class RandomEmbedder(NullEmbedder):
    """An embedder that returns a random vector for each text, whose index is one of vectors that differ."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(1)

    def vectors(self, count: int) -> Vectors:
        """Return `count` random vectors."""
        return self._random.standard_normal((count, NULL_DIMENSIONS), dtype=np.float32)


async def measure_backfill(dsn: str, embedder: DocumentEmbedder) -> tuple[int, float]:
    """Run a backfill with its default options; return the number of embedded rows and the duration in seconds.

    The duration is without the search for the usual cosine, which takes as long however few rows were embedded.
    """
    plan = WorkerPlan("memories", PipelineOptions())
    progress = LogProgress(WorkerMetrics(), worker="backfill")
    result = await backfill(DsnText(dsn), embedder, plan, progress=progress, stop=asyncio.Event())
    return result.tally.embedded, result.seconds


async def measure_bare_update(dsn: str, rows: int) -> tuple[int, float]:
    """Store a vector in each of `rows` rows with plain UPDATE statements, which neither read, hash nor check anything.

    Returns the number of rows and the duration in seconds.
    """
    began = time.perf_counter()
    connection = await connect(DsnText(dsn))
    await register_vector(connection)
    for first in range(1, rows + 1, BARE_BATCH_ROWS):
        ids = list(range(first, min(first + BARE_BATCH_ROWS, rows + 1)))
        vectors = np.full((len(ids), NULL_DIMENSIONS), 0.05, dtype=np.float32)
        await connection.execute(_BARE_UPDATE, ids, [HalfVector(vector) for vector in vectors])
    seconds = time.perf_counter() - began
    await connection.close()
    return rows, seconds


async def _measure_over_http(dsn: str, url: str) -> tuple[int, float]:
    async with EmbedderClient(url) as client:
        return await measure_backfill(dsn, client)


def _peak_rss_kib() -> int:
    """Return the peak memory of this process in KiB.

    The peak is read from /proc, because the peak that `getrusage` reports includes memory of the parent process.
    """
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0])


def main() -> None:
    """Run the measurement that the command-line arguments name, and print its figures as JSON."""
    kind, dsn, argument = sys.argv[1:4]
    kinds: dict[str, Callable[[], Coroutine[Any, Any, tuple[int, float]]]] = {
        "null-backfill": lambda: measure_backfill(dsn, NullEmbedder()),
        "random-backfill": lambda: measure_backfill(dsn, RandomEmbedder()),
        "bare-update": lambda: measure_bare_update(dsn, int(argument)),
        "backfill": lambda: _measure_over_http(dsn, argument),
    }
    rows, seconds = asyncio.run(kinds[kind]())
    used = resource.getrusage(resource.RUSAGE_SELF)
    report = {
        "rows": rows,
        "seconds": seconds,
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "peak_rss_kib": _peak_rss_kib(),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
