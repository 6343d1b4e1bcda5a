"""Looks after the vector index beside the sync worker: samples its recall now and then and repairs it where needed.

An index whose recall stays low after a rebuild is as good as these vectors allow; from then on it is compared with what
the rebuild achieved, so that a table that is hard to index is not rebuilt for ever.
"""

import asyncio
from dataclasses import dataclass

import structlog

from memory_recall.errors import MemoryIndexError
from memory_recall.hnsw.repair import DEFAULT_SAMPLE, IndexParameters, IndexReport, check_and_repair
from memory_recall.indexing.progress import WorkerMetrics
from memory_recall.postgres.connection import DsnSource, opened, require_session
from memory_recall.schema.revisions import require_schema

_FIRST_LOOK_SECONDS = 300.0  # a worker that is restarted often looks all the same, one that just started is busy
_TOLERANCE = 0.02  # between two samples of the same index


def next_threshold(threshold: float, report: IndexReport) -> float:
    """Below which recall the index is repaired from now on."""
    reached = report.recall_after_repair
    return threshold if reached is None else max(0.0, min(threshold, reached - _TOLERANCE))


@dataclass
class IndexCare:
    """How the index is to be, and how often it is looked at; 0 seconds is never."""

    parameters: IndexParameters
    threshold: float
    every_seconds: float
    first_seconds: float = _FIRST_LOOK_SECONDS

    async def run(self, source: DsnSource, table: str, metrics: WorkerMetrics) -> None:
        """Look until cancelled. Whatever fails is logged and tried again the next time: rows come first."""
        if not self.every_seconds:
            return
        log = structlog.get_logger("memory_recall.index-check")
        await asyncio.sleep(min(self.first_seconds, self.every_seconds))
        while True:
            try:
                report = await self._look(source, table)
            except MemoryIndexError as error:
                log.warning("index not checked", reason=error.reason, message=error.message)
            else:
                self._tell(report, metrics)
            await asyncio.sleep(self.every_seconds)

    async def _look(self, source: DsnSource, table: str) -> IndexReport:
        async with opened(source, "memory-index-care") as connection:
            await require_session(connection)
            found = await require_schema(connection, table)
            return await check_and_repair(
                connection, found, self.parameters, sample=DEFAULT_SAMPLE, repair_below=self.threshold
            )

    def _tell(self, report: IndexReport, metrics: WorkerMetrics) -> None:
        log = structlog.get_logger("memory_recall.index-check")
        if report.recall is None:
            return
        reached = report.recall if report.recall_after_repair is None else report.recall_after_repair
        metrics.index_recall.set(reached)
        if report.recall_after_repair is not None:
            log.warning("index rebuilt", recall_before=round(report.recall, 3), recall_after=round(reached, 3))
        self.threshold = next_threshold(self.threshold, report)
