"""A backfill that writes nothing: how many documents a second the embedder takes, asked just as a backfill asks it.

The texts are read first, so that what is measured is the embedder alone; batches and requests under way are a
backfill's.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass

from memory_recall.indexing.backfill import WorkerPlan
from memory_recall.indexing.batching import batches
from memory_recall.indexing.bisecting import PatientEmbedder
from memory_recall.indexing.document_embedder import DescribedEmbedder
from memory_recall.indexing.progress import Progress
from memory_recall.indexing.queue_sql import PendingRow
from memory_recall.indexing.waiting import until_served
from memory_recall.postgres.connection import DsnSource, connect
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.models_sql import active_model
from memory_recall.schema.revisions import require_schema


@dataclass(frozen=True)
class RehearsalResult:
    """What the embedder did with the texts."""

    documents: int
    tokens: int
    truncated: int
    failed: int
    seconds: float


async def rehearse(
    source: DsnSource, embedder: DescribedEmbedder, plan: WorkerPlan, *, limit: int, progress: Progress
) -> RehearsalResult:
    """Embed the texts of up to `limit` rows that may have a vector, and keep none.

    Raises:
        ModelMismatch, DimensionMismatch, EmbedderUnavailable: the embedder does not fit or does not answer.
    """
    connection = await connect(source, application_name="memory-rehearsal")
    try:
        table = await require_schema(connection, plan.table)
        model = await active_model(connection, table)
        text_hash = table.own("memory_index_text_hash")
        with translated("reading texts"):
            records = await connection.fetch(
                f"SELECT id, content, {text_hash}(content) AS hash FROM {table.qualified} "
                f"WHERE {table.shareable()} ORDER BY id LIMIT $1",
                limit,
            )
    finally:
        connection.terminate()
    model.require_same(await until_served(embedder, progress, plan.outage_timeout))
    rows = [PendingRow(record["id"], record["content"], record["hash"]) for record in records]
    patient = PatientEmbedder(embedder, progress, outage_timeout=plan.outage_timeout)
    progress.started(len(rows))
    return await _measure(patient, rows, plan)


async def _measure(embedder: PatientEmbedder, rows: list[PendingRow], plan: WorkerPlan) -> RehearsalResult:
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
    return RehearsalResult(**counts, seconds=time.monotonic() - began)
