"""Embeds one worker's share of the pending rows, then ends.

In a table with a search column of ours, the words of all texts are made first. Then the backfill makes one pass over
the pending rows after another, until no row is due any more. A later pass finds rows that were written meanwhile. The
backfill does not end before each row whose embedding failed is embedded or quarantined. Beside a valid vector index, as
after many rows were imported, it writes in short statements with pauses, so that nobody waits long for a row. All state
is in the database, so a worker that was killed is simply started again.
"""

import asyncio
import time
from dataclasses import dataclass
from functools import partial

from memory_recall.errors import DatabaseRejected
from memory_recall.hnsw.definition import inspect_index
from memory_recall.indexing import leases_sql
from memory_recall.indexing.document_embedder import DocumentEmbedder
from memory_recall.indexing.pipeline import BULK, Pipeline, beside_index, through_pages
from memory_recall.indexing.progress import Progress, Tally
from memory_recall.indexing.usual_cosine import find_usual_cosine
from memory_recall.indexing.words_sql import fill_words
from memory_recall.indexing.worker import WorkerPlan, build_pipeline, prepare_context, worker_session, writer_session
from memory_recall.postgres.connection import Connection, DsnSource
from memory_recall.schema.models_sql import require_active
from memory_recall.schema.revisions import require_schema
from memory_recall.schema.table import describe

_POLL_SECONDS = 0.5
_ALL_REFUSED = 10  # refused updates, with no row embedded, after which the cause is taken to be the table's


@dataclass(frozen=True)
class BackfillResult:
    """The counts and the duration of a backfill. `complete` is false if the backfill was stopped early."""

    tally: Tally
    seconds: float
    complete: bool

    @property
    def rows_per_second(self) -> float:
        """The number of rows embedded per second."""
        return self.tally.embedded / self.seconds if self.seconds > 0 else 0.0


async def backfill(
    source: DsnSource,
    embedder: DocumentEmbedder,
    plan: WorkerPlan,
    *,
    progress: Progress,
    stop: asyncio.Event,
) -> BackfillResult:
    """Embed every pending row of the worker's share. `stop` ends the backfill early, after the batches under way.

    Raises:
        SchemaBehind, ModelMismatch, DimensionMismatch: the schema is not complete or no longer so, or the embedder
            serves another model than the active one.
        DatabaseUnreachable, EmbedderUnavailable: an outage lasted longer than the limit.
    """
    share = plan.options.share

    async def lease(connection: Connection) -> None:
        await leases_sql.lease_share(connection, await describe(connection, plan.table), share, progress)

    reader = worker_session(source, plan, progress, name="memory-backfill", prepare=lease)
    async with reader, writer_session(source, plan, progress) as writer:
        context = await prepare_context(reader, embedder, plan, progress)
        index = await reader.run(lambda connection: inspect_index(connection, context.table))
        pipeline = build_pipeline(
            context,
            embedder,
            plan,
            sessions=(reader, writer),
            progress=progress,
            stop=stop,
            writes=beside_index(share.count) if index.valid else BULK,
        )
        queue = pipeline.queue
        await pipeline.forget_settled()
        await through_pages(lambda last: reader.run(partial(fill_words, table=context.table, after=last)), stop)
        progress.started(await reader.run(lambda connection: queue.count(connection, share)))
        began = time.monotonic()
        while not stop.is_set():
            if await pipeline.run_pass() > 0:
                continue
            state = await reader.run(lambda connection: queue.state(connection, share))
            if not state.current:  # each of these two raises an error that names what has changed
                await reader.run(lambda connection: require_active(connection, context.table, context.model))
                await reader.run(lambda connection: require_schema(connection, plan.table))
            elif state.seconds_until_due is None:
                break
            await asyncio.sleep(min(max(state.seconds_until_due or 0.0, 0.0), _POLL_SECONDS))
        await pipeline.forget_settled()
        await reader.run(lambda connection: require_active(connection, context.table, context.model))
        _require_a_stored_vector(pipeline)
        result = BackfillResult(pipeline.tally, time.monotonic() - began, complete=not stop.is_set())
        if result.complete and (result.tally.embedded or context.model.usual_cosine is None):
            await find_usual_cosine(reader.run, context.table, context.model, embedder)
        return result


def _require_a_stored_vector(pipeline: Pipeline) -> None:
    """Raise an error if the table refused every vector that the backfill tried to store.

    Raises:
        DatabaseRejected: the table refused ten updates or more, and no row got its vector.
    """
    if pipeline.refused >= _ALL_REFUSED and not pipeline.tally.embedded:
        raise DatabaseRejected(
            f"{pipeline.table.qualified} refused every update by which a vector was to be stored ({pipeline.refused}).",
            "Look at its triggers and constraints, and in Postgres's log; then run memory quarantine retry.",
        )
