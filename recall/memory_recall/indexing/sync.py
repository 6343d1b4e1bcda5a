"""Keeps vectors up to date: waits for a notification that rows have changed, embeds the pending rows, and waits again.

A notification is only a hint. The worker also looks for pending rows at intervals, so if a notification is lost, as
during a reconnect, its row is embedded later but not forgotten. Every role of the database may send notifications.
Therefore the worker waits a moment after a pass that found nothing, and all notifications of that time start only one
pass. The worker pauses while a backfill runs. While the embedder's API key is lost or refused, rows stay pending, and
the worker waits for the right key.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from memory_recall.embedding.served_model import ServedModel
from memory_recall.errors import first_of
from memory_recall.indexing import leases_sql
from memory_recall.indexing.document_embedder import DocumentEmbedder
from memory_recall.indexing.embedders import EmbedderDirectory
from memory_recall.indexing.pipeline import FRESH, Pipeline, sleep_unless
from memory_recall.indexing.progress import Progress, Tally
from memory_recall.indexing.readiness import Readiness
from memory_recall.indexing.retry import wait_until_served
from memory_recall.indexing.usual_cosine import UsualCosineKeeper
from memory_recall.indexing.worker import WorkerPlan, build_pipeline, confirm_context, worker_session, writer_session
from memory_recall.postgres.connection import Connection, DsnSource
from memory_recall.postgres.driver_errors import translated
from memory_recall.postgres.session import Session
from memory_recall.schema.models_sql import active_model, record_address
from memory_recall.schema.revisions import require_schema
from memory_recall.schema.table import NOTIFY_CHANNEL, describe

_BACKFILL_POLL_SECONDS = 1.0
_REST_SECONDS = 0.25  # after a pass in vain, so that a flood of notifications causes four passes a second at most
_LONGEST_REST_SECONDS = 10.0
_REST_FACTOR = 9.0  # so that reading in vain takes a tenth of the time at most, as beside many rows without a text

Companion = Callable[[asyncio.Event], Coroutine[Any, Any, None]]


class Wakeup:
    """An event that is set by a notification about the table, and when the listening connection is lost."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    async def listen(self, connection: Connection, table: str) -> None:
        """Listen on a new connection, and set the event at each notification that names the table.

        Notifications about other tables arrive on the same channel and are ignored. The event is also set at once,
        because earlier notifications were lost, and when the connection ends.
        """

        def notified(_connection: object, _pid: int, _channel: str, payload: object) -> None:
            if payload == table:
                self.event.set()

        with translated("listening for pending rows"):
            await connection.add_listener(NOTIFY_CHANNEL, notified)
        self.event.set()  # notifications of rows that were written before are lost
        await self.watch(connection)

    async def watch(self, connection: Connection) -> None:
        """Set the event when a new connection ends."""
        connection.add_termination_listener(lambda _connection: self.event.set())

    async def wait(self, seconds: float, stop: asyncio.Event) -> None:
        """Wait until the event is set, `seconds` have passed, or `stop` is set; then clear the event."""
        waits = [asyncio.ensure_future(event.wait()) for event in (self.event, stop)]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        self.event.clear()


def rest_after(read_seconds: float) -> float:
    """Return how many seconds to rest after a pass that read nothing, for which the database took `read_seconds`.

    Every pass looks at the rows that are pending and not due: those in quarantine and those without a text. Beside
    hundreds of thousands of these, the notification of each edit would otherwise cost the database a second.
    """
    return min(max(_REST_SECONDS, _REST_FACTOR * read_seconds), _LONGEST_REST_SECONDS)


