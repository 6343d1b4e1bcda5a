"""`memory backfill` and `memory sync`: the commands that embed rows."""

import asyncio
import sys
from contextlib import AbstractContextManager
from functools import partial
from typing import Annotated, Any

import typer

from memory_recall.cli.output import JsonOption, emit, execute
from memory_recall.errors import ExitCode
from memory_recall.hnsw.repair import IndexParameters
from memory_recall.indexing.backfill import BackfillResult, backfill
from memory_recall.indexing.companions.graph_filling import maintain_graph
from memory_recall.indexing.companions.index_check import IndexChecker
from memory_recall.indexing.companions.sweeping import sweep_hashes
from memory_recall.indexing.companions.warming import Warmer
from memory_recall.indexing.dry_run import dry_run
from memory_recall.indexing.embedders import directory_of, document_embedder
from memory_recall.indexing.progress import BarProgress, LogProgress, Tally, WorkerMetrics
from memory_recall.indexing.readiness import Readiness
from memory_recall.indexing.sync import sync
from memory_recall.indexing.worker import WorkerPlan, run_until_stopped
from memory_recall.settings import Settings
from memory_recall.swap.standby import maintain_standby

_POLL_SECONDS = 30.0
_INDEX_CHECK_SECONDS = 86_400.0
INDEX_MIN_RECALL = 0.85  # of the true neighbours; below it the vector index is built anew


def register(app: typer.Typer) -> None:
    """Add `memory backfill` and `memory sync` to the command line."""
    app.command("backfill")(backfill_command)
    app.command("sync")(sync_command)


def backfill_command(
    without_writing: Annotated[
        bool, typer.Option("--dry-run", help="Embed but write nothing: measures the embedder's own throughput.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="How many rows a dry run embeds.")] = 500,
    json: JsonOption = False,
) -> None:
    """Embed every pending row, then end. The command can be stopped, killed and started again at any time.

    Examples:
        memory backfill
        memory backfill --dry-run --limit 1000
        MEMORY_BACKFILL_PARTITIONS=4 JOB_COMPLETION_INDEX=2 memory backfill --json
    """
    as_json = json or not sys.stdout.isatty()
    if without_writing:
        emit(execute(lambda settings: _dry_run(settings, limit), as_json=as_json), as_json=as_json, title="Dry run")
        return
    result = execute(_backfill, as_json=as_json)
    emit(_report(result), as_json=as_json, title="Backfill")
    if not result.complete:
        raise typer.Exit(int(ExitCode.FAILURE))


def sync_command(json: JsonOption = False) -> None:
    """Embed rows as they are written, until SIGTERM or SIGINT. Batches that are under way then are finished first.

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


def _progress(metrics: WorkerMetrics, worker: str) -> AbstractContextManager[BarProgress | LogProgress]:
    if sys.stderr.isatty():
        return BarProgress(metrics, worker=worker)
    return LogProgress(metrics, worker=worker)


async def _backfill(settings: Settings) -> BackfillResult:
    metrics = WorkerMetrics()
    metrics.serve(settings.metrics_port)
    plan, source = WorkerPlan.from_settings(settings, partitioned=True), settings.dsn()
    with _progress(metrics, "backfill") as progress:
        async with document_embedder(settings, progress) as embedder:
            return await run_until_stopped(lambda stop: backfill(source, embedder, plan, progress=progress, stop=stop))


async def _sync(settings: Settings) -> dict[str, Any]:
    metrics, readiness = WorkerMetrics(), Readiness()
    metrics.serve(settings.metrics_port, is_ready=readiness.is_ready)
    plan, source = WorkerPlan.from_settings(settings, partitioned=False), settings.dsn()
    progress = LogProgress(metrics, worker="sync")
    parameters = IndexParameters(settings.index.m, settings.index.ef_construction)
    checker = IndexChecker(parameters, INDEX_MIN_RECALL, _INDEX_CHECK_SECONDS)

    async with (
        document_embedder(settings, readiness.watched(progress)) as embedder,
        directory_of(settings, embedder, progress) as directory,
    ):

        async def work(stop: asyncio.Event) -> Tally:
            return await sync(
                source,
                directory,
                plan,
                poll_seconds=_POLL_SECONDS,
                progress=progress,
                stop=stop,
                readiness=readiness,
                companions=(
                    partial(maintain_standby, source, directory, plan, progress),
                    partial(maintain_graph, source, plan, progress),
                    partial(checker.run, source, plan.table, metrics),
                    partial(sweep_hashes, source, plan.table, progress),
                    Warmer(source, plan, progress, metrics).run,
                ),
            )

        tally = await run_until_stopped(work)
    return {"embedded": tally.embedded, "truncated": tally.truncated, "quarantined": tally.quarantined}


async def _dry_run(settings: Settings, limit: int) -> dict[str, Any]:
    plan = WorkerPlan.from_settings(settings, partitioned=False)
    progress = LogProgress(WorkerMetrics(), worker="dry-run")
    async with document_embedder(settings, progress) as embedder:
        result = await dry_run(settings.dsn(), embedder, plan, limit=limit, progress=progress)
    return {
        "dry_run": True,
        "documents": result.documents,
        "tokens": result.tokens,
        "truncated": result.truncated,
        "failed": result.failed,
        "seconds": round(result.seconds, 3),
        "documents_per_second": round(result.documents / result.seconds, 3) if result.seconds else 0.0,
    }
