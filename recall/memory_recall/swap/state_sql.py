"""The recorded state of swaps, the facts about the standby column, and the transactions that advance a swap.

Every change of stage names the stage that it starts from, so if two processes change the same stage, only one succeeds.
A unique index permits only one open swap. The flip is one transaction. It locks the table for the milliseconds in which
both columns exchange names and the next model becomes the active one. A recall therefore sees column and model either
as before the flip or as after it, never a mixture.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg

from memory_recall.embedding.profiles import PROFILES, ModelProfile
from memory_recall.embedding.served_model import ServedModel
from memory_recall.errors import EmptyText, LockNotAvailable, SwapInProgress
from memory_recall.hnsw.build import prepare_build
from memory_recall.hnsw.definition import drop_invalid, hnsw_name, inspect_index
from memory_recall.hnsw.repair import IndexParameters, create_index, with_less_memory
from memory_recall.postgres.connection import AnyConnection, Connection
from memory_recall.postgres.driver_errors import translated
from memory_recall.retrying import TABLE_LOCK_BACKOFF, caused_by, retry
from memory_recall.schema.ddl import TableChanges
from memory_recall.schema.models_sql import RecordedModel
from memory_recall.schema.requirements.dependents import require_no_dependents
from memory_recall.schema.requirements.taken_names import require_own_names
from memory_recall.schema.table import STANDBY, MemoryTable
from memory_recall.schema.table_locks import try_table_lock, wait_for_maintenance
from memory_recall.swap import standby_sql
from memory_recall.swap.machine import Fill, GateOutcome, Stage


@dataclass(frozen=True)
class SwapRecord:
    """A swap as it is recorded. `gate` is the last verdict on the next model, or None if there was none.

    `is_rollback` says whether the swap returns to the previous model.
    """

    id: int
    stage: str
    from_model: RecordedModel
    to_model: RecordedModel
    gate: Mapping[str, Any] | None
    message: str
    started_at: datetime
    updated_at: datetime
    flipped_at: datetime | None
    is_rollback: bool = False

    @property
    def undecided(self) -> bool:
        """Whether the swap stopped because its labelled questions were too few for the gate to decide."""
        gate = self.gate or {}  # that of an earlier run, if this one was refused before it measured anything
        stopped_by_gate = self.stage == Stage.REFUSED and gate.get("message") == self.message
        return stopped_by_gate and gate.get("outcome") == GateOutcome.UNDECIDED


async def latest(connection: AnyConnection, table: MemoryTable) -> SwapRecord | None:
    """Read the newest swap, open or ended. Return None if there never was a swap."""
    swaps, models = table.own("memory_index_swaps"), table.own("memory_index_models")
    with translated("reading the swap"):
        row = await connection.fetchrow(
            "SELECT w.*, row_to_json(f) AS was, row_to_json(t) AS becomes, "
            f"EXISTS (SELECT FROM {swaps} p WHERE p.id < w.id AND p.from_model = w.to_model) AS is_rollback "
            f"FROM {swaps} w "
            f"JOIN {models} f ON f.id = w.from_model JOIN {models} t ON t.id = w.to_model ORDER BY w.id DESC LIMIT 1"
        )
    if row is None:
        return None
    return SwapRecord(
        id=row["id"],
        stage=row["stage"],
        from_model=RecordedModel.from_row(json.loads(row["was"])),
        to_model=RecordedModel.from_row(json.loads(row["becomes"])),
        gate=json.loads(row["gate"]) if row["gate"] else None,
        message=row["message"],
        started_at=row["started_at"],
        updated_at=row["updated_at"],
        flipped_at=row["flipped_at"],
        is_rollback=row["is_rollback"],
    )


async def open_swap(connection: Connection, table: MemoryTable, target: ServedModel, embedder_url: str | None) -> None:
    """Record a swap that is to make `target` the active model.

    `embedder_url` is the memory-embedder that serves it; None if a third-party embedder does.

    Raises:
        SwapInProgress: another swap is open.
    """
    known = PROFILES.get(target.name) or ModelProfile(target.name, target.dimensions)
    await _open(
        connection,
        table,
        f"INSERT INTO {table.own('memory_index_models')} (name, dimensions, digest, pooling, max_tokens, query_prefix, "
        "document_prefix, embedder_url) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING id",
        target.name,
        target.dimensions,
        target.digest,
        target.pooling,
        target.max_tokens,
        known.query_prefix,
        known.document_prefix,
        embedder_url,
    )


async def open_rollback(connection: Connection, table: MemoryTable, previous: int, embedder_url: str | None) -> None:
    """Record a swap that makes the previous model active again. The column of its vectors still exists."""
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
    """Move the swap from the stage that `swap` records to the stage `stage`.

    Raises:
        SwapInProgress: another process has moved the swap meanwhile.
    """
    with translated("moving the swap on"):
        moved = await connection.fetchval(
            f"UPDATE {table.own('memory_index_swaps')} SET stage = $3, message = $4, updated_at = now(), "
            "gate = coalesce($5::text::jsonb, gate) WHERE id = $1 AND stage = $2 RETURNING id",
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


async def _with_table_lock(transaction: Callable[[], Awaitable[None]], give_up_after: float) -> None:
    """Retry a transaction until it succeeds in locking the whole table. Between attempts other sessions use the table.

    Raises:
        LockNotAvailable: the lock was not available for `give_up_after` seconds.
    """
    try:
        await retry(
            transaction, on=caused_by(LockNotAvailable), give_up_after=give_up_after, backoff=TABLE_LOCK_BACKOFF
        )
    except LockNotAvailable:
        raise LockNotAvailable(
            f"The table of memories stayed in use by other sessions for {give_up_after:.0f} s.",
            "Look for a long transaction, an index build or a vacuum of it in pg_stat_activity, and try again.",
            waited=True,
        ) from None


async def add_column(connection: Connection, table: MemoryTable, swap: SwapRecord, *, give_up_after: float) -> None:
    """Add the standby column with its constraint and triggers.

    Raises:
        LockNotAvailable: the table was in use by other sessions for `give_up_after` seconds.
    """

    async def work() -> None:
        with translated("adding the standby column"):
            async with connection.transaction():
                await _keep_maintenance_away(connection, table)
                for statement in standby_sql.add_standby(table, swap.to_model.dimensions):
                    await connection.execute(statement)

    await _with_table_lock(work, give_up_after)


async def flip(connection: Connection, table: MemoryTable, swap: SwapRecord, *, give_up_after: float) -> None:
    """In one transaction, make the next model the active model, and its column the column that recalls read.

    Raises:
        SwapInProgress: another process has moved the swap meanwhile.
        LockNotAvailable: the table was in use by other sessions for `give_up_after` seconds.
    """
    state, swaps = table.own("memory_index_state"), table.own("memory_index_swaps")

    async def work() -> None:
        with translated("flipping the models"):
            async with connection.transaction(isolation="read_committed"):
                await _keep_maintenance_away(connection, table)
                await connection.execute(standby_sql.lock(table))
                moved = await connection.fetchval(
                    f"UPDATE {swaps} SET stage = 'flipped', flipped_at = clock_timestamp(), updated_at = now() "
                    "WHERE id = $1 AND stage = $2 RETURNING id",
                    swap.id,
                    swap.stage,
                )
                _require_moved(swap, moved)
                for statement in standby_sql.exchange(table, swap.to_model.id):
                    await connection.execute(statement)
                await connection.execute(
                    f"UPDATE {state} SET active_model = $1, next_model = NULL, updated_at = now()", swap.to_model.id
                )

    await _with_table_lock(work, give_up_after)


async def end(
    connection: Connection, table: MemoryTable, swap: SwapRecord, stage: str, *, give_up_after: float
) -> None:
    """Finish or abort the swap and drop the standby column, in one transaction. `stage` is the stage to end in.

    Raises:
        SchemaUnsupported: something of others depends on the standby column.
        SwapInProgress: another process has moved the swap meanwhile.
        LockNotAvailable: the table was in use by other sessions for `give_up_after` seconds.
    """
    await require_no_dependents(connection, table, [table.vector_name(STANDBY)])
    state, swaps = table.own("memory_index_state"), table.own("memory_index_swaps")

    async def work() -> None:
        with translated("ending the swap"):
            async with connection.transaction():
                await _keep_maintenance_away(connection, table)
                for statement in standby_sql.drop_standby(table):
                    await connection.execute(statement)
                moved = await connection.fetchval(
                    f"UPDATE {swaps} SET stage = $3, updated_at = now() WHERE id = $1 AND stage = $2 RETURNING id",
                    swap.id,
                    swap.stage,
                    stage,
                )
                _require_moved(swap, moved)
                await connection.execute(f"UPDATE {state} SET next_model = NULL, updated_at = now()")

    await _with_table_lock(work, give_up_after)


async def _keep_maintenance_away(connection: Connection, table: MemoryTable) -> None:
    """Let no migration, index build or vacuum of the table run until the end of the transaction.

    An index build goes by names, of the column and of the index that it replaces, from its beginning to its end.

    Raises:
        LockNotAvailable: one is running.
    """
    await try_table_lock(connection, table)
    for statement in wait_for_maintenance(table):
        await connection.execute(statement)


async def read_fill(connection: AnyConnection, table: MemoryTable, *, wanted: int | None = None) -> Fill:
    """Count the rows that may have a vector, those that the next model is still to embed, and those given up.

    Counting the rows that may have a vector takes a scan of the table. A caller that calls often may pass the count of
    an earlier call as `wanted` instead.
    """
    if table.standby_dimensions is None:
        return Fill(0, 0, 0)
    pending, memory = table.pending("m", STANDBY), table.row("m")
    with translated("counting rows of the standby column"):
        row = await connection.fetchrow(
            "SELECT coalesce($1::bigint,"
            f" (SELECT count(*) FROM {table.qualified} WHERE {table.shareable()})) AS wanted,"
            f" (SELECT count(*) FROM {table.qualified} m WHERE {pending}) AS missing,"
            " count(*) FILTER (WHERE NOT blank) AS quarantined, count(*) FILTER (WHERE blank) AS blank"
            f" FROM (SELECT f.error_class = '{EmptyText.reason}' AS blank"
            f"         FROM {table.own(STANDBY.failures)} f JOIN {table.qualified} m ON {memory.id} = f.id"
            f"        WHERE f.next_attempt = 'infinity' AND {pending}"
            f"          AND f.text_hash = {table.own('memory_index_text_hash')}({memory.content})) given_up",
            wanted,
        )
    assert row is not None  # noqa: S101  (an aggregate yields one row)
    quarantined, blank = row["quarantined"], row["blank"]
    return Fill(row["wanted"], row["missing"] - quarantined - blank, quarantined, blank)


async def standby_index_valid(connection: AnyConnection, table: MemoryTable) -> bool:
    """Return whether the standby column has a valid vector index."""
    if table.standby_dimensions is None:
        return False
    return (await inspect_index(connection, table, STANDBY)).valid


async def standby_queue_indexed(connection: AnyConnection, table: MemoryTable) -> bool:
    """Return whether a valid index exists over the rows that have no vector in the standby column."""
    with translated("looking up the index of the standby column's queue"):
        valid = await connection.fetchval(
            "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass($1)::oid",
            table.in_schema(STANDBY.pending_index(table.name)),
        )
    return valid is True


async def complete_standby_column(connection: Connection, table: MemoryTable, *, lock_seconds: float) -> None:
    """Validate the standby column's constraint and build the index over its pending rows. No session is blocked.

    Call this only after the column has been filled, because the index slows down the filling. Its condition names the
    column, so with it each stored vector adds entries to all indexes of the table, the active vector index included.

    Raises:
        LockNotAvailable: a partitioned table was in use by other sessions for `lock_seconds`.
    """
    with translated("completing the standby column"):
        await connection.execute("SET lock_timeout = 0")
        await connection.execute(f"ALTER TABLE {table.qualified} VALIDATE CONSTRAINT {STANDBY.constraint}")
    await TableChanges(connection, table, lock_seconds).build_index(
        STANDBY.pending_index(table.name),
        f"ON {table.qualified} ({table.row().id}) WHERE {table.pending('', STANDBY)}",
    )


async def build_standby_index(
    connection: Connection, table: MemoryTable, parameters: IndexParameters, *, lock_seconds: float
) -> None:
    """Build the vector index of the standby column without blocking other sessions.

    What an interrupted build has left is dropped first; on a partitioned table, the build goes on.

    Raises:
        SchemaUnsupported: something of others has a name of ours.
        LockNotAvailable: a partitioned table was in use by other sessions for `lock_seconds`.
    """
    await require_own_names(connection, table)
    changes = TableChanges(connection, table, lock_seconds)

    async def work() -> None:
        with translated("building the next model's index"):
            await connection.execute("SET lock_timeout = 0")
        await drop_invalid(connection, table, STANDBY)
        await create_index(changes, hnsw_name(table, STANDBY), parameters, STANDBY)

    await prepare_build(connection, table, STANDBY, m=parameters.m, memory=parameters.memory, serving=True)
    await with_less_memory(connection, work)


async def count_shareable(connection: AnyConnection, table: MemoryTable) -> int:
    """Count the rows that may have a vector: those that are neither sensitive nor deleted."""
    with translated("counting rows"):
        count: int = await connection.fetchval(f"SELECT count(*) FROM {table.qualified} WHERE {table.shareable()}")
    return count
