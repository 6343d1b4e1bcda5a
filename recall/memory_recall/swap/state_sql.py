"""Swaps as the database remembers them, and the transactions that move one on.

Every change of stage names the stage that it starts from, so two processes that believe in different pasts cannot both
succeed; and a unique index admits one open swap. The flip is one transaction: it holds the table for the milliseconds
in which both columns exchange names and the next model becomes the active one, after all that use the column have
ended and before any other begins. A recall therefore sees column and model of before, or of after, never a mixture.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg

from memory_recall.errors import LockNotAvailable, SwapInProgress
from memory_recall.postgres.connection import AnyConnection, Connection
from memory_recall.postgres.driver_errors import translated
from memory_recall.retrying import TABLE_LOCK_BACKOFF, caused_by, retry
from memory_recall.schema.models_sql import ActiveModel
from memory_recall.schema.table import MemoryTable
from memory_recall.schema.table_locks import wait_for_maintenance
from memory_recall.swap import standby_column


@dataclass(frozen=True)
class NextModel:
    """The model that is to take over, as its embedder and its profile describe it."""

    name: str
    dimensions: int
    digest: str | None
    pooling: str | None
    max_tokens: int | None
    query_prefix: str
    document_prefix: str
    embedder_url: str


@dataclass(frozen=True)
class SwapRecord:
    """One swap; `gate` is the verdict of its last measurement."""

    id: int
    stage: str
    from_model: ActiveModel
    to_model: ActiveModel
    gate: Mapping[str, Any] | None
    message: str
    started_at: datetime
    updated_at: datetime
    flipped_at: datetime | None
    way_back: bool = False


async def latest(connection: AnyConnection, table: MemoryTable) -> SwapRecord | None:
    """The open swap, else the last one; None where there never was one or the schema is older than swaps."""
    swaps, models = table.own("memory_index_swaps"), table.own("memory_index_models")
    with translated("reading the swap"):
        if await connection.fetchval("SELECT to_regclass($1)", swaps) is None:
            return None
        row = await connection.fetchrow(
            "SELECT w.*, row_to_json(f) AS was, row_to_json(t) AS becomes, "
            f"EXISTS (SELECT FROM {swaps} p WHERE p.id < w.id AND p.from_model = w.to_model) AS way_back "
            f"FROM {swaps} w "
            f"JOIN {models} f ON f.id = w.from_model JOIN {models} t ON t.id = w.to_model ORDER BY w.id DESC LIMIT 1"
        )
    if row is None:
        return None
    return SwapRecord(
        id=row["id"],
        stage=row["stage"],
        from_model=_model(row["was"]),
        to_model=_model(row["becomes"]),
        gate=json.loads(row["gate"]) if row["gate"] else None,
        message=row["message"],
        started_at=row["started_at"],
        updated_at=row["updated_at"],
        flipped_at=row["flipped_at"],
        way_back=row["way_back"],
    )


def _model(encoded: str) -> ActiveModel:
    given = json.loads(encoded)
    return ActiveModel(given["id"], given["name"], given["dimensions"], given["digest"], given["embedder_url"])


async def open_swap(connection: Connection, table: MemoryTable, target: NextModel) -> None:
    """Write down that the target is to replace the active model.

    Raises:
        SwapInProgress: another swap is open.
    """
    models = table.own("memory_index_models")
    await _open(
        connection,
        table,
        f"INSERT INTO {models} (name, dimensions, digest, pooling, max_tokens, query_prefix, document_prefix, "
        "embedder_url) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING id",
        target.name,
        target.dimensions,
        target.digest,
        target.pooling,
        target.max_tokens,
        target.query_prefix,
        target.document_prefix,
        target.embedder_url,
    )


async def open_way_back(connection: Connection, table: MemoryTable, previous: int, embedder_url: str | None) -> None:
    """Write down that the previous model, whose column is still there, is to become active again."""
    await _open(
        connection,
        table,
        f"UPDATE {table.own('memory_index_models')} SET embedder_url = $2 WHERE id = $1 RETURNING id",
        previous,
        embedder_url,
    )


async def _open(connection: Connection, table: MemoryTable, model: str, *arguments: object) -> None:
    state, swaps = table.own("memory_index_state"), table.own("memory_index_swaps")
    with translated("opening the swap"):
        try:
            async with connection.transaction():
                chosen = await connection.fetchval(model, *arguments)
                await connection.execute(f"UPDATE {swaps} SET stage = 'finished' WHERE stage = 'flipped'")
                await connection.execute(f"UPDATE {state} SET next_model = $1, updated_at = now()", chosen)
                await connection.execute(
                    f"INSERT INTO {swaps} (stage, from_model, to_model) "
                    f"SELECT 'planned', active_model, $1 FROM {state}",
                    chosen,
                )
        except asyncpg.UniqueViolationError:
            raise SwapInProgress(
                "A swap to another model is under way.", "See memory swap status; memory swap abort ends it."
            ) from None


async def advance(
    connection: Connection,
    table: MemoryTable,
    swap: SwapRecord,
    stage: str,
    *,
    message: str = "",
    gate: Mapping[str, Any] | None = None,
) -> None:
    """Move the swap to another stage, from the one that it was read in.

    Raises:
        SwapInProgress: somebody else has moved it meanwhile.
    """
    with translated("moving the swap on"):
        moved = await connection.fetchval(
            f"UPDATE {table.own('memory_index_swaps')} SET stage = $3, message = $4, updated_at = now(), "
            "gate = coalesce($5::jsonb, gate) WHERE id = $1 AND stage = $2 RETURNING id",
            swap.id,
            swap.stage,
            stage,
            message,
            json.dumps(gate) if gate is not None else None,
        )
    _require_moved(swap, moved)


def _require_moved(swap: SwapRecord, moved: object) -> None:
    if moved is None:
        raise SwapInProgress(
            f"Swap {swap.id} is no longer in stage {swap.stage}: another process has moved it.",
            "See memory swap status.",
        )


async def patiently(work: Callable[[], Awaitable[None]], patience: float) -> None:
    """Repeat a transaction that needs the table for a moment until it gets it; others pass in between.

    Raises:
        LockNotAvailable: the table stayed in use for longer than `patience` seconds.
    """
    try:
        await retry(work, on=caused_by(LockNotAvailable), give_up_after=patience, backoff=TABLE_LOCK_BACKOFF)
    except LockNotAvailable:
        raise LockNotAvailable(
            f"The table of memories stayed in use by other sessions for {patience:.0f} s.",
            "Look for a long transaction or a vacuum of it in pg_stat_activity, and try again.",
        ) from None


async def add_column(connection: Connection, table: MemoryTable, swap: SwapRecord, *, patience: float) -> None:
    """Give the table the standby column with its rules."""

    async def work() -> None:
        with translated("adding the standby column"):
            async with connection.transaction():
                await _alone_with(connection, table)
                for statement in standby_column.add_standby(table, swap.to_model.dimensions):
                    await connection.execute(statement)

    await patiently(work, patience)


async def flip(connection: Connection, table: MemoryTable, swap: SwapRecord, *, patience: float) -> None:
    """Make the next model the active one and its column the one that recalls read, in one transaction.

    Raises:
        SwapInProgress: the swap is not in the stage that it was read in.
        LockNotAvailable: the table could not be had for the moment that it takes.
    """
    state, swaps = table.own("memory_index_state"), table.own("memory_index_swaps")

    async def work() -> None:
        with translated("flipping the models"):
            async with connection.transaction(isolation="read_committed"):
                await _alone_with(connection, table)
                await connection.execute(standby_column.lock(table))
                moved = await connection.fetchval(
                    f"UPDATE {swaps} SET stage = 'flipped', flipped_at = clock_timestamp(), updated_at = now() "
                    "WHERE id = $1 AND stage = $2 RETURNING id",
                    swap.id,
                    swap.stage,
                )
                _require_moved(swap, moved)
                for statement in standby_column.exchange(table, swap.to_model.id):
                    await connection.execute(statement)
                await connection.execute(
                    f"UPDATE {state} SET active_model = $1, next_model = NULL, updated_at = now()", swap.to_model.id
                )

    await patiently(work, patience)


async def end(connection: Connection, table: MemoryTable, swap: SwapRecord, stage: str, *, patience: float) -> None:
    """Finish or abort: the standby column goes, and the swap with it, in one transaction.

    Raises:
        SwapInProgress: the swap is not in the stage that it was read in.
    """
    state, swaps = table.own("memory_index_state"), table.own("memory_index_swaps")

    async def work() -> None:
        with translated("ending the swap"):
            async with connection.transaction():
                await _alone_with(connection, table)
                for statement in standby_column.drop_standby(table):
                    await connection.execute(statement)
                moved = await connection.fetchval(
                    f"UPDATE {swaps} SET stage = $3, updated_at = now() WHERE id = $1 AND stage = $2 RETURNING id",
                    swap.id,
                    swap.stage,
                    stage,
                )
                _require_moved(swap, moved)
                await connection.execute(f"UPDATE {state} SET next_model = NULL, updated_at = now()")

    await patiently(work, patience)


async def _alone_with(connection: Connection, table: MemoryTable) -> None:
    for statement in wait_for_maintenance(table):
        await connection.execute(statement)
