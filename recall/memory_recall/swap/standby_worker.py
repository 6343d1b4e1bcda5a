"""Fills the standby column with the next model's vectors and keeps it filled while rows change.

The process that carries the swap out does it while it lives; the sync worker takes over where it does not. A lease lets
one of them work at a time.
"""

import asyncio
from dataclasses import dataclass

from memory_recall.indexing import leases, quarantine_sql
from memory_recall.indexing.backfill import WorkerPlan, Workplace, build_pipeline, writer_session
from memory_recall.indexing.embedder_directory import EmbedderDirectory
from memory_recall.indexing.pipeline import BACKGROUND, Pipeline
from memory_recall.indexing.progress import Progress
from memory_recall.indexing.waiting import sleep_unless, until_served
from memory_recall.indexing.worker_session import Session
from memory_recall.postgres.connection import DsnSource
from memory_recall.schema.models_sql import read_roles
from memory_recall.schema.revisions import require_schema
from memory_recall.schema.table import STANDBY
from memory_recall.swap import facts_sql

_BUSY_SECONDS = 0.25
_REST = 4.0  # times as long as finding rows took, which reads the table until the queue has its index


async def keep_standby(
    source: DsnSource,
    directory: EmbedderDirectory,
    plan: WorkerPlan,
    *,
    idle_seconds: float,
    progress: Progress,
    stop: asyncio.Event,
) -> None:
    """Embed what the standby column lacks whenever a swap is under way, until `stop` is set.

    Raises:
        ModelMismatch, DimensionMismatch: the next model's embedder serves something else.
        DatabaseUnreachable, EmbedderUnavailable: an outage lasted longer than the limit.
    """
    reader = Session(source, name="memory-standby", listener=progress, outage_timeout=plan.outage_timeout)
    async with reader, writer_session(source, plan, progress) as writer:
        keeper = _Keeper(reader, writer, directory, plan, progress, stop)
        while not stop.is_set():
            rest = await keeper.fill()
            await sleep_unless(stop, idle_seconds if rest is None else rest)


@dataclass
class _Keeper:
    """The sessions, and the pipeline for the model that is next at the moment, with what it was made for."""

    reader: Session
    writer: Session
    directory: EmbedderDirectory
    plan: WorkerPlan
    progress: Progress
    stop: asyncio.Event
    pipeline: tuple[tuple[int, bool], Pipeline] | None = None

    async def fill(self) -> float | None:
        """One pass if nobody else fills; for how many seconds to rest then, or None where no swap is under way."""
        table = await self.reader.run(lambda connection: require_schema(connection, self.plan.table))
        following = (await self.reader.run(lambda connection: read_roles(connection, table))).next
        if following is None or table.standby_dimensions != following.dimensions:
            if self.pipeline is not None:
                await self.reader.run(leases.release_standby)
                self.pipeline = None
            return None
        if not await self.reader.run(leases.try_lease_standby):
            return _BUSY_SECONDS
        pipeline = await self._for(Workplace(table, following))
        await pipeline.run_pass()
        return max(_BUSY_SECONDS, _REST * pipeline.read_seconds)

    async def _for(self, place: Workplace) -> Pipeline:
        indexed = await self.reader.run(lambda connection: facts_sql.queue_indexed(connection, place.table))
        wanted = (place.model.id, indexed)
        if self.pipeline is None or self.pipeline[0] != wanted:
            embedder = await self.directory.serving(place.model)
            place.model.require_same(await until_served(embedder, self.progress, self.plan.outage_timeout))
            await self.reader.run(lambda connection: quarantine_sql.forget_settled(connection, place.table, STANDBY))
            sessions = (self.reader, self.writer)
            pipeline = build_pipeline(
                place,
                embedder,
                self.plan,
                sessions=sessions,
                progress=self.progress,
                stop=self.stop,
                column=STANDBY,
                indexed=indexed,
                writes=BACKGROUND,
            )
            self.pipeline = (wanted, pipeline)
        return self.pipeline[1]
