"""Keeps the vector index good: built with what the server allows, rebuilt when its parameters or its recall are wrong.

Every rebuild happens beside the index that serves meanwhile. This is the one place that decides; the commands, the sync
worker and the operator's Jobs only ask for it.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from memory_recall.errors import DatabaseUnreachable, LockNotAvailable
from memory_recall.hnsw.build import merge_pending_words, prepare_build, sweep, use_least
from memory_recall.hnsw.check import measure_index
from memory_recall.hnsw.definition import (
    DEFAULT_EF_CONSTRUCTION,
    DEFAULT_M,
    IndexFacts,
    drop_invalid,
    hnsw_definition,
    hnsw_name,
    inspect_index,
)
from memory_recall.postgres.connection import Connection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.table import MemoryTable, quoted

_LOCK_KEY = 0x6D656D6F_72796963  # "memoryic"; one rebuild per database
_BESIDE = "_rebuilt"
_EXCHANGE_LOCK_MS, _EXCHANGE_TRIES = 100, 200
DEFAULT_SAMPLE = 50


@dataclass(frozen=True)
class IndexWish:
    """How the index is to be; `memory` is `maintenance_work_mem` where a person has set it."""

    m: int = DEFAULT_M
    ef_construction: int = DEFAULT_EF_CONSTRUCTION
    memory: str | None = None


@dataclass(frozen=True)
class IndexReport:
    """The index, the share of true neighbours that it found, and the same after a repair if there was one."""

    facts: IndexFacts
    recall: float | None
    recall_after_repair: float | None = None


def needs_repair(recall: float | None, threshold: float) -> bool:
    """Whether an index that finds this share of the true neighbours is built anew."""
    return recall is not None and recall < threshold


async def before_build(connection: Connection, table: MemoryTable, wish: IndexWish) -> None:
    """Bring table and session into the state in which a build is cheapest, and exchange an index built otherwise."""
    await _run(connection, "SET lock_timeout = 0")  # what follows waits for others without making anybody wait
    await drop_invalid(connection, table)
    await _drop_beside(connection, table)
    facts = await inspect_index(connection, table)
    if not facts.valid:
        await sweep(connection, table)
    await prepare_build(connection, table, m=wish.m, memory=wish.memory, serving=facts.valid)
    if facts.differs(wish.m, wish.ef_construction):
        await with_less_memory(connection, lambda: _rebuild(connection, table, wish))


async def after_build(connection: Connection, table: MemoryTable) -> None:
    """Leave the word indexes as quick to read as the new vector index."""
    await merge_pending_words(connection, table)


async def tend(
    connection: Connection, table: MemoryTable, wish: IndexWish, *, sample: int, repair_below: float | None
) -> IndexReport:
    """Measure the index, and build it anew where it finds less than `repair_below` of the true neighbours.

    Raises:
        LockNotAvailable: it needs a repair, and another session is at it.
    """
    facts = await inspect_index(connection, table)
    recall = await measure_index(connection, table, facts, sample=sample) if facts.valid else None
    if facts.name is None or repair_below is None or not needs_repair(recall, repair_below):
        return IndexReport(facts, recall)
    with translated("taking the lock of index repairs"):
        if not await connection.fetchval("SELECT pg_try_advisory_lock($1)", _LOCK_KEY):
            raise LockNotAvailable("Another session repairs the vector index.", "Let it end.")
    await prepare_build(connection, table, m=wish.m, memory=wish.memory, serving=True)
    name = f"{quoted(table.schema)}.{quoted(facts.name)}"
    await with_less_memory(connection, lambda: _run(connection, f"REINDEX INDEX CONCURRENTLY {name}"))
    await drop_invalid(connection, table)
    with translated("releasing the lock of index repairs"):
        await connection.execute("SELECT pg_advisory_unlock($1)", _LOCK_KEY)
    after = await measure_index(connection, table, facts, sample=sample)
    return IndexReport(await inspect_index(connection, table), recall, after)


async def with_less_memory(connection: Connection, build: Callable[[], Awaitable[None]]) -> None:
    """Build, and once more with the least where the server's machine has less than its settings promise."""
    try:
        await build()
    except DatabaseUnreachable:
        if connection.is_closed():
            raise
        await use_least(connection)
        await build()


async def _rebuild(connection: Connection, table: MemoryTable, wish: IndexWish) -> None:
    """Build an index beside ours and let it take ours' place in one transaction."""
    await _drop_beside(connection, table)
    ours, beside = hnsw_name(table), f"{hnsw_name(table)}{_BESIDE}"
    definition = hnsw_definition(table, wish.m, wish.ef_construction)
    await _run(connection, f"CREATE INDEX CONCURRENTLY {quoted(beside)} {definition}")
    schema = quoted(table.schema)
    exchange = (
        f"SET LOCAL lock_timeout = {_EXCHANGE_LOCK_MS}; DROP INDEX {schema}.{quoted(ours)}; "
        f"ALTER INDEX {schema}.{quoted(beside)} RENAME TO {quoted(ours)}"
    )
    for attempt in range(_EXCHANGE_TRIES):
        try:
            await _run(connection, exchange)  # statements sent together are one transaction
        except LockNotAvailable:
            if attempt == _EXCHANGE_TRIES - 1:
                raise
            await asyncio.sleep(random.uniform(0.05, 0.5))  # noqa: S311  (jitter, not a secret)
        else:
            return


async def _drop_beside(connection: Connection, table: MemoryTable) -> None:
    """Drop an index that a rebuild which was interrupted left beside ours, finished or not."""
    beside = f"{quoted(table.schema)}.{quoted(hnsw_name(table) + _BESIDE)}"
    await _run(connection, f"DROP INDEX CONCURRENTLY IF EXISTS {beside}")


async def _run(connection: Connection, statement: str) -> None:
    with translated("building the vector index"):
        await connection.execute(statement)
