"""Has what recalls search read ahead, once after each start of the database server, while the sync worker runs.

It has a session of its own, so that this delays no embedding. The session is kept: its end is how a restart or a
promotion is noticed, and its name shows `memory status` how far the reading is. Since the worker cannot know what is
in the server's memory, it reads ahead when it starts itself, too; what is in memory already is not read from the disk.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

import structlog

from memory_recall.errors import DatabaseRejected, MemoryIndexError
from memory_recall.indexing import warming_sql
from memory_recall.indexing.pipeline import sleep_unless
from memory_recall.indexing.progress import Progress, WorkerMetrics
from memory_recall.indexing.sync import Wakeup
from memory_recall.indexing.warming import Relation, Unit, WarmingProgress, mib_of, portions, searches
from memory_recall.indexing.worker import WorkerPlan
from memory_recall.postgres.connection import Connection, DsnSource
from memory_recall.postgres.session import Session
from memory_recall.schema.table import MemoryTable, describe

_PORTION_BLOCKS = 1024  # 8 MiB, a few milliseconds of most disks
_PAUSE = 1.0  # times as long as the portion before it took, so that recalls have half of the disk
_CHECK_SECONDS = 30.0  # a server whose node has died ends no connection
_SEARCH_SECONDS = 120.0  # of searches with their pauses; on a slow disk they are fewer
_RETRY_SECONDS = 10.0
_NO_RIGHT = "42501"  # the SQLSTATE where a role may read some columns of the table, but not the whole table
_log = structlog.get_logger("memory_recall.warming")


@dataclass
class Warmer:
    """Reads ahead after each start of the server until `stop` is set, for the table that `plan` names."""

    source: DsnSource
    plan: WorkerPlan
    progress: Progress
    metrics: WorkerMetrics
    check_seconds: float = _CHECK_SECONDS
    search_seconds: float = _SEARCH_SECONDS
    _wakeup: Wakeup = field(default_factory=Wakeup)
    _warmed: datetime | None = None  # the start of the server after which all was read that is to be
    _reported: tuple[MemoryTable, WarmingProgress] | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Read ahead now and after each further start of the server.

        An error is logged, and the server is checked again later, because an error here must not stop the sync
        worker.
        """
        self.metrics.warmed.set(0)
        while not stop.is_set():
            try:
                await self._watch(stop)
            except MemoryIndexError as error:
                _log.warning("not read ahead", reason=error.reason, message=error.message)
                await sleep_unless(stop, _RETRY_SECONDS)

    async def _watch(self, stop: asyncio.Event) -> None:
        session = Session(
            self.source,
            name="memory-warming",
            listener=self.progress,
            prepare=self._wakeup.watch,
            outage_timeout=self.plan.outage_timeout,
        )
        async with session:
            while not stop.is_set():
                await session.run(lambda connection: self._check_server(connection, stop))
                await self._wakeup.wait(self.check_seconds, stop)

    async def _check_server(self, connection: Connection, stop: asyncio.Event) -> None:
        started = await warming_sql.started_at(connection)
        if started == self._warmed:
            if self._reported is not None:
                await self._report(connection, *self._reported)  # the connection may be another one by now
            return
        self._reported = None
        try:
            await self._warm(connection, stop)
        except DatabaseRejected as error:
            _log.warning("not read ahead", reason=error.reason, message=error.message)
        self._warmed = started

    async def _warm(self, connection: Connection, stop: asyncio.Event) -> None:
        """Read ahead what recalls search, with the extension if this role may, else by searches."""
        table = await describe(connection, self.plan.table)
        relations = await warming_sql.searched_relations(connection, table) if table.exists else []
        schema = await warming_sql.prewarm_schema(connection)
        if schema is not None:
            try:
                await self._read(connection, schema, table, relations, stop)
            except DatabaseRejected as error:
                if error.sqlstate != _NO_RIGHT:
                    raise
            else:
                return
        await self._search(connection, table, relations, stop)

    async def _read(
        self,
        connection: Connection,
        schema: str,
        table: MemoryTable,
        relations: Sequence[Relation],
        stop: asyncio.Event,
    ) -> None:
        settings = await warming_sql.read_settings(connection)
        chosen = portions(relations, settings, blocks=_PORTION_BLOCKS)
        total = mib_of(sum(one.blocks for one in chosen), settings)
        read, began = 0, time.monotonic()
        await self._report(connection, table, WarmingProgress(0, total))
        for one in chosen:
            took = time.monotonic()
            await warming_sql.read_portion(connection, schema, one)
            read += one.blocks
            done = total if one is chosen[-1] else mib_of(read, settings) - 1  # the last portion alone completes it
            await self._report(connection, table, WarmingProgress(done, total))
            await sleep_unless(stop, (time.monotonic() - took) * _PAUSE)
            if stop.is_set():
                return
        _log.info("read ahead", mib=total, seconds=round(time.monotonic() - began, 1))

    async def _search(
        self, connection: Connection, table: MemoryTable, relations: Sequence[Relation], stop: asyncio.Event
    ) -> None:
        count = searches(relations)
        if not count:
            return
        await warming_sql.prepare_searches(connection)
        ids = await warming_sql.sample_ids(connection, table, count)
        await self._report(connection, table, WarmingProgress(0, len(ids), Unit.SEARCHES))
        began = time.monotonic()
        done = 0
        for done, key in enumerate(ids, 1):
            took = time.monotonic()
            await warming_sql.search_near(connection, table, key)
            last = done == len(ids) or took - began > self.search_seconds
            await self._report(connection, table, WarmingProgress(done, done if last else len(ids), Unit.SEARCHES))
            await sleep_unless(stop, (time.monotonic() - took) * _PAUSE)
            if last or stop.is_set():
                break
        _log.info("read ahead", searches=done, seconds=round(time.monotonic() - began, 1))

    async def _report(self, connection: Connection, table: MemoryTable, progress: WarmingProgress) -> None:
        self._reported = table, progress
        self.metrics.warmed.set(progress.share)
        await warming_sql.name_session(connection, table, progress)
