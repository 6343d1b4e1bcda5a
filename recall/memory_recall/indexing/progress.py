"""Reports a worker's progress in counts, Prometheus metrics and log events, and in a progress bar on a terminal.

Only numbers, names and classes of errors are reported. The names of all metrics start with `memory_`, as those of the
embedder do.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Protocol, Self
from weakref import WeakKeyDictionary

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from memory_recall.errors import EmbedderUnauthorized, MemoryIndexError
from memory_recall.indexing.waits import Waits, lacking
from memory_recall.metrics_server import MetricsServer
from memory_recall.retrying import Awaited, OutageListener

_LOG_INTERVAL = 5.0


@dataclass(eq=False)
class Tally:
    """What one pipeline of a worker has done since it started.

    `tokens` counts tokens and `failed_batches` counts batches; all other fields count rows. `changed` counts the rows
    whose vector was not stored because they were edited, marked sensitive, deleted or locked meanwhile.
    """

    read: int = 0
    embedded: int = 0
    changed: int = 0
    truncated: int = 0
    failed: int = 0
    quarantined: int = 0
    failed_batches: int = 0
    tokens: int = 0

    @property
    def done(self) -> int:
        """The number of rows that were embedded, changed or quarantined."""
        return self.embedded + self.changed + self.quarantined


class WorkerMetrics:
    """Prometheus counters and gauges of one worker process, by default in a registry of their own."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self._rows = Counter(
            "memory_worker_rows", "Rows that a worker finished, by what became of them.", ["result"],
            registry=self.registry,
        )  # fmt: skip
        self._tokens = Counter("memory_worker_tokens", "Tokens that were embedded.", registry=self.registry)
        self._truncated = Counter(
            "memory_worker_truncated", "Rows whose text was longer than the model takes.", registry=self.registry
        )
        self._failed_batches = Counter(
            "memory_worker_failed_batches", "Requests that failed and were halved.", registry=self.registry
        )
        self._pending = Gauge(
            "memory_worker_pending_rows", "Rows still to embed; only of workers that end when none is left.",
            ["worker"], registry=self.registry,
        )  # fmt: skip
        self._outages = Counter(
            "memory_worker_outages", "Reports that a worker waits for something that is away or taken.", ["what"],
            registry=self.registry,
        )  # fmt: skip
        for what in Awaited:  # from the start, because Prometheus does not notice the first increment of a new series
            self._outages.labels(what)
        self._waits = Waits()
        self._show_waits()
        self._unauthorized = Gauge(
            "memory_worker_unauthorized", "1 while rows wait because the embedder's API key is lost or refused.",
            registry=self.registry,
        )  # fmt: skip
        self.index_recall = Gauge(
            "memory_worker_index_recall", "Share of the true neighbours that the index found; NaN before a sample.",
            registry=self.registry,
        )  # fmt: skip
        self.warmed = Gauge(
            "memory_worker_warmed", "Share that was read ahead of what is to be; NaN in other workers.",
            registry=self.registry,
        )  # fmt: skip
        for unmeasured in (self.index_recall, self.warmed):  # by other workers and before the first measurement
            unmeasured.set(math.nan)
        self._seen: WeakKeyDictionary[Tally, Tally] = WeakKeyDictionary()
        self._started: tuple[str, int] | None = None

    def _show_waits(self) -> None:
        """Have a gauge say what the worker waits for, which is computed when it is asked."""
        waiting = Gauge(
            "memory_worker_waiting", "1 while attempts fail for want of this; a busy embedder is not away.",
            ["what"], registry=self.registry,
        )  # fmt: skip
        for what in Awaited:
            waiting.labels(what).set_function(partial(self._waits_for, what))

    def _waits_for(self, what: Awaited) -> float:
        return float(what in self._waits.current())

    def started(self, worker: str, total: int) -> None:
        """Set the gauge of pending rows, which only a worker has that counts its rows before it begins."""
        self._started = worker, total
        self._pending.labels(worker).set(total)

    def observe(self, tally: Tally) -> None:
        """Increase the counters by what was added to the tally since it was last observed.

        A process may have several: each pipeline counts in its own, and anew where it starts again after an outage.
        """
        seen = self._seen.get(tally, Tally())
        for result in ("embedded", "changed", "failed", "quarantined"):
            self._rows.labels(result).inc(getattr(tally, result) - getattr(seen, result))
        self._tokens.inc(tally.tokens - seen.tokens)
        self._truncated.inc(tally.truncated - seen.truncated)
        self._failed_batches.inc(tally.failed_batches - seen.failed_batches)
        self._seen[tally] = replace(tally)
        if self._started is not None:
            worker, total = self._started
            self._pending.labels(worker).set(max(total - tally.done, 0))

    def outage_began(self, what: Awaited, error: MemoryIndexError) -> None:
        """Count an outage, and report whether the embedder's API key is the cause."""
        self._outages.labels(lacking(what, error)).inc()
        if what is Awaited.EMBEDDER:
            self._unauthorized.set(isinstance(error, EmbedderUnauthorized))

    def outage_ended(self, what: Awaited) -> None:
        """Report that the embedder accepts the API key, if it is the embedder that answers again."""
        if what is Awaited.EMBEDDER:
            self._unauthorized.set(0)

    def attempt_failed(self, what: Awaited, error: MemoryIndexError, wait: object) -> None:
        """Record that an attempt failed now, so that the worker waits."""
        self._waits.attempt_failed(what, error, wait)

    def wait_ended(self, wait: object) -> None:
        """Record that this wait of the worker is over."""
        self._waits.ended(wait)

    def serve(self, port: int, *, is_ready: Callable[[], bool] | None = None) -> None:
        """Serve the metrics over HTTP on `port` until the process ends, or do nothing if the port is 0.

        With `is_ready`, whether the worker is ready is answered there, too.
        """
        if port:
            MetricsServer(self.registry, port, is_ready=is_ready)


