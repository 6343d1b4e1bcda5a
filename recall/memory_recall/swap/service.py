"""What the swap commands do; apart from their declarations, so that `memory --help` need not import it."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memory_recall import logs
from memory_recall.cli.workers import until_stopped, worker_plan
from memory_recall.embedding.address_policy import trusted
from memory_recall.embedding.client import EmbedderClient
from memory_recall.embedding.profiles import PROFILES
from memory_recall.errors import EmbedderUnavailable, InvalidInput, NoSwap, SwapRefused
from memory_recall.evaluation.evaluate import Question
from memory_recall.evaluation.questions import read_questions
from memory_recall.hnsw.repair import IndexParameters
from memory_recall.indexing import leases
from memory_recall.indexing.backfill import backfill
from memory_recall.indexing.embedder_directory import EmbedderDirectory
from memory_recall.indexing.embedder_factory import connector
from memory_recall.indexing.metrics import WorkerMetrics
from memory_recall.postgres.connection import Connection, connect, require_session
from memory_recall.schema.models_sql import ActiveModel, ServedModel, active_model, read_roles
from memory_recall.schema.revisions import require_schema
from memory_recall.schema.table import MemoryTable
from memory_recall.settings import Settings
from memory_recall.status import inspect
from memory_recall.swap import facts_sql, state_sql
from memory_recall.swap.machine import OPEN_STAGES, Fill, Stage
from memory_recall.swap.process import Measure, SwapOrder, SwapProcess
from memory_recall.swap.progress import SwapProgress
from memory_recall.swap.state_sql import NextModel, SwapRecord

_RATE_BATCH = 16
_BYTES_PER_DIMENSION = 2
_VECTOR_HEADER = 8
_INDEX_SHARE = 1.3  # of the vectors' own size: an HNSW index holds each vector and its neighbours


@dataclass(frozen=True)
class Gate:
    """The labelled questions' files and the drop that is tolerated."""

    queries: Path
    qrels: Path | None
    max_drop: float

    def questions(self) -> list[Question]:
        """Read them before anything is begun."""
        return read_questions(self.queries, self.qrels)


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[tuple[Connection, MemoryTable]]:
    connection = await connect(settings.dsn(), application_name="memory-swap")
    try:
        await require_session(connection)
        yield connection, await require_schema(connection, settings.table)
    finally:
        connection.terminate()


async def plan(settings: Settings, *, model: str, url: str, sample: int) -> dict[str, Any]:
    """What a swap would take."""
    async with connector(settings)(url, model) as client:
        target = await _target(client, model)
        async with _opened(settings) as (connection, table):
            active = await active_model(connection, table)
            open_swap = await state_sql.latest(connection, table)
            rows = (await inspect(connection, settings.table)).rows
            texts = await facts_sql.sample_texts(connection, table, sample)
        rate = await _rate(client, texts)
    to_embed = rows.embedded + rows.pending + rows.quarantined
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


async def start(settings: Settings, *, model: str, url: str, gate: Gate | None, flip: bool) -> dict[str, Any]:
    """Begin a swap, or go on with it.

    Raises:
        SwapRefused: the next model did not pass.
    """
    logs.configure(settings)
    questions = gate.questions() if gate else None
    async with connector(settings)(url, model) as client:
        target = await _target(client, model)

        async def judged(_swap: SwapRecord) -> Any:  # noqa: ANN401  (see Measure)
            from memory_recall.swap.measuring import measure

            async with _active_embedder(settings, client) as active:
                return await measure(
                    settings.dsn(),
                    settings.table,
                    questions or [],
                    active=active,
                    following=client,
                    max_drop=gate.max_drop if gate else 0.0,
                )

        return await _carry_out(settings, client, target, measure=judged if gate else None, flip=flip)


async def roll_back(settings: Settings, *, url: str) -> dict[str, Any]:
    """Swap back to the previous model."""
    logs.configure(settings)
    async with _opened(settings) as (connection, table):
        swap = await state_sql.latest(connection, table)
    if swap is None or not (swap.stage == Stage.FLIPPED or (swap.way_back and Stage(swap.stage) in OPEN_STAGES)):
        raise NoSwap("There is no flipped swap to take back.", "Swap to the other model with memory swap start.")
    previous = swap.to_model if swap.way_back and swap.stage != Stage.FLIPPED else swap.from_model
    async with connector(settings)(url, previous.name) as client:
        await _require_served(client, previous)
        return await _carry_out(settings, client, None, measure=None, flip=True)


async def status(settings: Settings) -> dict[str, Any]:
    """The last swap and how far it is."""
    async with _opened(settings) as (connection, table):
        roles = await read_roles(connection, table)
        swap = await state_sql.latest(connection, table)
        fill = await facts_sql.read_fill(connection, table)
        valid = await facts_sql.index_valid(connection, table)
    return {"active": roles.active.name, "next": roles.next.name if roles.next else None, **_report(swap, fill, valid)}


