"""Checks the vector index while the sync worker runs: measures its recall at intervals and repairs it if needed.

If the recall stays low after a rebuild, no rebuild can improve it with the present vectors. From then on the recall is
compared with what the rebuild achieved, so that a table that is hard to index is not rebuilt again and again.
"""

import asyncio
from dataclasses import dataclass

import structlog

from memory_recall.errors import MemoryIndexError
from memory_recall.hnsw.repair import DEFAULT_SAMPLE, IndexParameters, IndexReport, check_and_repair
from memory_recall.indexing.progress import WorkerMetrics
from memory_recall.postgres.connection import DsnSource
from memory_recall.postgres.session import opened_session
from memory_recall.schema.revisions import require_schema

_FIRST_CHECK_SECONDS = 300.0  # short enough for a worker that restarts often, long enough for one that just started
_TOLERANCE = 0.02  # between two samples of the same index
_log = structlog.get_logger("memory_recall.index-check")


def next_threshold(threshold: float, report: IndexReport) -> float:
    """Return the recall below which the next check repairs the index.

    After a rebuild the threshold is at most the recall that the rebuild achieved, less a tolerance. Without a rebuild
    the threshold stays the same.
    """
    reached = report.recall_after_repair
    return threshold if reached is None else max(0.0, min(threshold, reached - _TOLERANCE))


@dataclass
class IndexChecker:
    """Checks the index every `every_seconds` (0: never), and repairs the index if its recall is below `threshold`."""

    parameters: IndexParameters
    threshold: float
    every_seconds: float
    first_seconds: float = _FIRST_CHECK_SECONDS

    async def run(self, source: DsnSource, table: str, metrics: WorkerMetrics, stop: asyncio.Event) -> None:
        """Check the index at intervals until `stop` is set; a check or a rebuild that is under way then is ended.

        A check that fails with a `MemoryIndexError` is logged, and the checks go on. Any other error is raised, so that
        the worker does not go on unchecked.
        """
        if not self.every_seconds:
            return
        checks = asyncio.create_task(self._run(source, table, metrics))
        stopped = asyncio.create_task(stop.wait())
        stopped.add_done_callback(lambda _stopped: checks.cancel())
        try:
            await checks
        except asyncio.CancelledError:
            if not stop.is_set():
                raise
        finally:
            stopped.cancel()

    async def _run(self, source: DsnSource, table: str, metrics: WorkerMetrics) -> None:
        await asyncio.sleep(min(self.first_seconds, self.every_seconds))
        while True:
            try:
                report = await self._check(source, table)
            except MemoryIndexError as error:
                _log.warning("index not checked", reason=error.reason, message=error.message)
            else:
                self._record(report, metrics)
            await asyncio.sleep(self.every_seconds)

    async def _check(self, source: DsnSource, table: str) -> IndexReport:
        async with opened_session(source, "memory-index-care") as connection:
            found = await require_schema(connection, table)
            return await check_and_repair(
                connection, found, self.parameters, sample=DEFAULT_SAMPLE, repair_below=self.threshold
            )

    def _record(self, report: IndexReport, metrics: WorkerMetrics) -> None:
        if report.recall is None:
            return
        reached = report.recall if report.recall_after_repair is None else report.recall_after_repair
        metrics.index_recall.set(reached)
        if report.recall_after_repair is not None:
            _log.warning("index rebuilt", recall_before=round(report.recall, 3), recall_after=round(reached, 3))
        self.threshold = next_threshold(self.threshold, report)
