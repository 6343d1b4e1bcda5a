"""Measures the dense leg by every design: the share of true neighbours, times warm and cold, and buffers.

Warm, every setting answers all questions once before it is timed, and then a block of questions at a time, in changing
order, so that each finds its pages in memory. Then a search does nothing but compute, and its time on a quiet machine
is the processor time of its database session, which the kernel counts in nanoseconds. Cold, Postgres has been restarted
and the pages of its files have been given back to the system before every few questions.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np

from memory_bench.index_study.designs import Setting
from memory_bench.index_study.designs_sql import show
from memory_bench.index_study.rankings import Places
from memory_bench.index_study.store import Filled
from memory_bench.index_study.vectors import Halves
from memory_bench.latency.page_cache import drop
from memory_bench.latency.reads import disk_bytes
from memory_bench.postgres import MeasuredServer

_BLOCK = 20  # questions in a block; the first block of each setting is not timed
_EXPLAINED = 40  # questions whose buffers are counted
_COLD_QUESTIONS = 5  # after each restart


@dataclass(frozen=True, slots=True)
class Warm:
    """What a setting finds and takes: recall@50 against exact search, times, and mean buffers of a search.

    `processor` are the milliseconds of processor time that the database session took for each question, `elapsed` those
    that passed for the client.
    """

    recall: float
    processor: tuple[float, ...]
    elapsed: tuple[float, ...]
    buffers: float

    def percentile(self, percent: float) -> float:
        """Return a percentile of the processor times in milliseconds; `percent` is from 0 to 100."""
        return float(np.percentile(self.processor, percent))

    def elapsed_percentile(self, percent: float) -> float:
        """Return a percentile of the times that passed in milliseconds; `percent` is from 0 to 100."""
        return float(np.percentile(self.elapsed, percent))


@dataclass(frozen=True, slots=True)
class Cold:
    """The milliseconds of each search with cold caches, and the mean bytes that a search read."""

    milliseconds: tuple[float, ...]
    bytes_read: float

    @property
    def p95(self) -> float:
        """The 95th percentile of the times in milliseconds."""
        return float(np.percentile(self.milliseconds, 95))


async def measure_warm(
    server: MeasuredServer, filled: Filled, settings: Sequence[Setting], questions: Halves, true: Places
) -> dict[Setting, Warm]:
    """Measure every setting on the questions; `true` are the places of the questions' nearest rows."""
    connection: Any = await asyncpg.connect(server.dsn(filled.database))
    asked = [one.tolist() for one in questions]
    try:
        # By its estimates Postgres would not take an index of some thousand rows for the deeper searches.
        await connection.execute("SET enable_seqscan = off")
        session = Path(f"/proc/{connection.get_server_pid()}/schedstat")
        shares, buffers = {}, {}
        for one in settings:
            search = filled.statements.search(one)
            await show(connection, one.design)
            buffers[one] = await _buffers(connection, search, asked)
            shares[one] = await _recall(await connection.prepare(search), asked, true)
        times: dict[Setting, list[tuple[float, float]]] = {one: [] for one in settings}
        for block, first in enumerate(range(0, len(asked), _BLOCK)):
            for one in settings if block % 2 else reversed(settings):
                await show(connection, one.design)
                statement = await connection.prepare(filled.statements.search(one))
                await statement.fetch(asked[0])  # plans the statement
                times[one] += [await _timed(statement, vector, session) for vector in asked[first : first + _BLOCK]]
    finally:
        await connection.close()
    timed = {one: taken[_BLOCK:] for one, taken in times.items()}
    return {
        one: Warm(shares[one], tuple(own for own, _ in taken), tuple(passed for _, passed in taken), buffers[one])
        for one, taken in timed.items()
    }


async def measure_cold(
    server: MeasuredServer,
    filled: Filled,
    settings: Sequence[Setting],
    questions: Halves,
    say: Callable[[str], None],
) -> dict[Setting, Cold]:
    """Measure the settings with cold caches, each after restarts of its own."""
    found: dict[Setting, list[Cold]] = {one: [] for one in settings}
    starts = range(0, len(questions), _COLD_QUESTIONS)
    for number, first in enumerate(starts):
        for one in settings if number % 2 else reversed(settings):
            asked = [vector.tolist() for vector in questions[first : first + _COLD_QUESTIONS]]
            found[one].append(await _cold(server, filled, one, asked))
        say(f"cold: {number + 1} of {len(starts)} restarts")
    return {
        one: Cold(
            tuple(taken for each in every for taken in each.milliseconds),
            float(np.mean([each.bytes_read for each in every])),
        )
        for one, every in found.items()
    }


async def _recall(statement: Any, asked: Sequence[list[float]], true: Places) -> float:  # noqa: ANN401  (asyncpg's statement)
    shares = []
    for vector, places in zip(asked, true, strict=True):
        ids = [row["id"] for row in await statement.fetch(vector)]
        shares.append(float(np.isin(places + 1, ids).mean()))
    return float(np.mean(shares))


async def _timed(statement: Any, vector: list[float], session: Path) -> tuple[float, float]:  # noqa: ANN401  (asyncpg's statement)
    """Return the milliseconds of processor time that the session took, and those that passed."""
    before, started = _processor_ns(session), time.perf_counter()
    await statement.fetch(vector)
    passed = (time.perf_counter() - started) * 1e3
    return (_processor_ns(session) - before) / 1e6, passed


def _processor_ns(session: Path) -> int:
    """Return the nanoseconds that the process of a file `schedstat` has run."""
    return int(session.read_text(encoding="ascii").split()[0])


async def _buffers(connection: Any, search: str, asked: Sequence[list[float]]) -> float:  # noqa: ANN401  (asyncpg's connection)
    return float(np.mean([await _touched(connection, search, one) for one in asked[:_EXPLAINED]]))


async def _touched(connection: Any, search: str, vector: list[float]) -> int:  # noqa: ANN401  (asyncpg's connection)
    """Return how many buffers a search touches.

    Raises:
        RuntimeError: the search did not read its index.
    """
    answer = await connection.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {search}", vector)
    if "idx_study_" not in answer:
        raise RuntimeError("Postgres did not search the index; the time would not be its own")
    plan = json.loads(answer)[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


async def _cold(server: MeasuredServer, filled: Filled, setting: Setting, asked: Sequence[list[float]]) -> Cold:
    """Return the times of a few searches after a restart, and the mean bytes that each read from the disk."""
    connection: Any = await asyncpg.connect(server.dsn(filled.database))
    await show(connection, setting.design)
    await connection.close()
    server.restart(lambda: drop(server.data))
    connection = await asyncpg.connect(server.dsn(filled.database))
    try:
        await connection.execute("SET enable_seqscan = off")
        search = filled.statements.search(setting)
        await connection.fetchval(f"EXPLAIN {search}", asked[0])  # what planning reads is read once a connection
        statement, before = await connection.prepare(search), disk_bytes(server.process)
        session = Path(f"/proc/{connection.get_server_pid()}/schedstat")
        times = [(await _timed(statement, vector, session))[1] for vector in asked]
        return Cold(tuple(times), (disk_bytes(server.process) - before) / len(asked))
    finally:
        await connection.close()
