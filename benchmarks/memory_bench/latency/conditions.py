"""Measures one design by itself under two conditions that can be repeated: with warm and with cold caches.

A server runs one design, whose pages are in its memory. Designs that take turns push each other's pages out, and how
far depends on the machine. Therefore each measurement has one design alone and starts from the same state: Postgres is
stopped, the pages of all its files are given back to the kernel (see `page_cache`), and Postgres is started again. What
was measured before makes no difference.

*Warm*: all files of the databases are read once, if they fit into memory, so that nothing has to come from the disk.
Then the design answers questions that are not timed, for a minute at most, which bring the pages that it needs most
into Postgres's own buffers, and then the timed ones. Without the first step a recall of a million rows would still read
from the disk after 500 questions, while one of 5,000 rows would not. *Cold*: it answers one question that is not among
the timed ones, because it opens the sessions, reads the catalogue and prepares the statements, as is done once after
each start, and then 30 timed questions. This is repeated in rounds, each with caches dropped again and with questions
of its own.

In a round each recall is faster than the one before, because pages that it needs have been read by then. The 95th
percentile of all cold times cuts off the slowest one and a half of a round's 30 questions, and so it lies amid the
times of the second timed questions. With 20 questions it would lie between the slowest second and the fastest first
ones, two extremes that vary from run to run.

What a machine can do differs by the half hour, since other guests of its host share caches and memory with it. Two
sizes of a table that are to be compared with one another are therefore measured in turn, by blocks of questions.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from memory_bench.latency.designs import Design, Opened, Question
from memory_bench.latency.page_cache import Dropped, bring, drop
from memory_bench.latency.reads import Reads, count_reads
from memory_bench.latency.store import MODEL
from memory_bench.latency.synthetic import Synthetic
from memory_bench.postgres import MeasuredServer
from memory_recall import EmbeddedQuery

Condition: TypeAlias = Literal["warm", "cold"]
WARM: Condition = "warm"
COLD: Condition = "cold"
CONDITIONS: tuple[Condition, ...] = (WARM, COLD)
ROUND = 30  # timed questions after each drop of the caches; see above
BLOCK = 50  # questions of one size in turn; the first of a block finds the processor's caches full of another size
_WARM_UP_SECONDS = 60.0  # a design that needs longer for its questions reads so much for each that fewer are enough
_TIMED, _WARM_UP, _COLD = 0, 2, 3  # streams of questions; stream 1 is that of the comparison with exact search
_NOTHING = Reads(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Effort:
    """How many questions a warm measurement times and at most asks before, and how many rounds a cold one has."""

    questions: int
    warm_up: int
    cold_rounds: int


@dataclass(frozen=True, slots=True)
class Measured:
    """The times of one design under one condition in milliseconds, one for each question; `arm` is the design's name.

    `reads` is what was read for one timed recall, on average. `first_milliseconds` has the times of the questions that
    were the first after a start, one for each round of a cold measurement. `kept_bytes` is the most that stayed in
    memory of the server's files when their pages were given back. `in_memory` says whether all files were read first.
    """

    arm: str
    condition: Condition
    milliseconds: tuple[float, ...]
    reads: Reads
    first_milliseconds: tuple[float, ...]
    kept_bytes: int
    in_memory: bool

    def percentile(self, percent: float) -> float:
        """Return a percentile of the times in milliseconds; `percent` is from 0 to 100."""
        return float(np.percentile(self.milliseconds, percent))


@dataclass(frozen=True, slots=True)
class Asked:
    """The questions that each design answers: before a warm measurement, during it, and in each cold round."""

    warm_up: Sequence[Question]
    timed: Sequence[Question]
    cold_rounds: Sequence[Sequence[Question]]


def questions(rows: int, effort: Effort) -> Asked:
    """Return the questions for a table of `rows` rows; a cold round has one more than are timed."""
    synthetic = Synthetic()

    def made(count: int, stream: int) -> list[Question]:
        drawn = synthetic.questions(rows, count, stream=stream)
        vectors = (EmbeddedQuery(vector.tolist(), MODEL) for vector in drawn.vectors)
        return [Question(text, vector) for text, vector in zip(drawn.texts, vectors, strict=True)]

    cold = made(effort.cold_rounds * (1 + ROUND), _COLD)
    rounds = [cold[start : start + 1 + ROUND] for start in range(0, len(cold), 1 + ROUND)]
    return Asked(made(effort.warm_up, _WARM_UP), made(effort.questions, _TIMED), rounds)


async def measure(server: MeasuredServer, database: str, design: Design, asked: Asked) -> list[Measured]:
    """Measure one design under both conditions; the server is restarted before each measurement and each cold round.

    Raises:
        RuntimeError: the server did not stop, or the times would not be those of the design (see `Ours.open`).
    """
    return [await _measure_warm(server, database, design, asked), await _measure_cold(server, database, design, asked)]


async def _measure_warm(server: MeasuredServer, database: str, design: Design, asked: Asked) -> Measured:
    dropped = drop_caches(server)
    brought = bring(server.data / "base")
    async with design.open(server.dsn(database)) as opened:
        await warm_up(opened, asked.warm_up)
        times, reads = await _timed(server, database, opened, asked.timed)
    return Measured(design.name, WARM, times, reads.per(len(times)), (), dropped.kept, in_memory=brought > 0)


async def measure_in_turn(
    server: MeasuredServer, design: Design, asked: Mapping[str, Asked]
) -> dict[str, tuple[float, ...]]:
    """Return the times of one design with warm caches at several databases, in milliseconds, a block of each in turn.

    Raises:
        RuntimeError: as `measure` does.
    """
    drop_caches(server)
    bring(server.data / "base")
    times: dict[str, list[float]] = {database: [] for database in asked}
    async with AsyncExitStack() as stack:
        opened = {database: await stack.enter_async_context(design.open(server.dsn(database))) for database in asked}
        for database, one in asked.items():
            await warm_up(opened[database], one.warm_up)
        for start in range(0, max(len(one.timed) for one in asked.values()), BLOCK):
            for database, one in asked.items():
                for question in one.timed[start : start + BLOCK]:
                    times[database].append(await milliseconds(opened[database], question))
    return {database: tuple(found) for database, found in times.items()}


async def warm_up(opened: Opened, questions: Sequence[Question]) -> None:
    """Ask questions that are not timed, for a minute at most."""
    until = time.monotonic() + _WARM_UP_SECONDS
    for question in questions:
        await opened.answer(question)
        if time.monotonic() >= until:
            return


async def _measure_cold(server: MeasuredServer, database: str, design: Design, asked: Asked) -> Measured:
    times: list[float] = []
    firsts: list[float] = []
    reads, kept = _NOTHING, 0
    for first, *timed in asked.cold_rounds:
        kept = max(kept, drop_caches(server).kept)
        async with design.open(server.dsn(database)) as opened:
            firsts.append(await milliseconds(opened, first))
            round_times, round_reads = await _timed(server, database, opened, timed)
        times += round_times
        reads += round_reads
    return Measured(design.name, COLD, tuple(times), reads.per(len(times)), tuple(firsts), kept, in_memory=False)


def drop_caches(server: MeasuredServer) -> Dropped:
    """Restart the server with nothing of its files in memory."""
    return server.restart(lambda: drop(server.data))


async def _timed(
    server: MeasuredServer, database: str, opened: Opened, questions: Sequence[Question]
) -> tuple[tuple[float, ...], Reads]:
    before = await count_reads(server, database, opened.pool)
    times = [await milliseconds(opened, question) for question in questions]
    return tuple(times), await count_reads(server, database, opened.pool) - before


async def milliseconds(opened: Opened, question: Question) -> float:
    """Ask a question and return how long the answer took."""
    started = time.perf_counter()
    await opened.answer(question)
    return (time.perf_counter() - started) * 1e3
