"""Measures recalls a second of one server, of a primary and a standby together, and of the standby alone.

Each server is bound to one processor core, so that a second server brings a second core, as a second machine does. The
clients are coroutines of this process. Beside one server they have all other cores. Beside two they share the servers'
cores where the machine has no others, and what they take is then missing to the servers. Therefore the processor time
of servers and clients is measured as well.
"""

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import count
from typing import Any

import asyncpg

from memory_bench.latency.store import MODEL
from memory_bench.latency.synthetic import Questions
from memory_bench.postgres import MeasuredServer
from memory_recall import EVERYONE, EmbeddedQuery, HybridRecall, RecallQuery

ONE, TWO, STANDBY = "one instance", "two instances", "the standby alone"
_PAGE = 10
_TIME_BUDGET = 60.0  # seconds; a slow recall is to be counted, not refused


@dataclass(frozen=True, slots=True)
class Instances:
    """A primary and its standby, each bound to a core, and the name of the database to search."""

    primary: MeasuredServer
    standby: MeasuredServer
    database: str
    cores: Sequence[int]

    def bind(self) -> None:
        """Bind each server to a core of its own."""
        self.primary.bind(self.cores[0])
        self.standby.bind(self.cores[1])

    def cpu_seconds(self) -> tuple[float, float, float]:
        """Return the processor seconds so far of the primary, of the standby and of this process."""
        return self.primary.running_cpu_seconds(), self.standby.running_cpu_seconds(), time.process_time()

    def client_cores(self, condition: str) -> set[int]:
        """Return the cores that the clients may use: those without a busy server, if there are any."""
        busy = {ONE: {self.cores[0]}, STANDBY: {self.cores[1]}, TWO: set(self.cores[:2])}[condition]
        return set(self.cores) - busy or set(self.cores)


@dataclass(frozen=True, slots=True)
class Measured:
    """Recalls that were answered in a number of seconds, and the processor seconds that they took, by process."""

    recalls: int
    seconds: float
    primary: float
    standby: float
    clients: float

    @property
    def per_second(self) -> float:
        """Recalls a second."""
        return self.recalls / self.seconds

    @property
    def servers(self) -> float:
        """Processor seconds of both servers."""
        return self.primary + self.standby

    @property
    def busy(self) -> float:
        """How many cores servers and clients kept busy on average."""
        return (self.servers + self.clients) / self.seconds


async def measure(
    condition: str, instances: Instances, questions: Questions, *, clients: int, seconds: float
) -> Measured:
    """Let as many clients recall for each server that is searched, and count the recalls.

    Clients of the standby have a pool of the primary, on which what they find is read again.

    Raises:
        RuntimeError: a recall was degraded.
    """
    os.sched_setaffinity(0, instances.client_cores(condition))
    async with AsyncExitStack() as stack:
        recalls = []
        if condition != STANDBY:
            pool = await _pool(stack, instances.primary, instances.database, clients)
            recalls.append(HybridRecall(pool, time_budget=_TIME_BUDGET))
        if condition != ONE:
            replicas = await _pool(stack, instances.standby, instances.database, clients)
            primary = await _pool(stack, instances.primary, instances.database, clients)
            recalls.append(HybridRecall(replicas, primary=primary, time_budget=_TIME_BUDGET))
        numbers = count()
        for recall in recalls:
            stack.push_async_callback(recall.close)
            await asyncio.gather(*(_recall(recall, questions, next(numbers)) for _ in range(clients)))
        began, before = time.perf_counter(), instances.cpu_seconds()
        running = [
            _keep_recalling(recall, questions, numbers, began + seconds) for recall in recalls for _ in range(clients)
        ]
        answered = sum(await asyncio.gather(*running))
        passed, after = time.perf_counter() - began, instances.cpu_seconds()
    return Measured(answered, passed, *(last - first for first, last in zip(before, after, strict=True)))


async def _pool(stack: AsyncExitStack, server: MeasuredServer, database: str, size: int) -> Any:  # noqa: ANN401  (asyncpg's pool)
    return await stack.enter_async_context(asyncpg.create_pool(server.dsn(database), min_size=size, max_size=size))


async def _keep_recalling(recall: HybridRecall, questions: Questions, numbers: Iterator[int], end: float) -> int:
    answered = 0
    while time.perf_counter() < end:
        await _recall(recall, questions, next(numbers))
        answered += 1
    return answered


async def _recall(recall: HybridRecall, questions: Questions, number: int) -> None:
    place = number % len(questions.texts)
    vector = EmbeddedQuery(questions.vectors[place].tolist(), MODEL)
    result = await recall.recall(RecallQuery(questions.texts[place], user_id=EVERYONE, limit=_PAGE, vector=vector))
    if result.reason is not None:
        raise RuntimeError(f"a recall was degraded ({result.reason}); its time would not be its own")
