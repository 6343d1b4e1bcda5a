"""Keeps the standby column filled with the next model's vectors while a swap is open.

Both the swap's own process and the sync worker fill the column. A lease lets only one of them fill it at a time.
"""

import asyncio
from dataclasses import dataclass
from functools import partial

from memory_recall.embedding.canary import are_of_different_kinds
from memory_recall.errors import MemoryIndexError, ModelMismatch
from memory_recall.indexing import leases_sql
from memory_recall.indexing.embedders import EmbedderDirectory
from memory_recall.indexing.pipeline import BACKGROUND, Pipeline, sleep_unless
from memory_recall.indexing.progress import Progress, Tally
from memory_recall.indexing.retry import wait_until_served
from memory_recall.indexing.worker import WorkerContext, WorkerPlan, build_pipeline, worker_session, writer_session
from memory_recall.postgres.connection import DsnSource
from memory_recall.postgres.session import Session
from memory_recall.retrying import Awaited
from memory_recall.schema.models_sql import read_roles
from memory_recall.schema.revisions import require_schema
from memory_recall.schema.table import STANDBY
from memory_recall.swap.state_sql import standby_queue_indexed

_BUSY_SECONDS = 0.25
_REST_FACTOR = 4.0  # times as long as reading rows took, which scans the table until the queue has its index
_POLL_SECONDS = 2.0
_RETRY_SECONDS = 10.0


async def maintain_standby(
    source: DsnSource, directory: EmbedderDirectory, plan: WorkerPlan, progress: Progress, stop: asyncio.Event
) -> None:
    """Fill the standby column while the sync worker runs, until `stop` is set.

    An error is reported, and the filling is tried again later, because an error about the next model must not stop the
    sync worker.
    """
    while not stop.is_set():
        try:
            await fill_standby(source, directory, plan, idle_seconds=_POLL_SECONDS, progress=progress, stop=stop)
        except MemoryIndexError as error:
            progress.outage_began(Awaited.NEXT_MODEL, error)
            progress.attempt_failed(Awaited.NEXT_MODEL, error, wait=Awaited.NEXT_MODEL)
            await sleep_unless(stop, _RETRY_SECONDS)


async def fill_standby(
    source: DsnSource,
    directory: EmbedderDirectory,
    plan: WorkerPlan,
    *,
    idle_seconds: float,
    progress: Progress,
    stop: asyncio.Event,
) -> None:
    """Whenever a swap is open, embed the rows that have no vector in the standby column. Return once `stop` is set.

    Raises:
        ModelMismatch, DimensionMismatch: the next model's embedder serves another model, or identifies its model in
            another way than the embedder that the swap was started with.
        DatabaseUnreachable, EmbedderUnavailable: an outage lasted longer than the limit.
    """
    reader = worker_session(source, plan, progress, name="memory-standby")
    async with reader, writer_session(source, plan, progress) as writer:
        filler = _Filler(reader, writer, directory, plan, NextModelProgress(progress), stop)
        while not stop.is_set():
            rest = await filler.fill()
            progress.wait_ended(Awaited.NEXT_MODEL)
            await sleep_unless(stop, idle_seconds if rest is None else rest)


@dataclass(frozen=True, slots=True)
class NextModelProgress:
    """Passes all reports on, those about the embedder as reports about the next model.

    Otherwise the end of such an outage would be taken for the end of one of the active model's embedder.
    """

    inner: Progress

    def started(self, total: int) -> None:
        """Report the number of rows to embed."""
        self.inner.started(total)

    def advanced(self, tally: Tally) -> None:
        """Report what has been done so far."""
        self.inner.advanced(tally)

    def outage_began(self, what: Awaited, error: MemoryIndexError) -> None:
        """Report that the database or the next model's embedder is away."""
        self.inner.outage_began(_of_next_model(what), error)

    def outage_ended(self, what: Awaited, seconds: float) -> None:
        """Report that it is back."""
        self.inner.outage_ended(_of_next_model(what), seconds)

    def attempt_failed(self, what: Awaited, error: MemoryIndexError, wait: object) -> None:
        """Report that an attempt to reach the database or the next model's embedder failed."""
        self.inner.attempt_failed(_of_next_model(what), error, wait)

    def wait_ended(self, wait: object) -> None:
        """Report that nobody waits any more."""
        self.inner.wait_ended(wait)


def _of_next_model(what: Awaited) -> Awaited:
    return Awaited.NEXT_MODEL if what is Awaited.EMBEDDER else what


@dataclass
class _Filler:
    """Fills the standby column.

    `pipeline` holds the pipeline in use, together with the model's id and whether an index over the pending rows
    exists, because a change of either needs a new pipeline. It is None before the first pass and while no swap is open.
    """

    reader: Session
    writer: Session
    directory: EmbedderDirectory
    plan: WorkerPlan
    progress: Progress
    stop: asyncio.Event
    pipeline: tuple[tuple[int, bool], Pipeline] | None = None

    async def fill(self) -> float | None:
        """Make one pass over the rows without a vector, unless another process fills the column.

        Return the seconds to pause before the next pass, or None if no swap is open.
        """
        table = await self.reader.run(lambda connection: require_schema(connection, self.plan.table))
        following = (await self.reader.run(lambda connection: read_roles(connection, table))).next
        if following is None or table.standby_dimensions != following.dimensions:
            if self.pipeline is not None:
                await self.reader.run(partial(leases_sql.release_standby, table=table))
                self.pipeline = None
            return None
        if not await self.reader.run(partial(leases_sql.try_lease_standby, table=table)):
            return _BUSY_SECONDS
        pipeline = await self._pipeline(WorkerContext(table, following))
        await pipeline.run_pass()
        return max(_BUSY_SECONDS, _REST_FACTOR * pipeline.read_seconds)

    async def _pipeline(self, context: WorkerContext) -> Pipeline:
        table, model = context.table, context.model
        indexed = await self.reader.run(lambda connection: standby_queue_indexed(connection, table))
        wanted = (model.id, indexed)
        if self.pipeline is None or self.pipeline[0] != wanted:
            embedder = await self.directory.serving(model)
            served = await wait_until_served(embedder, self.progress, self.plan.outage_timeout)
            model.require_same(served)
            if are_of_different_kinds(model.digest, served.digest):
                raise ModelMismatch(
                    f"The embedder of {model.name} identifies its model in another way than the one that the swap was "
                    "started with: one by a file's digest, the other by vectors of fixed texts.",
                    "Start the swap again with the embedder that it was started with, which fills the column.",
                )
            pipeline = build_pipeline(
                context,
                embedder,
                self.plan,
                sessions=(self.reader, self.writer),
                progress=self.progress,
                stop=self.stop,
                column=STANDBY,
                indexed=indexed,
                writes=BACKGROUND,
            )
            await pipeline.forget_settled()
            self.pipeline = (wanted, pipeline)
        return self.pipeline[1]
