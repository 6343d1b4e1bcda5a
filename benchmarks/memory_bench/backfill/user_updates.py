"""Measures what the updates of a table's own users cost before the table is adopted, and afterwards.

A memory server that counts accesses updates a row at every recall, and changes neither its text nor its marks. The
table is adopted as `memory adopt --apply` does it, with the fillfactor that it proposes, and is backfilled and indexed.
"""

import random
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import asyncpg
import psutil
from asyncpg.prepared_stmt import PreparedStatement

from memory_bench.backfill.null_embedder import TEXT, null_model, run_process
from memory_bench.postgres import MeasuredServer, build_index, migrate_schema
from memory_recall.postgres.connection import DsnText
from memory_recall.schema.adoption.estimates import PROPOSED_FILLFACTOR
from memory_recall.schema.adoption.fillfactor import set_fillfactor
from memory_recall.settings import LOCK_SECONDS

UPDATES_A_ROW = 10
BLOCK_ROWS = 500
_SIDES = ("before", "after")
_TABLE = """
CREATE TABLE memories (id bigint PRIMARY KEY, content text NOT NULL, user_id text NOT NULL DEFAULT 'me',
    is_sensitive boolean NOT NULL DEFAULT false, deleted_at timestamptz, accesses integer NOT NULL DEFAULT 0,
    last_access timestamptz)"""
_UPDATE = "UPDATE memories SET accesses = accesses + 1, last_access = now() WHERE id = $1"
_HOT = "SELECT n_tup_hot_upd::float8 / n_tup_upd FROM pg_stat_user_tables WHERE relname = 'memories'"


@dataclass(frozen=True, slots=True)
class Block:
    """Updates of some rows one after the other: the seconds, and those of the processors.

    The processor time is that of the client and of its database session together.
    """

    seconds: float
    processor_seconds: float


class Updater:
    """One session that updates single rows, each in a statement and a transaction of its own. It must be closed."""

    def __init__(self, connection: asyncpg.Connection, statement: PreparedStatement, session: psutil.Process) -> None:
        self._connection = connection
        self._statement = statement
        self._session = session

    @classmethod
    async def open(cls, dsn: str) -> Self:
        """Connect to a database and prepare the update."""
        settings = {"synchronous_commit": "off"}  # the disk is not measured
        connection = await asyncpg.connect(dsn, server_settings=settings)
        session = psutil.Process(await connection.fetchval("SELECT pg_backend_pid()"))
        return cls(connection, await connection.prepare(_UPDATE), session)

    async def update(self, keys: Sequence[int]) -> Block:
        """Update the rows with these keys."""
        used, began = self._processor_seconds(), time.perf_counter()
        for key in keys:
            await self._statement.fetch(key)
        seconds = time.perf_counter() - began
        return Block(seconds, self._processor_seconds() - used)

    async def hot(self) -> float:
        """Return the share of all updates that touched no index."""
        await self._connection.execute("SELECT pg_stat_force_next_flush()")
        return float(await self._connection.fetchval(_HOT))

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()

    def _processor_seconds(self) -> float:
        times = self._session.cpu_times()
        return time.process_time() + float(times.user + times.system)


async def measure(server: MeasuredServer, *, rows: int) -> dict[str, Any]:
    """Update all rows of both tables ten times without a vacuum, and compare the time that it takes.

    Each pass updates every row once, in random order. The tables take turns by blocks of 500 rows, because a virtual
    machine may be twice as fast a minute later. `user_update_ratio` is the median over the pairs of blocks,
    `processor_ratio` that of the sums, since a block takes few ticks of the processors' clocks. `hot` is the share of
    all updates that touched no index.
    """
    names = {side: f"updates_{side}_adoption" for side in _SIDES}
    await _fill(await server.create(names["before"]), rows)
    await _adopt(await server.copy(names["before"], names["after"]), rows)
    for name in names.values():
        await server.execute("VACUUM (ANALYZE) memories", database=name)
        await server.execute("SELECT pg_stat_reset()", database=name)
    updaters = {side: await Updater.open(server.dsn(name)) for side, name in names.items()}
    blocks: dict[str, list[Block]] = {side: [] for side in _SIDES}
    try:
        for number, keys in enumerate(_keys(rows)):
            for side in _SIDES if number % 2 == 0 else reversed(_SIDES):
                blocks[side].append(await updaters[side].update(keys))
        hot = {side: await updater.hot() for side, updater in updaters.items()}
    finally:
        for updater in updaters.values():
            await updater.close()
    pairs = zip(blocks["before"], blocks["after"], strict=True)
    used = {side: sum(block.processor_seconds for block in done) for side, done in blocks.items()}
    return {
        "rows": rows,
        "updates_a_row": UPDATES_A_ROW,
        "fillfactor": PROPOSED_FILLFACTOR,
        "user_update_ratio": statistics.median(after.seconds / before.seconds for before, after in pairs),
        "processor_ratio": used["after"] / used["before"],
        "microseconds": {
            side: 1e6 * sum(block.seconds for block in done) / (rows * UPDATES_A_ROW) for side, done in blocks.items()
        },
        "hot": hot,
    }


def _keys(rows: int) -> Iterator[Sequence[int]]:
    """Yield the keys of each block: of every pass all keys, in random order."""
    for number in range(UPDATES_A_ROW):
        order = random.Random(number).sample(range(1, rows + 1), rows)  # noqa: S311  (an order is no secret)
        yield from (order[begin : begin + BLOCK_ROWS] for begin in range(0, rows, BLOCK_ROWS))


async def _fill(dsn: str, rows: int) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(_TABLE)
        texts = [(number, f"{TEXT}{number}") for number in range(1, rows + 1)]
        await connection.copy_records_to_table("memories", records=texts, columns=["id", "content"])
    finally:
        await connection.close()


async def _adopt(dsn: str, rows: int) -> None:
    await set_fillfactor(DsnText(dsn), "memories", PROPOSED_FILLFACTOR, LOCK_SECONDS)
    await migrate_schema(dsn, null_model())
    await run_process("random-backfill", dsn, str(rows))
    await build_index(dsn)
