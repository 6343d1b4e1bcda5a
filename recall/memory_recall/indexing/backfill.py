"""Drains the pending rows of one partition and ends.

Passes follow one another until none finds a row that is due: rows written meanwhile are found by the next pass, and
rows whose embedding failed are waited for until they succeed or are given up. Everything it has to know is in the
database, so a worker that was killed is simply started again.
"""

import asyncio
import time
from dataclasses import dataclass

from memory_recall.indexing import halfvec, leases, quarantine_sql
from memory_recall.indexing.bisecting import PatientEmbedder
from memory_recall.indexing.document_embedder import DescribedEmbedder
from memory_recall.indexing.pipeline import BULK, Pipeline, PipelineOptions, WritePace
from memory_recall.indexing.progress import Progress
from memory_recall.indexing.queue_sql import PendingQueue
from memory_recall.indexing.tally import Tally
from memory_recall.indexing.waiting import until_served
from memory_recall.indexing.worker_session import Session
from memory_recall.postgres.connection import Connection, DsnSource
from memory_recall.schema.models_sql import ActiveModel, ServedModel, confirm_model, require_active
from memory_recall.schema.revisions import require_schema
from memory_recall.schema.table import ACTIVE, MemoryTable, VectorColumn

_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class WorkerPlan:
    """Which table a worker serves, and how patient it is."""

    table: str
    options: PipelineOptions
    outage_timeout: float = 1800


@dataclass(frozen=True)
class BackfillResult:
    """What a backfill has done."""

    tally: Tally
    seconds: float
    complete: bool

    @property
    def rows_per_second(self) -> float:
        """The measured rate."""
        return self.tally.embedded / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True)
class Workplace:
    """What is known once database and embedder have been looked at: the table, and that both mean the same model."""

    table: MemoryTable
    model: ActiveModel


async def prepare_workplace(
    session: Session, embedder: DescribedEmbedder, plan: WorkerPlan, progress: Progress
) -> Workplace:
    """Look at both sides before the first row.

    Raises:
        SchemaBehind, ModelMismatch, DimensionMismatch: they do not fit.
    """
    table = await session.run(lambda connection: require_schema(connection, plan.table))
    served = await until_served(embedder, progress, plan.outage_timeout)
    model = await session.run(lambda connection: confirm_model(connection, table, served))
    return Workplace(table, model)


def build_pipeline(
    place: Workplace,
    embedder: DescribedEmbedder,
    plan: WorkerPlan,
    *,
    sessions: tuple[Session, Session],
    progress: Progress,
    stop: asyncio.Event,
    column: VectorColumn = ACTIVE,
    indexed: bool = True,
    writes: WritePace = BULK,
) -> Pipeline:
    """The pipeline over a looked-at workplace; `sessions` are the reader's and the writer's."""

    async def verify() -> None:
        info = await embedder.model_info()
        place.model.require_same(ServedModel(info.name, info.dimensions, info.digest))

    patient = PatientEmbedder(embedder, progress, verify=verify, outage_timeout=plan.outage_timeout)
    reader, writer = sessions
    return Pipeline(
        reader=reader,
        writer=writer,
        table=place.table,
        queue=PendingQueue(place.table, place.model.id, column, indexed=indexed),
        embedder=patient,
        column=column,
        writes=writes,
        options=plan.options,
        progress=progress,
        stop=stop,
    )


def writer_session(source: DsnSource, plan: WorkerPlan, progress: Progress) -> Session:
    """A session that can write vectors."""

    async def prepare(connection: Connection) -> None:
        table = await require_schema(connection, plan.table)
        await halfvec.register(connection, table.vector_schema or "public")

    return Session(source, name="memory-writer", listener=progress, prepare=prepare, outage_timeout=plan.outage_timeout)


async def backfill(
    source: DsnSource,
    embedder: DescribedEmbedder,
    plan: WorkerPlan,
    *,
    progress: Progress,
    stop: asyncio.Event,
) -> BackfillResult:
    """Embed every pending row of the partition; `stop` ends it early, with everything finished that was begun.

    Raises:
        SchemaBehind, ModelMismatch, DimensionMismatch: database and embedder do not fit, or no longer do.
        DatabaseUnreachable, EmbedderUnavailable: an outage lasted longer than the limit.
    """
    partition = plan.options.partition

    async def lease(connection: Connection) -> None:
        await leases.lease_partition(connection, partition)

    reader = Session(
        source, name="memory-backfill", listener=progress, prepare=lease, outage_timeout=plan.outage_timeout
    )
    async with reader, writer_session(source, plan, progress) as writer:
        place = await prepare_workplace(reader, embedder, plan, progress)
        queue = PendingQueue(place.table, place.model.id)
        pipeline = build_pipeline(place, embedder, plan, sessions=(reader, writer), progress=progress, stop=stop)
        await reader.run(lambda connection: quarantine_sql.forget_settled(connection, place.table))
        progress.started(await reader.run(lambda connection: queue.count(connection, partition)))
        began = time.monotonic()
        while not stop.is_set():
            if await pipeline.run_pass() > 0:
                continue
            due = await reader.run(lambda connection: queue.seconds_until_due(connection, partition))
            if due is None:
                break
            await asyncio.sleep(min(max(due, 0.0), _POLL_SECONDS))
        await reader.run(lambda connection: quarantine_sql.forget_settled(connection, place.table))
        await reader.run(lambda connection: require_active(connection, place.table, place.model))
        return BackfillResult(pipeline.tally, time.monotonic() - began, complete=not stop.is_set())
