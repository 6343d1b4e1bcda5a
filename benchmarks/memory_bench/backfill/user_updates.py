"""Measures what the updates of a table's own users cost before the table is adopted, and afterwards.

A memory server that counts accesses updates a row at every recall, and changes neither its text nor its marks. The
table is adopted as `memory adopt --apply` does it, with the fillfactor that it proposes, and is backfilled and indexed.
"""

import random
import statistics
import time
from dataclasses import dataclass
from typing import Any

import asyncpg
import psutil

from memory_bench.backfill.null_embedder import TEXT, null_model, run_process
from memory_bench.postgres import MeasuredServer, build_index, migrate_schema
from memory_recall.postgres.connection import DsnText
from memory_recall.schema.adoption.estimates import PROPOSED_FILLFACTOR
from memory_recall.schema.adoption.fillfactor import set_fillfactor
from memory_recall.settings import LOCK_SECONDS

UPDATES_A_ROW = 10
_SIDES = ("before", "after")
_TABLE = """
CREATE TABLE memories (id bigint PRIMARY KEY, content text NOT NULL, user_id text NOT NULL DEFAULT 'me',
    is_sensitive boolean NOT NULL DEFAULT false, deleted_at timestamptz, accesses integer NOT NULL DEFAULT 0,
    last_access timestamptz)"""
_UPDATE = "UPDATE memories SET accesses = accesses + 1, last_access = now() WHERE id = $1"
_HOT = "SELECT n_tup_hot_upd::float8 / n_tup_upd FROM pg_stat_user_tables WHERE relname = 'memories'"


@dataclass(frozen=True, slots=True)
class Pass:
    """One update of every row: the seconds, those of the processors, and the share of HOT updates so far.

    The processor time is that of the client and of its database session together.
    """

    seconds: float
    processor_seconds: float
    hot: float


async def measure(server: MeasuredServer, *, rows: int) -> dict[str, Any]:
    """Update all rows of both tables ten times without a vacuum, and compare the time that it takes.

    Each pass updates every row once, in random order, in a statement and a transaction of its own. The tables take
    turns; the ratios are medians over the pairs of passes. `hot` is the share of all updates that touched no index.
    """
    names = {side: f"updates_{side}_adoption" for side in _SIDES}
    await _fill(await server.create(names["before"]), rows)
    await _adopt(await server.copy(names["before"], names["after"]), rows)
    for name in names.values():
        await server.execute("VACUUM (ANALYZE) memories", database=name)
        await server.execute("SELECT pg_stat_reset()", database=name)
    passes: dict[str, list[Pass]] = {side: [] for side in _SIDES}
    for number in range(UPDATES_A_ROW):
        for side in _SIDES if number % 2 == 0 else reversed(_SIDES):
            passes[side].append(await _update_all(server.dsn(names[side]), number, rows))
    pairs = list(zip(passes["before"], passes["after"], strict=True))
    return {
        "rows": rows,
        "updates_a_row": UPDATES_A_ROW,
        "fillfactor": PROPOSED_FILLFACTOR,
        "user_update_ratio": statistics.median(after.seconds / before.seconds for before, after in pairs),
        "processor_ratio": statistics.median(
            after.processor_seconds / before.processor_seconds for before, after in pairs
        ),
        "microseconds": {
            side: 1e6 * statistics.median(one.seconds for one in done) / rows for side, done in passes.items()
        },
        "hot": {side: done[-1].hot for side, done in passes.items()},
    }


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


async def _update_all(dsn: str, number: int, rows: int) -> Pass:
    connection = await asyncpg.connect(dsn, server_settings={"synchronous_commit": "off"})  # the disk is not measured
    try:
        session = psutil.Process(await connection.fetchval("SELECT pg_backend_pid()"))
        statement = await connection.prepare(_UPDATE)
        order = random.Random(number).sample(range(1, rows + 1), rows)  # noqa: S311  (an order is no secret)
        used, began = time.process_time() + _cpu_seconds(session), time.perf_counter()
        for key in order:
            await statement.fetch(key)
        seconds, used = time.perf_counter() - began, time.process_time() + _cpu_seconds(session) - used
        await connection.execute("SELECT pg_stat_force_next_flush()")
        return Pass(seconds, used, await connection.fetchval(_HOT))
    finally:
        await connection.close()


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