async def end(settings: Settings, stage: str) -> dict[str, Any]:
    """Abort before the flip, or finish after it.

    Raises:
        NoSwap: the swap is not where this could be done.
        SwapInProgress: a process carries it out at this moment.
    """
    async with _opened(settings) as (connection, table):
        await leases.lease_swap(connection)
        swap = await state_sql.latest(connection, table)
        wanted = OPEN_STAGES if stage == Stage.ABORTED else frozenset({Stage.FLIPPED})
        if swap is None or Stage(swap.stage) not in wanted:
            now = swap.stage if swap else "never begun"
            remedy = "See memory swap status: abort is for before the flip, finish and rollback for after it."
            raise NoSwap(f"The swap is {now}; it cannot be {stage}.", remedy)
        await state_sql.end(connection, table, swap, stage, patience=settings.migrate_lock_timeout)
    return await status(settings)


async def _rate(client: EmbedderClient, texts: list[str]) -> float:
    """Texts a second, asked in batches one after another; a swap asks several at a time, so it is rather faster."""
    began = time.monotonic()
    for start_at in range(0, len(texts), _RATE_BATCH):
        await client.embed_documents(texts[start_at : start_at + _RATE_BATCH])
    return len(texts) / max(time.monotonic() - began, 1e-9)


async def _target(client: EmbedderClient, model: str) -> NextModel:
    info = await client.model_info()
    if info.name != model:
        raise InvalidInput(f"The embedder at {client.base_url} serves {info.name}, not {model}.", "Name that model.")
    known = PROFILES.get(model)
    return NextModel(
        name=info.name,
        dimensions=info.dimensions,
        digest=info.digest,
        pooling=info.pooling,
        max_tokens=info.max_tokens,
        query_prefix=known.query_prefix if known else "",
        document_prefix=known.document_prefix if known else "",
        embedder_url=client.base_url,
    )


async def _require_served(client: EmbedderClient, model: ActiveModel) -> None:
    info = await client.model_info()
    model.require_same(ServedModel(info.name, info.dimensions, info.digest))


@asynccontextmanager
async def _active_embedder(settings: Settings, following: EmbedderClient) -> AsyncIterator[EmbedderClient]:
    """The active model's embedder: where the database says that it is served, else the configured one."""
    async with _opened(settings) as (connection, table):
        active = await active_model(connection, table)
    url, hosts = active.embedder_url, settings.trusted_hosts()
    if url is None or not any(trusted(near, url, hosts) for near in (following.base_url, settings.embedder_url or "")):
        url = settings.embedder_url if settings.model == active.name else None
    if url is None:
        raise EmbedderUnavailable(
            f"It is not known where the active model {active.name} is served.",
            "Set MEMORY_MODEL and MEMORY_EMBEDDER_URL to it.",
        )
    async with connector(settings)(url, active.name) as client:
        yield client


async def _carry_out(
    settings: Settings, client: EmbedderClient, target: NextModel | None, *, measure: Measure | None, flip: bool
) -> dict[str, Any]:
    metrics = WorkerMetrics()
    metrics.serve(settings.metrics_port)
    worker, source = worker_plan(settings, partitioned=False), settings.dsn()
    order = SwapOrder(
        target=target,
        worker=worker,
        index=IndexParameters(settings.index_m, settings.index_ef_construction, settings.index_maintenance_memory),
        flip=flip,
        patience=settings.migrate_lock_timeout,
    )
    began = time.monotonic()
    with SwapProgress(metrics) as progress:

        async def work(stop: asyncio.Event) -> SwapRecord:
            hosts = settings.trusted_hosts()
            name = client.model or ""
            async with EmbedderDirectory(
                client, connector(settings), model=name, url=client.base_url, trusted_hosts=hosts
            ) as directory:
                process = SwapProcess(
                    source, directory, order, measure=measure, progress=progress, stop=stop, observe=progress.observe
                )
                swap = await process.run()
            if swap.stage == Stage.FLIPPED:  # the rows of the last moments, where no sync worker runs
                await backfill(source, client, worker, progress=progress, stop=stop)
            return swap

        swap = await until_stopped(work)
    if swap.stage == Stage.REFUSED:
        raise SwapRefused(
            f"{swap.to_model.name} was refused: {swap.message}",
            "Recalls go on with the active model. Drop the second column with memory swap abort, or try another model.",
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
            "embedded": fill.wanted - fill.pending - fill.quarantined,
            "pending": fill.pending,
            "quarantined": fill.quarantined,
            "index_valid": index_valid,
        },
        "gate": swap.gate,
        "started_at": swap.started_at,
        "flipped_at": swap.flipped_at,
    }
