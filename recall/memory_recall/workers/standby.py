"""Fills the standby column with the next model's vectors and keeps it filled while rows change.

The process that carries the swap out does it while it lives; the sync worker takes over where it does not. A lease lets
one of them work at a time.
"""

import asyncio

from memory_recall.store import leases, quarantine
from memory_recall.store.columns import STANDBY
from memory_recall.store.connection import DsnSource
from memory_recall.store.migrate_state import require_schema
from memory_recall.store.models import read_roles
from memory_recall.store.session import Session
from memory_recall.workers.backfill import WorkerPlan, Workplace, build_pipeline, writer_session
from memory_recall.workers.directory import EmbedderDirectory
from memory_recall.workers.pipeline import BACKGROUND, Pipeline
from memory_recall.workers.progress import Progress
from memory_recall.workers.waiting import sleep_unless, until_served

_BUSY_SECONDS = 0.25


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
    keeper = _Keeper(source, directory, plan, progress, stop)
    async with keeper.reader, keeper.writer:
        while not stop.is_set():
            await sleep_unless(stop, _BUSY_SECONDS if await keeper.fill() else idle_seconds)


class _Keeper:
    """The sessions, and the pipeline for the model that is next at the moment."""

    def __init__(
        self,
        source: DsnSource,
        directory: EmbedderDirectory,
        plan: WorkerPlan,
        progress: Progress,
        stop: asyncio.Event,
    ) -> None:
        self.reader = Session(source, name="memory-standby", listener=progress, outage_timeout=plan.outage_timeout)
        self.writer = writer_session(source, plan, progress)
        self._directory = directory
        self._plan = plan
        self._progress = progress
        self._stop = stop
        self._pipeline: tuple[int, Pipeline] | None = None

    async def fill(self) -> bool:
        """One pass if a swap is under way and nobody else fills; whether there is a swap at all."""
        table = await self.reader.run(lambda connection: require_schema(connection, self._plan.table))
        following = (await self.reader.run(lambda connection: read_roles(connection, table))).next
        if following is None or table.standby_dimensions != following.dimensions:
            if self._pipeline is not None:
                await self.reader.run(leases.release_standby)
                self._pipeline = None
            return False
        if not await self.reader.run(leases.try_lease_standby):
            return True
        pipeline = await self._for(Workplace(table, following))
        while not self._stop.is_set() and await pipeline.run_pass() > 0:
            pass
        return True

    async def _for(self, place: Workplace) -> Pipeline:
        if self._pipeline is None or self._pipeline[0] != place.model.id:
            embedder = await self._directory.serving(place.model)
            place.model.require_same(await until_served(embedder, self._progress, self._plan.outage_timeout))
            await self.reader.run(lambda connection: quarantine.forget_settled(connection, place.table, STANDBY))
            sessions = (self.reader, self.writer)
            pipeline = build_pipeline(
                place,
                embedder,
                self._plan,
                sessions=sessions,
                progress=self._progress,
                stop=self._stop,
                column=STANDBY,
                writes=BACKGROUND,
            )
            self._pipeline = (place.model.id, pipeline)
        return self._pipeline[1]
