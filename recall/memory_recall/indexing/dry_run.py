"""Measures how many documents a second the embedder embeds with the requests of a backfill, and stores nothing.

All texts are read before the measurement begins, so that the embedder alone is measured. Batches and concurrency are
those of a backfill.
"""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from memory_recall.indexing.document_embedder import DocumentEmbedder
from memory_recall.indexing.pipeline import batches
from memory_recall.indexing.progress import Progress
from memory_recall.indexing.queue_sql import PendingRow, first_with_text, still_shareable
from memory_recall.indexing.retry import RetryingEmbedder, wait_until_served
from memory_recall.indexing.sendable_rows import SendableRows
from memory_recall.indexing.worker import WorkerPlan, worker_session
from memory_recall.postgres.connection import DsnSource
from memory_recall.schema.models_sql import active_model
from memory_recall.schema.revisions import require_schema


@dataclass(frozen=True)
class DryRunResult:
    """The counts over all texts that a dry run embedded, and the seconds that their embedding took."""

    documents: int
    tokens: int
    truncated: int
    failed: int
    seconds: float


async def dry_run(
    source: DsnSource, embedder: DocumentEmbedder, plan: WorkerPlan, *, limit: int, progress: Progress
) -> DryRunResult:
    """Embed the texts of up to `limit` rows that may have a vector, and discard the vectors.

    Raises:
        ModelMismatch, DimensionMismatch, EmbedderUnavailable: the embedder serves another model or does not answer.
    """
    async with worker_session(source, plan, progress, name="memory-dry-run") as session:
        table = await session.run(lambda connection: require_schema(connection, plan.table))
        model = await session.run(lambda connection: active_model(connection, table))
        rows = await session.run(lambda connection: first_with_text(connection, table, limit))
        model.require_same(await wait_until_served(embedder, progress, plan.outage_timeout))
        sendable = SendableRows(session.run, partial(still_shareable, table=table))
        retrying = RetryingEmbedder(embedder, progress, sendable=sendable, outage_timeout=plan.outage_timeout)
        progress.started(len(rows))
        return await _measure(retrying, rows, plan)


async def _measure(embedder: RetryingEmbedder, rows: list[PendingRow], plan: WorkerPlan) -> DryRunResult:
    counts = {"documents": 0, "tokens": 0, "truncated": 0, "failed": 0}
    source = batches(rows, plan.options.limits)
    began = time.monotonic()

    async def work(todo: Iterator[list[PendingRow]]) -> None:
        for batch in todo:  # one iterator for all, so each takes the next batch
            outcome = await embedder.embed(batch)
            counts["documents"] += sum(len(part) for part, _ in outcome.embedded)
            counts["tokens"] += outcome.tokens
            counts["truncated"] += outcome.truncated
            counts["failed"] += len(outcome.failed)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(plan.options.concurrency):
            tasks.create_task(work(source))
    return DryRunResult(**counts, seconds=time.monotonic() - began)