class Progress(OutageListener, Protocol):
    """A listener that is told how far the work is, and when the database, the embedder or a lease is unavailable."""

    def started(self, total: int) -> None:
        """Report the number of rows to embed."""
        ...

    def advanced(self, tally: Tally) -> None:
        """Report what has been done so far."""
        ...


class LogProgress:
    """Reports a worker's progress in metrics, and in a log event every few seconds at most."""

    def __init__(self, metrics: WorkerMetrics, *, worker: str) -> None:
        self._log = structlog.get_logger(f"memory_recall.{worker}")
        self._worker = worker
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
        """Log the number of rows to embed."""
        self._total = total
        self._began = time.monotonic()
        self._metrics.started(self._worker, total)
        self._log.info("started", rows=total)

    def advanced(self, tally: Tally) -> None:
        """Update the metrics. If the last log event is some seconds old, log the rate and the remaining time."""
        self._metrics.observe(tally)
        now = time.monotonic()
        if now - self._logged_at < _LOG_INTERVAL:
            return
        self._logged_at = now
        rate = tally.embedded / max(now - self._began, 1e-9)
        left = max(self._total - tally.done, 0)
        self._log.info(
            "progress",
            embedded=tally.embedded,
            quarantined=tally.quarantined,
            rows_per_second=round(rate, 2),
            eta_seconds=round(left / rate) if rate > 0 else None,
        )

    def outage_began(self, what: Awaited, error: MemoryIndexError) -> None:
        """Log why the worker waits."""
        self._metrics.outage_began(what, error)
        self._log.warning("waiting", what=what, reason=error.reason, message=error.message)

    def outage_ended(self, what: Awaited, seconds: float) -> None:
        """Log that the worker continues, and for how long it has waited."""
        self._metrics.outage_ended(what)
        self._log.info("continuing", what=what, waited_seconds=round(seconds, 2))

    def attempt_failed(self, what: Awaited, error: MemoryIndexError, wait: object) -> None:
        """Show in the metrics that the worker waits."""
        self._metrics.attempt_failed(what, error, wait)

    def wait_ended(self, wait: object) -> None:
        """Show in the metrics that the worker no longer waits."""
        self._metrics.wait_ended(wait)


class ShownBar:
    """A context manager that shows a progress bar until its block ends."""

    _bar: Bar

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()


class BarProgress(ShownBar):
    """Reports a worker's progress in metrics and in a progress bar on standard error."""

    def __init__(self, metrics: WorkerMetrics, *, worker: str) -> None:
        self._metrics = metrics
        self._worker = worker
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

    def started(self, total: int) -> None:
        """Set the bar's total to the number of rows to embed."""
        self._total = total
        self._began = time.monotonic()
        self._metrics.started(self._worker, total)
        self._bar.update(self._task, total=total)

    def advanced(self, tally: Tally) -> None:
        """Update the metrics, advance the bar and show the rate."""
        self._metrics.observe(tally)
        rate = tally.embedded / max(time.monotonic() - self._began, 1e-9)
        self._bar.update(
            self._task, completed=tally.done, total=max(self._total, tally.done), rate=f"{rate:,.1f} rows/s"
        )

    def outage_began(self, what: Awaited, error: MemoryIndexError) -> None:
        """Print above the bar why the worker waits."""
        self._metrics.outage_began(what, error)
        self._console.print(f"Waiting for the {what}: {error.message}", markup=False)

    def outage_ended(self, what: Awaited, seconds: float) -> None:
        """Print that the outage has ended, and how long it lasted."""
        self._metrics.outage_ended(what)
        self._console.print(f"Continuing after {seconds:.1f} s of waiting for the {what}.", markup=False)

    def attempt_failed(self, what: Awaited, error: MemoryIndexError, wait: object) -> None:
        """Show in the metrics that the worker waits."""
        self._metrics.attempt_failed(what, error, wait)

    def wait_ended(self, wait: object) -> None:
        """Show in the metrics that the worker no longer waits."""
        self._metrics.wait_ended(wait)
