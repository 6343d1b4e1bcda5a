"""The operations on a swap: plan, start, roll back, report, abort and finish."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from memory_recall.embedding.apis import OWN_OPTIONS, EmbedderOptions
from memory_recall.embedding.served_model import ServedModel
from memory_recall.errors import Interrupted, NoSwap, SwapRefused, SwapUndecided
from memory_recall.evaluation.evaluate import Question
from memory_recall.evaluation.questions import read_questions
from memory_recall.hnsw.repair import IndexParameters
from memory_recall.indexing import leases_sql
from memory_recall.indexing.backfill import backfill
from memory_recall.indexing.embedders import Embedder
from memory_recall.indexing.progress import WorkerMetrics
from memory_recall.indexing.queue_sql import PendingRow, sample_with_text, still_shareable
from memory_recall.indexing.sendable_rows import SendableRows
from memory_recall.indexing.stored_vectors import compare_with_stored
from memory_recall.indexing.worker import WorkerPlan, run_until_stopped
from memory_recall.postgres.connection import Connection
from memory_recall.postgres.session import opened_session
from memory_recall.retrying import Retrying
from memory_recall.schema.models_sql import active_model, read_roles
from memory_recall.schema.revisions import require_schema
from memory_recall.schema.table import STANDBY, MemoryTable
from memory_recall.settings import LOCK_SECONDS, Settings
from memory_recall.swap import state_sql
from memory_recall.swap.embedders import NextEmbedder, active_embedder, directory_of, target_of
from memory_recall.swap.gate import Verdict, measure
from memory_recall.swap.machine import OPEN_STAGES, Fill, Stage
from memory_recall.swap.process import Measure, SwapProcess, SwapProgress, SwapRequest
from memory_recall.swap.state_sql import SwapRecord

_RATE_BATCH = 16
_BYTES_PER_DIMENSION = 2
_VECTOR_HEADER = 8
_INDEX_SHARE = 1.3  # of the vectors' size; an HNSW index holds each vector and its neighbours


@dataclass(frozen=True)
class Gate:
    """The files of labelled questions on which both models are measured, and the tolerated drop of recall@10."""

    queries: Path
    qrels: Path | None
    max_drop: float

    def questions(self) -> list[Question]:
        """Read the labelled questions from the files."""
        return read_questions(self.queries, self.qrels)


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[tuple[Connection, MemoryTable]]:
    async with opened_session(settings.dsn(), "memory-swap") as connection:
        yield connection, await require_schema(connection, settings.table)


async def plan(settings: Settings, following: NextEmbedder, *, sample: int) -> dict[str, Any]:
    """Estimate the time and the disk space that a swap takes.

    To measure the rate, `sample` texts are embedded. None is sent beyond the cluster; that rate is not known.
    """
    async with following.connect(settings) as client:
        target = await target_of(client, following)
        async with _opened(settings) as (connection, table):
            active = await active_model(connection, table)
            open_swap = await state_sql.latest(connection, table)
            to_embed = await state_sql.count_shareable(connection, table)
            rows = [] if client.hosted else await sample_with_text(connection, table, sample)
            rate = await _rate(client, rows, _sendable_by(connection, table))
    vectors = to_embed * (target.dimensions * _BYTES_PER_DIMENSION + _VECTOR_HEADER)
    return {
        "active": {"model": active.name, "dimensions": active.dimensions},
        "next": {"model": target.name, "dimensions": target.dimensions, "digest": target.digest},
        "rows": to_embed,
        "rows_per_second": round(rate, 2),
        "fill_seconds": round(to_embed / rate) if rate else None,
        "megabytes": round(vectors * (1 + _INDEX_SHARE) / 1e6, 1),
        "open_swap": open_swap.stage if open_swap and Stage(open_swap.stage) in OPEN_STAGES else None,
    }


async def start(settings: Settings, following: NextEmbedder, *, gate: Gate | None, flip: bool) -> dict[str, Any]:
    """Start a swap to the model of an embedder, or continue that swap; return a report of the swap.

    Raises:
        SwapRefused: the next model was measured and refused, or its embedder refused too many rows.
        SwapUndecided: the questions are too few to tell whether the next model is worse than tolerated.
        ModelMismatch: an embedder serves another model file than the one that made the vectors of its column.
        EmbedderUnavailable: an embedder was away for longer than a worker waits.
        LockNotAvailable: other sessions used the table for longer than a swap waits.
        Interrupted: the process was told to end before the swap was done.
    """
    questions = gate.questions() if gate else None
    async with following.connect(settings) as client:
        target = await target_of(client, following)

        async def judge(swap: SwapRecord, retrying: Retrying) -> Verdict:
            swap.to_model.require_same(await retrying(client.model_info))
            async with active_embedder(settings, following, swap.from_model) as active:
                swap.from_model.require_same(await retrying(active.model_info))
                return await measure(
                    settings.dsn(),
                    settings.table,
                    questions or [],
                    active=active,
                    following=client,
                    max_drop=gate.max_drop if gate else 0.0,
                    retrying=retrying,
                )

        return await _carry_out(settings, following, client, target, measure=judge if gate else None, flip=flip)


async def roll_back(
    settings: Settings, *, url: str, api_key_file: Path | None, options: EmbedderOptions = OWN_OPTIONS
) -> dict[str, Any]:
    """Make the model active again that was before the last flip, and return a report of the swap.

    `url` is the address of an embedder that serves it, and `options` are those of that embedder. `api_key_file` is the
    file with the API key for `url`; with None, no key is sent there.
    """
    async with _opened(settings) as (connection, table):
        swap = await state_sql.latest(connection, table)
    if swap is None or not (swap.stage == Stage.FLIPPED or (swap.is_rollback and Stage(swap.stage) in OPEN_STAGES)):
        raise NoSwap("There is no flipped swap to take back.", "Swap to the other model with memory swap start.")
    previous = swap.to_model if swap.is_rollback and swap.stage != Stage.FLIPPED else swap.from_model
    following = NextEmbedder(previous.name, url, previous.dimensions, api_key_file, options)
    async with following.connect(settings) as client:
        served = await client.model_info()
        previous.require_same(served)
        async with _opened(settings) as (connection, table):
            await compare_with_stored(lambda work: work(connection), table, previous, served, client, STANDBY)
        return await _carry_out(settings, following, client, None, measure=None, flip=True)


async def status(settings: Settings) -> dict[str, Any]:
    """Return a report of the last swap.

    The report holds the stage, both models, the counts of rows with and without a vector of the model that is not
    active, and the last verdict.
    """
    async with _opened(settings) as (connection, table):
        roles = await read_roles(connection, table)
        swap = await state_sql.latest(connection, table)
        fill = await state_sql.read_fill(connection, table)
        valid = await state_sql.standby_index_valid(connection, table)
    return {
        "active": roles.active.name if roles.active else None,
        "next": roles.next.name if roles.next else None,
        **_report(swap, fill, valid),
    }


async def end(settings: Settings, stage: str) -> dict[str, Any]:
    """End the last swap, and return a report of it.

    `stage` is `aborted` to abort the swap before its flip, or `finished` to finish it afterwards.

    Raises:
        NoSwap: there is no swap that can be ended in this way.
        SwapInProgress: a process is carrying out the swap.
    """
    async with _opened(settings) as (connection, table):
        await leases_sql.lease_swap(connection, table)
        swap = await state_sql.latest(connection, table)
        wanted = OPEN_STAGES if stage == Stage.ABORTED else frozenset({Stage.FLIPPED})
        if swap is None or Stage(swap.stage) not in wanted:
            now = swap.stage if swap else "never begun"
            remedy = "See memory swap status: abort is for before the flip, finish and rollback for after it."
            raise NoSwap(f"The swap is {now}; it cannot be {stage}.", remedy)
        await state_sql.end(connection, table, swap, stage, give_up_after=LOCK_SECONDS)
    return await status(settings)


def _sendable_by(connection: Connection, table: MemoryTable) -> SendableRows:
    """Return an object that looks rows up on this connection, which nothing else may use, before it sends them."""

    async def run(work: Callable[[Connection], Awaitable[Any]]) -> Any:  # noqa: ANN401  (whatever the work returns)
        return await work(connection)

    return SendableRows(run, partial(still_shareable, table=table))


async def _rate(client: Embedder, rows: list[PendingRow], sendable: SendableRows) -> float:
    """Return how many texts a second the embedder embeds with one request at a time.

    A swap sends several requests at a time, so it may be faster.
    """
    began, embedded = time.monotonic(), 0
    for start_at in range(0, len(rows), _RATE_BATCH):
        sent, _ = await sendable.send(rows[start_at : start_at + _RATE_BATCH], client.embed_documents)
        embedded += len(sent)
    return embedded / max(time.monotonic() - began, 1e-9)


async def _carry_out(
    settings: Settings,
    following: NextEmbedder,
    client: Embedder,
    target: ServedModel | None,
    *,
    measure: Measure | None,
    flip: bool,
) -> dict[str, Any]:
    metrics = WorkerMetrics()
    metrics.serve(settings.metrics_port)
    worker, source = WorkerPlan.from_settings(settings, partitioned=False), settings.dsn()
    request = SwapRequest(
        target=target,
        worker=worker,
        index=IndexParameters(settings.index.m, settings.index.ef_construction),
        flip=flip,
        lock_seconds=LOCK_SECONDS,
    )
    began = time.monotonic()
    with SwapProgress(metrics) as progress:

        async def work(stop: asyncio.Event) -> SwapRecord:
            async with directory_of(settings, following, client) as directory:
                process = SwapProcess(
                    source, directory, request, measure=measure, progress=progress, stop=stop, observe=progress.observe
                )
                swap = await process.run()
            if swap.stage == Stage.FLIPPED:  # the rows of the last moments, where no sync worker runs
                await backfill(source, client, worker, progress=progress, stop=stop)
            return swap

        swap = await run_until_stopped(work)
    if swap.undecided:
        raise SwapUndecided(
            f"Nothing shows yet whether {swap.to_model.name} is good enough: {swap.message}",
            "Recalls go on with the active model. Start the swap again with more questions, tolerate a larger drop, or "
            "end it with memory swap abort.",
        )
    if swap.stage == Stage.REFUSED:
        raise SwapRefused(
            f"{swap.to_model.name} was refused: {swap.message}",
            "Recalls go on with the active model. Drop the second column with memory swap abort, or try another model.",
        )
    if Stage(swap.stage) in OPEN_STAGES and (flip or swap.stage != Stage.READY):
        raise Interrupted(
            f"It was told to end while the swap to {swap.to_model.name} was {swap.stage}.",
            "Start it again; finished work is kept.",
        )
    return {**await status(settings), "seconds": round(time.monotonic() - began, 3)}


def _report(swap: SwapRecord | None, fill: Fill, index_valid: bool) -> dict[str, Any]:
    if swap is None:
        return {"stage": None}
    return {
        "stage": swap.stage,
        "from": swap.from_model.name,
        "to": swap.to_model.name,
        "message": swap.message,
        "standby": {
            "rows": fill.wanted,
            "embedded": fill.wanted - fill.pending - fill.quarantined - fill.blank,
            "pending": fill.pending,
            "quarantined": fill.quarantined,
            "index_valid": index_valid,
        },
        "gate": swap.gate,
        "started_at": swap.started_at,
        "flipped_at": swap.flipped_at,
    }