async def sync(
    source: DsnSource,
    directory: EmbedderDirectory,
    plan: WorkerPlan,
    *,
    poll_seconds: float,
    progress: Progress,
    stop: asyncio.Event,
    companions: Sequence[Companion] = (),
    readiness: Readiness | None = None,
) -> Tally:
    """Embed rows as they become pending, until `stop` is set; batches that are under way then are finished first.

    When a model swap makes another model active, the worker continues with that model. `companions` are coroutine
    functions that run at the same time, such as the filling of the standby column. Each is given `stop`, which is also
    set when the worker ends with an error. `readiness` is told whether the worker could embed a new row.

    Raises:
        SchemaBehind, ModelMismatch, DimensionMismatch: the schema is not complete, or no embedder serves the active
            model.
        DatabaseUnreachable, EmbedderUnavailable, EmbedderUnauthorized: an outage, or the lack of the right API key,
            lasted longer than the limit.
    """
    readiness = readiness or Readiness()
    worker = _Sync(source, directory, replace(plan, awaits_key=True), readiness.watched(progress), stop, readiness)

    async def work() -> None:
        try:
            await worker.run(poll_seconds)
        finally:
            stop.set()

    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(work())
            for companion in companions:
                tasks.create_task(companion(stop))
    except BaseExceptionGroup as group:
        raise first_of(group) from None
    return worker.tally


@dataclass(frozen=True)
class _Prepared:
    """What a sync worker does for the active model."""

    pipeline: Pipeline
    usual_cosine: UsualCosineKeeper


@dataclass
class _Sync:
    """One sync worker. `tally` counts over all models that were active while the worker ran."""

    source: DsnSource
    directory: EmbedderDirectory
    plan: WorkerPlan
    progress: Progress
    stop: asyncio.Event
    readiness: Readiness
    wakeup: Wakeup = field(default_factory=Wakeup)
    tally: Tally = field(default_factory=Tally)

    async def run(self, poll_seconds: float) -> None:
        """Embed rows with the active model, and with each model that becomes active later, until `stop` is set."""
        reader = worker_session(self.source, self.plan, self.progress, name="memory-sync", prepare=self._prepare)
        async with reader, writer_session(self.source, self.plan, self.progress) as writer:
            while not self.stop.is_set():
                prepared = await self._prepared(reader, writer)
                with self.readiness.prepared():
                    await self._serve(prepared, reader, poll_seconds)

    async def _prepare(self, connection: Connection) -> None:
        table = await describe(connection, self.plan.table)
        await leases_sql.lease_sync(connection, table, self.progress)
        await self.wakeup.listen(connection, table.name)

    async def _serve(self, prepared: _Prepared, reader: Session, poll_seconds: float) -> None:
        """Embed pending rows until another model becomes active or `stop` is set."""
        pipeline = prepared.pipeline
        share = self.plan.options.share
        while not self.stop.is_set():
            if await reader.run(partial(leases_sql.backfill_runs, table=pipeline.table)):
                seconds = min(poll_seconds, _BACKFILL_POLL_SECONDS)
            elif await pipeline.run_pass() > 0:
                continue
            else:
                state = await reader.run(lambda connection: pipeline.queue.state(connection, share))
                if not state.current:
                    return
                await prepared.usual_cosine.keep(self.tally.embedded)
                due = state.seconds_until_due
                seconds = poll_seconds if due is None else min(poll_seconds, max(due, 0.05))
            await sleep_unless(self.stop, rest_after(pipeline.read_seconds))
            await self.wakeup.wait(seconds, self.stop)

    async def _prepared(self, reader: Session, writer: Session) -> _Prepared:
        """Find an embedder of the active model, record its address, and build the pipeline for that model."""
        table = await reader.run(lambda connection: require_schema(connection, self.plan.table))
        active = await reader.run(lambda connection: active_model(connection, table))
        embedder, url = self.directory.configured, self.directory.recorded_url
        served = await self._wait_until_served(embedder)
        if not active.served_by(served):
            embedder = await self.directory.serving(active)
            served = await self._wait_until_served(embedder)
        context = await confirm_context(reader, table, embedder, served)
        if embedder is self.directory.configured:
            await reader.run(partial(record_address, table=table, model_id=active.id, url=url))
        pipeline = build_pipeline(
            context,
            embedder,
            self.plan,
            sessions=(reader, writer),
            progress=self.progress,
            stop=self.stop,
            tally=self.tally,
            writes=FRESH,
        )
        return _Prepared(pipeline, UsualCosineKeeper(reader.run, table, context.model, embedder))

    async def _wait_until_served(self, embedder: DocumentEmbedder) -> ServedModel:
        return await wait_until_served(
            embedder, self.progress, self.plan.outage_timeout, awaits_key=self.plan.awaits_key
        )
