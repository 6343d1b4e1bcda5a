"""Measures what reading ahead gives after a start of the server, and what a vacuum of the vector index costs.

Each round drops all caches and starts the server twice. Once the sync worker's warmer runs to its end before the
questions of a cold round are asked, which says how long it takes and how fast recalls are then. Once both begin at the
same time, which says whether it slows down the recalls meanwhile: the same questions at the same places of a cold round
without it are what they are compared with.

A vacuum removes dead rows from the vector index, for which it reads all of it. Here dead rows come from an insert that
is rolled back, so that the table stays as it is.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg
import numpy as np

from memory_bench.latency.conditions import Asked, drop_caches, milliseconds, warm_up
from memory_bench.latency.designs import Design
from memory_bench.latency.page_cache import bring
from memory_bench.postgres import MeasuredServer
from memory_recall.indexing.companions.warming import Warmer
from memory_recall.indexing.pipeline import PipelineOptions
from memory_recall.indexing.progress import LogProgress, WorkerMetrics
from memory_recall.indexing.worker import WorkerPlan
from memory_recall.postgres.connection import DsnText

_DEAD_ROWS = 1000
_LONGEST_SECONDS = 600.0
TIMES_WARM = 2.0  # a recall counts as warm up to so many times the warm 95th percentile


@dataclass(frozen=True, slots=True)
class Warming:
    """The measurements at one table size. Times of recalls are in milliseconds.

    `extension` says whether the server has `pg_prewarm`; if not, stored vectors were searched. `seconds` are those of
    the warmer, one for each round. `after` are the times of recalls after it. `meanwhile` are those of the recalls that
    began before it ended, and `cold` those of the same recalls without it. `after_vacuum` are the times of recalls with
    warm caches after a vacuum.
    """

    extension: bool
    seconds: tuple[float, ...]
    after: tuple[float, ...]
    meanwhile: tuple[float, ...]
    cold: tuple[float, ...]
    after_vacuum: tuple[float, ...]

    @property
    def after_p95(self) -> float:
        """The 95th percentile of the recalls after the warmer has ended."""
        return float(np.percentile(self.after, 95))

    def seconds_to_warm(self, warm_p95: float) -> float | None:
        """Return the seconds that the slowest round took to read ahead; None if recalls are not warm afterwards."""
        return max(self.seconds) if self.after_p95 <= TIMES_WARM * warm_p95 else None

    @property
    def meanwhile_vs_cold(self) -> float | None:
        """The time of recalls beside the warmer divided by that of the same recalls without it; None without any."""
        return sum(self.meanwhile) / sum(self.cold) if self.meanwhile else None

    def summary(self, warm_p95: float) -> dict[str, object]:
        """Return the figures for JSON."""
        return {
            "extension": self.extension,
            "seconds": [round(one, 2) for one in self.seconds],
            "after_p50": round(float(np.percentile(self.after, 50)), 3),
            "after_p95": round(self.after_p95, 3),
            "seconds_to_warm": self.seconds_to_warm(warm_p95),
            "recalls_meanwhile": len(self.meanwhile),
            "meanwhile_vs_cold": self.meanwhile_vs_cold,
            "after_vacuum_p50": round(float(np.percentile(self.after_vacuum, 50)), 3),
            "after_vacuum_p95": round(float(np.percentile(self.after_vacuum, 95)), 3),
        }


async def measure_warming(
    server: MeasuredServer, database: str, design: Design, asked: Asked, cold: Sequence[float]
) -> Warming:
    """Measure one design; `cold` are its times of the cold rounds with the same questions.

    Raises:
        TimeoutError: the warmer did not end in ten minutes.
        RuntimeError: as for `measure`.
    """
    extension = await _create_extension(server, database)
    seconds: list[float] = []
    after: list[float] = []
    meanwhile: list[float] = []
    without: list[float] = []
    for number, (first, *timed) in enumerate(asked.cold_rounds):
        drop_caches(server)
        async with _warmer(server.dsn(database)) as warmer:
            seconds.append(await warmer.until_complete())
            async with design.open(server.dsn(database)) as opened:
                await milliseconds(opened, first)
                after += [await milliseconds(opened, question) for question in timed]
        drop_caches(server)
        async with design.open(server.dsn(database)) as opened, _warmer(server.dsn(database)) as warmer:
            await milliseconds(opened, first)
            for place, question in enumerate(timed, number * len(timed)):
                if warmer.complete:
                    break
                meanwhile.append(await milliseconds(opened, question))
                without.append(cold[place])
    vacuumed = await _after_vacuum(server, database, design, asked)
    return Warming(extension, tuple(seconds), tuple(after), tuple(meanwhile), tuple(without), vacuumed)


@dataclass(frozen=True, slots=True)
class _Running:
    metrics: WorkerMetrics
    began: float

    @property
    def complete(self) -> bool:
        return self.metrics.registry.get_sample_value("memory_worker_warmed") == 1.0

    async def until_complete(self) -> float:
        async with asyncio.timeout(_LONGEST_SECONDS):
            while not self.complete:  # noqa: ASYNC110  (the gauge has no event)
                await asyncio.sleep(0.01)
        return time.monotonic() - self.began


@asynccontextmanager
async def _warmer(dsn: str) -> AsyncIterator[_Running]:
    metrics, stop = WorkerMetrics(), asyncio.Event()
    plan = WorkerPlan("memories", PipelineOptions())
    async with asyncio.TaskGroup() as tasks:
        began = time.monotonic()
        tasks.create_task(Warmer(DsnText(dsn), plan, LogProgress(metrics, worker="warming"), metrics).run(stop))
        try:
            yield _Running(metrics, began)
        finally:
            stop.set()


async def _create_extension(server: MeasuredServer, database: str) -> bool:
    connection: Any = await asyncpg.connect(server.dsn(database))
    try:
        found = await connection.fetchval("SELECT true FROM pg_available_extensions WHERE name = 'pg_prewarm'")
        if found:
            await connection.execute("CREATE EXTENSION IF NOT EXISTS pg_prewarm")
    finally:
        await connection.close()
    return bool(found)


async def _after_vacuum(server: MeasuredServer, database: str, design: Design, asked: Asked) -> tuple[float, ...]:
    drop_caches(server)
    bring(server.data / "base")
    async with design.open(server.dsn(database)) as opened:
        await warm_up(opened, asked.warm_up)
        await _vacuum(server.dsn(database))
        return tuple([await milliseconds(opened, question) for question in asked.timed])


async def _vacuum(dsn: str) -> None:
    connection: Any = await asyncpg.connect(dsn)
    try:
        await connection.execute("SET session_replication_role = replica")
        transaction = connection.transaction()
        await transaction.start()
        columns = "content, category, importance, user_id, embedding"
        await connection.execute(
            f"INSERT INTO memories (id, {columns}) SELECT -id, {columns} FROM memories "  # noqa: S608 -- our own words
            f"ORDER BY id LIMIT {_DEAD_ROWS}"
        )
        await transaction.rollback()
        await connection.execute("VACUUM (INDEX_CLEANUP ON) memories")
    finally:
        await connection.close()
