"""What the backfill, the sync worker and a model swap share: options, database sessions, pipeline and shutdown."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from pgvector.asyncpg import register_vector

from memory_recall.embedding.profiles import PROFILES
from memory_recall.embedding.served_model import ServedModel
from memory_recall.errors import Interrupted, InvalidConfiguration
from memory_recall.indexing.document_embedder import DocumentEmbedder
from memory_recall.indexing.pipeline import BatchLimits, Pipeline, PipelineOptions, WritePace
from memory_recall.indexing.progress import Progress, Tally
from memory_recall.indexing.quarantine_sql import RetryPolicy
from memory_recall.indexing.queue_sql import PendingQueue, WorkerShare, still_shareable
from memory_recall.indexing.retry import RetryingEmbedder, wait_until_served
from memory_recall.indexing.sendable_rows import SendableRows
from memory_recall.indexing.stored_vectors import compare_with_stored
from memory_recall.postgres.connection import Connection, DsnSource
from memory_recall.postgres.driver_errors import translated
from memory_recall.postgres.session import Session
from memory_recall.schema.models_sql import RecordedModel, active_model, confirm_model
from memory_recall.schema.revisions import require_schema
from memory_recall.schema.table import ACTIVE, GUARDED, GUARDED_WRITER, MemoryTable, VectorColumn
from memory_recall.settings import Settings

T = TypeVar("T")
_GRACE_SECONDS = 20.0
_DEFAULT_MAX_TOKENS = 512


@dataclass(frozen=True)
class WorkerPlan:
    """The table that a worker embeds, its pipeline's options, and how many seconds an outage may last.

    `awaits_key` says whether the worker waits for the right API key as for the end of an outage.
    """

    table: str
    options: PipelineOptions
    outage_timeout: float = 1800
    awaits_key: bool = False

    @classmethod
    def from_settings(cls, settings: Settings, *, partitioned: bool) -> "WorkerPlan":
        """Read the plan from the settings.

        If `partitioned` is set, the worker embeds only this process's share of the rows; otherwise it embeds all rows.

        Raises:
            InvalidConfiguration: the number of this process's partition is not below the number of partitions.
        """
        if partitioned and settings.partition >= settings.backfill.partitions:
            raise InvalidConfiguration(
                f"Partition {settings.partition} does not exist among {settings.backfill.partitions}.",
                "Set MEMORY_BACKFILL_PARTITIONS to the Job's completions.",
            )
        known = PROFILES.get(settings.model)
        return cls(
            table=settings.table,
            options=PipelineOptions(
                limits=BatchLimits(
                    rows=settings.backfill.batch_size,
                    max_tokens_per_row=(known and known.max_tokens) or _DEFAULT_MAX_TOKENS,
                ),
                share=WorkerShare(settings.partition, settings.backfill.partitions) if partitioned else WorkerShare(),
                policy=RetryPolicy(settings.backfill.max_attempts),
                rows_per_second=settings.backfill.rows_per_second,
            ),
        )


@dataclass(frozen=True)
class WorkerContext:
    """The table and the active model of a worker, after a check that the embedder serves that model."""

    table: MemoryTable
    model: RecordedModel


async def prepare_context(
    session: Session, embedder: DocumentEmbedder, plan: WorkerPlan, progress: Progress
) -> WorkerContext:
    """Check the schema, and that the embedder serves the active model. Return the table and the model.

    Raises:
        SchemaBehind, ModelMismatch, DimensionMismatch: the schema is not complete, or the embedder serves another
            model.
    """
    table = await session.run(lambda connection: require_schema(connection, plan.table))
    served = await wait_until_served(embedder, progress, plan.outage_timeout)
    return await confirm_context(session, table, embedder, served)


async def confirm_context(
    session: Session, table: MemoryTable, embedder: DocumentEmbedder, served: ServedModel
) -> WorkerContext:
    """Check that what an embedder serves is the active model, by stored vectors where digests cannot tell.

    Raises:
        ModelMismatch, DimensionMismatch: the embedder serves another model.
    """
    active = await session.run(lambda connection: active_model(connection, table))
    active.require_same(served)
    await compare_with_stored(session.run, table, active, served, embedder)
    return WorkerContext(table, await session.run(lambda connection: confirm_model(connection, table, served)))


def worker_session(
    source: DsnSource,
    plan: WorkerPlan,
    progress: Progress,
    *,
    name: str,
    prepare: Callable[[Connection], Awaitable[None]] | None = None,
    command_timeout: float = 60,
) -> Session:
    """Make a database session for a worker. The triggers of a model swap accept vectors that are stored in it.

    A setting of the session tells the triggers that the worker checks the model of each vector itself. The statement
    that stores a vector compares the vector's model with the column's model, in a transaction that sees everything that
    is committed by then.
    """
    return Session(
        source,
        name=name,
        listener=progress,
        prepare=prepare,
        settings={GUARDED_WRITER: GUARDED},
        outage_timeout=plan.outage_timeout,
        command_timeout=command_timeout,
    )


def writer_session(source: DsnSource, plan: WorkerPlan, progress: Progress) -> Session:
    """Make the database session in which a worker stores vectors."""

    async def prepare(connection: Connection) -> None:
        table = await require_schema(connection, plan.table)
        with translated("registering the vector type"):
            await register_vector(connection, schema=table.vector_schema or "public")

    return worker_session(source, plan, progress, name="memory-writer", prepare=prepare)


def build_pipeline(
    context: WorkerContext,
    embedder: DocumentEmbedder,
    plan: WorkerPlan,
    *,
    sessions: tuple[Session, Session],
    progress: Progress,
    stop: asyncio.Event,
    tally: Tally | None = None,
    column: VectorColumn = ACTIVE,
    indexed: bool = True,
    writes: WritePace,
) -> Pipeline:
    """Make the pipeline of a worker. `sessions` are the reading session and the writing session."""
    reader, writer = sessions
    return Pipeline(
        reader=reader,
        writer=writer,
        table=context.table,
        queue=PendingQueue(context.table, context.model.id, column, indexed=indexed),
        embedder=RetryingEmbedder(
            embedder,
            progress,
            sendable=SendableRows(reader.run, partial(still_shareable, table=context.table)),
            model=context.model,
            outage_timeout=plan.outage_timeout,
            awaits_key=plan.awaits_key,
        ),
        column=column,
        writes=writes,
        options=plan.options,
        progress=progress,
        stop=stop,
        tally=tally or Tally(),
    )


async def run_until_stopped(work: Callable[[asyncio.Event], Awaitable[T]]) -> T:
    """Run a worker and return its result. SIGTERM or SIGINT ends the worker early.

    The first signal sets the event that is passed to `work`. The worker is cancelled 20 seconds later, or at a second
    signal.

    Raises:
        Interrupted: the worker was cancelled.
    """
    stop = asyncio.Event()
    task = asyncio.ensure_future(work(stop))
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if stop.is_set():
            task.cancel()
        stop.set()
        loop.call_later(_GRACE_SECONDS, task.cancel)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    try:
        return await task
    except asyncio.CancelledError:
        if not stop.is_set():
            raise
    raise Interrupted("It was cut off while it waited.", "Start it again; finished work is kept.")
