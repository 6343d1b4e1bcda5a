"""What a worker says while it works: a bar with a time to go on a terminal, log events and metrics in a cluster.

Only numbers, names and classes of errors are ever said here.
"""

import time
from types import TracebackType
from typing import Protocol, Self

import structlog
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from memory_recall.errors import MemoryIndexError
from memory_recall.indexing.metrics import WorkerMetrics
from memory_recall.indexing.tally import Tally

_LOG_INTERVAL = 5.0


class Progress(Protocol):
    """Who is told how far the work is."""

    def started(self, total: int) -> None:
        """So many rows are to be embedded."""
        ...

    def advanced(self, tally: Tally) -> None:
        """The work has come so far."""
        ...

    def outage_began(self, what: str, error: MemoryIndexError) -> None:
        """The database or the embedder has gone away."""
        ...

    def outage_ended(self, what: str, seconds: float) -> None:
        """It is back."""
        ...


class LogProgress:
    """Log events, at most one every few seconds, and metrics."""

    def __init__(self, metrics: WorkerMetrics, *, worker: str) -> None:
        self._log = structlog.get_logger(worker)
        self._metrics = metrics
        self._began = time.monotonic()
        self._logged_at = self._began
        self._total = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def started(self, total: int) -> None:
        """Log how much there is."""
        self._total = total
        self._began = time.monotonic()
        self._metrics.pending.set(total)
        self._log.info("started", rows=total)

    def advanced(self, tally: Tally) -> None:
        """Count, and log now and then."""
        self._metrics.observe(tally, self._total)
        now = time.monotonic()
        if now - self._logged_at < _LOG_INTERVAL:
            return
        self._logged_at = now
        rate = tally.embedded / max(now - self._began, 1e-9)
        left = max(self._total - tally.embedded - tally.changed - tally.quarantined, 0)
        self._log.info(
            "progress",
            embedded=tally.embedded,
            quarantined=tally.quarantined,
            rows_per_second=round(rate, 2),
            eta_seconds=round(left / rate) if rate > 0 else None,
        )

    def outage_began(self, what: str, error: MemoryIndexError) -> None:
        """Log the reason once."""
        self._metrics.outages.labels(what).inc()
        self._log.warning("waiting", what=what, reason=error.reason, message=error.message)

    def outage_ended(self, what: str, seconds: float) -> None:
        """Log that it is over."""
        self._log.info("continuing", what=what, waited_seconds=round(seconds, 2))


class BarProgress:
    """A progress bar on standard error."""

    def __init__(self, metrics: WorkerMetrics, *, worker: str) -> None:
        self._metrics = metrics
        self._console = Console(stderr=True)
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
        )
        self._task = self._bar.add_task(worker, total=None, rate="")
        self._began = time.monotonic()
        self._total = 0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def started(self, total: int) -> None:
        """Set the bar's length."""
        self._total = total
        self._began = time.monotonic()
        self._bar.update(self._task, total=total)

    def advanced(self, tally: Tally) -> None:
        """Move the bar."""
        self._metrics.observe(tally, self._total)
        done = tally.embedded + tally.changed + tally.quarantined
        rate = tally.embedded / max(time.monotonic() - self._began, 1e-9)
        self._bar.update(self._task, completed=done, total=max(self._total, done), rate=f"{rate:,.1f} rows/s")

    def outage_began(self, what: str, error: MemoryIndexError) -> None:
        """Say the reason above the bar."""
        self._metrics.outages.labels(what).inc()
        self._console.print(f"Waiting for the {what}: {error.message}", markup=False)

    def outage_ended(self, what: str, seconds: float) -> None:
        """Say that it is over."""
        self._console.print(f"The {what} is back after {seconds:.1f} s.", markup=False)
