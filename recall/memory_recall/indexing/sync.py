"""Keeps vectors fresh: sleeps until the database says that a row is pending, drains, and sleeps again.

A notification is only a hint. Every so often the worker looks by itself, so that one that was lost, as while the
connection was being replaced, merely delays a row. It stands aside while a backfill is at work.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from memory_recall.errors import MemoryIndexError, first_of
from memory_recall.indexing import leases
from memory_recall.indexing.backfill import WorkerPlan, Workplace, build_pipeline, writer_session
from memory_recall.indexing.document_embedder import DescribedEmbedder
from memory_recall.indexing.embedder_directory import EmbedderDirectory
from memory_recall.indexing.pipeline import FRESH, Pipeline
from memory_recall.indexing.progress import Progress
from memory_recall.indexing.queue_sql import PendingQueue
from memory_recall.indexing.tally import Tally
from memory_recall.indexing.waiting import sleep_unless, until_served
from memory_recall.indexing.worker_session import Session
from memory_recall.postgres.connection import Connection, DsnSource
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.models_sql import ActiveModel, active_model, confirm_model, record_address
from memory_recall.schema.revisions import require_schema
from memory_recall.schema.table import NOTIFY_CHANNEL, MemoryTable
from memory_recall.swap.standby_worker import keep_standby

_STAND_ASIDE_SECONDS = 1.0
_SWAP_LOOK_SECONDS = 2.0
_SWAP_RETRY_SECONDS = 10.0


class Wakeup:
    """An event that notifications set, and the loss of the listening connection too."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    async def listen(self, connection: Connection) -> None:
        """Listen on a new connection."""
        with translated("listening for pending rows"):
            await connection.add_listener(NOTIFY_CHANNEL, self._notified)
        connection.add_termination_listener(self._terminated)
        self.event.set()  # what was written before we listened was not heard

    def _notified(self, *_arguments: object) -> None:
        self.event.set()

    def _terminated(self, *_arguments: object) -> None:
        self.event.set()

    async def wait(self, seconds: float, stop: asyncio.Event) -> None:
        """Until something is heard, the time is over, or the worker is to stop."""
        waits = [asyncio.ensure_future(event.wait()) for event in (self.event, stop)]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        self.event.clear()


async def sync(
    source: DsnSource,
    directory: EmbedderDirectory,
    plan: WorkerPlan,
    *,
    poll_seconds: float,
    progress: Progress,
    stop: asyncio.Event,
) -> Tally:
    """Embed rows as they become pending, until `stop` is set; what was begun is finished.

    During a model swap the standby column is kept fresh beside the active one, where the swap's own process does not do
    it; after the flip the work goes on with the new active model.

    Raises:
        SchemaBehind, ModelMismatch, DimensionMismatch: database and embedder do not fit.
        DatabaseUnreachable, EmbedderUnavailable: an outage lasted longer than the limit.
    """
    worker = _Sync(source, directory, plan, progress, stop)
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_while_alive(worker.run(poll_seconds), stop))
            tasks.create_task(_beside(source, directory, plan, progress, stop))
    except BaseExceptionGroup as group:
        raise first_of(group) from None
    return worker.tally


async def _beside(
    source: DsnSource, directory: EmbedderDirectory, plan: WorkerPlan, progress: Progress, stop: asyncio.Event
) -> None:
    """Keep the standby column fresh; whatever is wrong with the next model must not stop the active one's work."""
    while not stop.is_set():
        try:
            await keep_standby(source, directory, plan, idle_seconds=_SWAP_LOOK_SECONDS, progress=progress, stop=stop)
        except MemoryIndexError as error:
            progress.outage_began("next model", error)
            await sleep_unless(stop, _SWAP_RETRY_SECONDS)


async def _while_alive(work: Coroutine[Any, Any, None], stop: asyncio.Event) -> None:
    try:
        await work
    finally:
        stop.set()


@dataclass
class _Sync:
    """The active column's part: sessions, and the pipeline for the model that is active at the moment."""

    source: DsnSource
    directory: EmbedderDirectory
    plan: WorkerPlan
    progress: Progress
    stop: asyncio.Event
    wakeup: Wakeup = field(default_factory=Wakeup)
    model: int | None = None
    pipeline: Pipeline | None = None
    past: Tally = field(default_factory=Tally)

    @property
    def tally(self) -> Tally:
        """What has been done, with every model so far."""
        now = self.pipeline.tally if self.pipeline else Tally()
        return Tally(**{name: getattr(self.past, name) + value for name, value in asdict(now).items()})

    async def run(self, poll_seconds: float) -> None:
        """Drain, sleep until something is heard, and drain again."""
        plan, stop = self.plan, self.stop
        reader = Session(
            self.source,
            name="memory-sync",
            listener=self.progress,
            prepare=self._prepare,
            outage_timeout=plan.outage_timeout,
        )
        async with reader, writer_session(self.source, plan, self.progress) as writer:
            while not stop.is_set():
                pipeline, queue = await self._at_work(reader, writer)
                if await reader.run(leases.backfill_runs):
                    due: float | None = _STAND_ASIDE_SECONDS
                elif await pipeline.run_pass() > 0:
                    continue
                else:
                    due = await reader.run(partial(self._due, queue))
                await self.wakeup.wait(poll_seconds if due is None else min(poll_seconds, max(due, 0.05)), stop)

    async def _due(self, queue: PendingQueue, connection: Connection) -> float | None:
        return await queue.seconds_until_due(connection, self.plan.options.partition)

    async def _prepare(self, connection: Connection) -> None:
        await leases.lease_sync(connection)
        await self.wakeup.listen(connection)

    async def _at_work(self, reader: Session, writer: Session) -> tuple[Pipeline, PendingQueue]:
        table = await reader.run(lambda connection: require_schema(connection, self.plan.table))
        active = await reader.run(lambda connection: active_model(connection, table))
        if self.pipeline is None or active.id != self.model:
            pipeline = await self._built(reader, writer, table, active)
            self.past, self.pipeline, self.model = self.tally, pipeline, active.id
        return self.pipeline, PendingQueue(table, active.id)

    async def _built(self, reader: Session, writer: Session, table: MemoryTable, active: ActiveModel) -> Pipeline:
        embedder: DescribedEmbedder = self.directory.configured
        served = await until_served(embedder, self.progress, self.plan.outage_timeout)
        url = self.directory.url
        if active.served_by(served):
            if url is not None:
                await reader.run(lambda connection: record_address(connection, table, active.id, url))
        else:
            embedder = await self.directory.serving(active)
            served = await until_served(embedder, self.progress, self.plan.outage_timeout)
        place = Workplace(table, await reader.run(lambda connection: confirm_model(connection, table, served)))
        return build_pipeline(
            place,
            embedder,
            self.plan,
            sessions=(reader, writer),
            progress=self.progress,
            stop=self.stop,
            writes=FRESH,
        )
