"""`memory backfill` and `memory sync`."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Annotated, Any, TypeVar

import typer

from memory_recall import logs
from memory_recall.cli.output import JsonOption, emit, execute
from memory_recall.embedding.profiles import PROFILES
from memory_recall.errors import ExitCode, InvalidConfiguration, MemoryIndexError
from memory_recall.hnsw.repair import IndexParameters
from memory_recall.indexing.backfill import BackfillResult, WorkerPlan, backfill
from memory_recall.indexing.batching import BatchLimits
from memory_recall.indexing.dry_run import rehearse
from memory_recall.indexing.embedder_factory import directory_of, document_embedder
from memory_recall.indexing.index_check import IndexCare
from memory_recall.indexing.metrics import WorkerMetrics
from memory_recall.indexing.pipeline import PipelineOptions
from memory_recall.indexing.progress import BarProgress, LogProgress
from memory_recall.indexing.quarantine_sql import RetryPolicy
from memory_recall.indexing.queue_sql import Partition
from memory_recall.indexing.sync import sync
from memory_recall.indexing.tally import Tally
from memory_recall.settings import Settings

T = TypeVar("T")
_GRACE_SECONDS = 20.0
_DEFAULT_MAX_TOKENS = 512


class Interrupted(MemoryIndexError):  # noqa: N818  (the class name is the reason that users read)
    """The worker was told to end before its work was done; what was finished is stored."""

    reason = "Interrupted"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("backfill")(backfill_command)
    app.command("sync")(sync_command)


def backfill_command(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Embed but write nothing: measures the embedder's own throughput.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="How many rows a dry run embeds.")] = 500,
    json: JsonOption = False,
) -> None:
    """Embed every pending row and end. It can be stopped, killed and started again at any time.

    Examples:
        memory backfill
        memory backfill --dry-run --limit 1000
        MEMORY_BACKFILL_PARTITIONS=4 JOB_COMPLETION_INDEX=2 memory backfill --json
    """
    as_json = json or not sys.stdout.isatty()
    if dry_run:
        emit(execute(lambda settings: _rehearse(settings, limit), as_json=as_json), as_json=as_json, title="Dry run")
        return
    result = execute(_backfill, as_json=as_json)
    emit(_report(result), as_json=as_json, title="Backfill")
    if not result.complete:
        raise typer.Exit(int(ExitCode.FAILURE))


def sync_command(json: JsonOption = False) -> None:
    """Embed rows as they are written, until a SIGTERM; ends cleanly, with everything finished that was begun.

    Examples:
        memory sync
    """
    as_json = json or not sys.stdout.isatty()
    emit(execute(_sync, as_json=as_json), as_json=as_json, title="Sync")


def _report(result: BackfillResult) -> dict[str, Any]:
    tally = result.tally
    return {
        "embedded": tally.embedded,
        "truncated": tally.truncated,
        "quarantined": tally.quarantined,
        "failed_batches": tally.failed_batches,
        "changed": tally.changed,
        "tokens": tally.tokens,
        "seconds": round(result.seconds, 3),
        "rows_per_second": round(result.rows_per_second, 3),
        "complete": result.complete,
    }


def worker_plan(settings: Settings, *, partitioned: bool) -> WorkerPlan:
    """How a worker reads, embeds and writes, as the settings say.

    Raises:
        InvalidConfiguration: the partition does not exist.
    """
    if settings.partition >= settings.backfill_partitions and partitioned:
        raise InvalidConfiguration(
            f"Partition {settings.partition} does not exist among {settings.backfill_partitions}.",
            "Set MEMORY_BACKFILL_PARTITIONS to the Job's completions.",
        )
    known = PROFILES.get(settings.model)
    return WorkerPlan(
        table=settings.table,
        outage_timeout=settings.outage_timeout,
        options=PipelineOptions(
            limits=BatchLimits(
                tokens=settings.backfill_batch_tokens,
                rows=settings.backfill_batch_size,
                max_tokens_per_row=known.max_tokens if known else _DEFAULT_MAX_TOKENS,
            ),
            partition=Partition(settings.partition, settings.backfill_partitions) if partitioned else Partition(),
            policy=RetryPolicy(settings.backfill_max_attempts, settings.backfill_retry_seconds),
            concurrency=settings.backfill_concurrency,
            rows_per_second=settings.backfill_rows_per_second,
        ),
    )


def _progress(metrics: WorkerMetrics, worker: str) -> AbstractContextManager[BarProgress | LogProgress]:
    if sys.stderr.isatty():
        return BarProgress(metrics, worker=worker)
    return LogProgress(metrics, worker=worker)


async def until_stopped(work: Callable[[asyncio.Event], Awaitable[T]]) -> T:
    """Run a worker that a signal asks to end; one that does not end in time, or is asked twice, is cut off."""
    stop = asyncio.Event()
    task = asyncio.ensure_future(work(stop))
    loop = asyncio.get_running_loop()

    def asked() -> None:
        if stop.is_set():
            task.cancel()
        stop.set()
        loop.call_later(_GRACE_SECONDS, task.cancel)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked)
    try:
        return await task
    except asyncio.CancelledError:
        if not stop.is_set():
            raise
    raise Interrupted("The worker was cut off while it waited.", "Start it again; finished work is kept.")


async def _backfill(settings: Settings) -> BackfillResult:
    logs.configure(settings)
    metrics = WorkerMetrics()
    metrics.serve(settings.metrics_port)
    plan, source = worker_plan(settings, partitioned=True), settings.dsn()
    with _progress(metrics, "backfill") as progress:
        async with document_embedder(settings, progress) as embedder:
            return await until_stopped(lambda stop: backfill(source, embedder, plan, progress=progress, stop=stop))


async def _sync(settings: Settings) -> dict[str, Any]:
    logs.configure(settings)
    metrics = WorkerMetrics()
    metrics.serve(settings.metrics_port)
    plan, source = worker_plan(settings, partitioned=False), settings.dsn()
    progress = LogProgress(metrics, worker="sync")
    parameters = IndexParameters(settings.index_m, settings.index_ef_construction, settings.index_maintenance_memory)
    care = IndexCare(parameters, settings.index_min_recall, settings.index_check_seconds)

    async with document_embedder(settings, progress) as embedder, directory_of(settings, embedder) as directory:

        async def work(stop: asyncio.Event) -> Tally:
            caring = asyncio.create_task(care.run(source, plan.table, metrics))
            try:
                return await sync(
                    source, directory, plan, poll_seconds=settings.sync_poll_seconds, progress=progress, stop=stop
                )
            finally:
                caring.cancel()
                await asyncio.wait([caring])

        tally = await until_stopped(work)
    return {"embedded": tally.embedded, "truncated": tally.truncated, "quarantined": tally.quarantined}


async def _rehearse(settings: Settings, limit: int) -> dict[str, Any]:
    logs.configure(settings)
    plan = worker_plan(settings, partitioned=False)
    progress = LogProgress(WorkerMetrics(), worker="rehearsal")
    async with document_embedder(settings, progress) as embedder:
        result = await rehearse(settings.dsn(), embedder, plan, limit=limit, progress=progress)
    return {
        "dry_run": True,
        "documents": result.documents,
        "tokens": result.tokens,
        "truncated": result.truncated,
        "failed": result.failed,
        "seconds": round(result.seconds, 3),
        "documents_per_second": round(result.documents / result.seconds, 3) if result.seconds else 0.0,
    }
