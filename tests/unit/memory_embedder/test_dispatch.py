"""The dispatcher gives each batch to the right context, and no context sleeps while there is work for it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from memory_embedder.scheduling.lanes import Lane
from memory_embedder.scheduling.service import EmbeddingService
from tests.unit.memory_embedder.conftest import Connect, MakeService, until

LONG = "w " * 100  # fills a batch with its two separators
LONG_TOKENS = 102


@dataclass(frozen=True)
class Running:
    """A service with a number of cores, and its client; `engine.gate` blocks its computation."""

    service: EmbeddingService
    client: httpx.AsyncClient

    async def embed(self, lane: Lane, *texts: str) -> None:
        body = {"input": list(texts), "input_type": lane.value}
        assert (await self.client.post("/v1/embeddings", json=body)).status_code == 200

    async def until_computing(self, lane: Lane, tokens: int) -> None:
        await until(lambda: self.service.reading().inflight[lane] == tokens)


@pytest.fixture
def run(make_service: MakeService, connect: Connect) -> Any:
    @asynccontextmanager
    async def running(cores: int, free_cores: Callable[[int, int | None], int] | None = None) -> AsyncIterator[Running]:
        service = make_service(cores=cores, free_cores=free_cores)
        service.load()
        async with connect(service) as client:
            yield Running(service, client)
        assert await asyncio.to_thread(service.close)

    return running


async def test_lone_queries_are_computed_by_the_express_context_with_a_thread_for_each_core(
    run: Any, engine: Any
) -> None:
    async with run(cores=4) as running:
        for number in range(40):
            await running.embed(Lane.QUERY, f"question {number}")
    assert engine.threads_used == [4] * 40


async def test_a_query_beside_documents_takes_the_threads_that_they_leave_and_all_of_them_afterwards(
    run: Any, engine: Any
) -> None:
    async with run(cores=4) as running, asyncio.TaskGroup() as asked:
        engine.gate.clear()
        documents = asked.create_task(running.embed(Lane.DOCUMENT, LONG, LONG))
        await running.until_computing(Lane.DOCUMENT, 2 * LONG_TOKENS)
        query = asked.create_task(running.embed(Lane.QUERY, "q"))
        await running.until_computing(Lane.QUERY, 3)
        engine.gate.set()
        await asyncio.gather(documents, query)
        await running.embed(Lane.QUERY, "again")
    assert sorted(engine.threads_used) == [1, 1, 2, 4]


async def test_threads_that_compute_documents_leave_the_cores_to_everything_else(run: Any, engine: Any) -> None:
    async with run(cores=2) as running:
        await running.embed(Lane.DOCUMENT, LONG, LONG)
        await running.embed(Lane.QUERY, "q")
    assert engine.niceness == [19, 19, os.getpriority(os.PRIO_PROCESS, 0)]


@pytest.mark.parametrize(
    ("free", "threads"), [(4, 4), (3, 3), (1, 1), (0, 1), (16, 4)], ids=["all", "one taken", "one", "none", "more"]
)
async def test_a_query_gets_no_more_threads_than_cores_are_free_of_other_processes_when_it_begins(
    run: Any, engine: Any, free: int, threads: int
) -> None:
    async with run(cores=4, free_cores=lambda _own, _thread: free) as running:
        await running.embed(Lane.QUERY, "q")
    assert engine.threads_used == [threads]


async def test_our_own_threads_are_not_taken_for_other_processes(run: Any, engine: Any) -> None:
    counted: list[tuple[int, int | None]] = []

    def free_cores(own: int, thread: int | None) -> int:
        counted.append((own, thread))
        return 4

    async with run(cores=4, free_cores=free_cores) as running, asyncio.TaskGroup() as asked:
        await running.embed(Lane.QUERY, "alone")
        engine.gate.clear()
        asked.create_task(running.embed(Lane.DOCUMENT, LONG, LONG))
        await running.until_computing(Lane.DOCUMENT, 2 * LONG_TOKENS)
        asked.create_task(running.embed(Lane.QUERY, "q"))
        await running.until_computing(Lane.QUERY, 3)
        engine.gate.set()
    # The query's own thread, the threads of two documents, and the event loop's, which may run or sleep.
    assert counted == [(1, threading.get_native_id()), (1 + 2, threading.get_native_id())]


async def test_the_cores_are_counted_by_the_querys_own_thread_so_that_its_sleeping_caller_is_not_counted(
    run: Any,
) -> None:
    counting: list[str] = []

    def free_cores(_own: int, _thread: int | None) -> int:
        counting.append(threading.current_thread().name)
        return 4

    async with run(cores=4, free_cores=free_cores) as running:
        await running.embed(Lane.QUERY, "q")
    assert counting == ["express-0"]


async def test_queries_beyond_the_express_contexts_batch_are_taken_by_idle_document_contexts(
    run: Any, engine: Any
) -> None:
    async with run(cores=2) as running, asyncio.TaskGroup() as asked:
        engine.gate.clear()
        asked.create_task(running.embed(Lane.QUERY, LONG, LONG, LONG))
        await running.until_computing(Lane.QUERY, 3 * LONG_TOKENS)
        engine.gate.set()
    assert len(engine.seen) == 3


async def test_one_request_of_many_texts_wakes_every_document_context(run: Any, engine: Any) -> None:
    async with run(cores=4) as running, asyncio.TaskGroup() as asked:
        engine.gate.clear()
        asked.create_task(running.embed(Lane.DOCUMENT, *[LONG] * 6))
        await running.until_computing(Lane.DOCUMENT, 4 * LONG_TOKENS)
        engine.gate.set()
    assert len(engine.seen) == 6


async def test_no_request_is_forgotten_when_many_callers_use_both_lanes(run: Any) -> None:
    async with run(cores=3) as running, asyncio.timeout(60), asyncio.TaskGroup() as asked:
        for number in range(300):
            lane = Lane.QUERY if number % 3 else Lane.DOCUMENT
            asked.create_task(running.embed(lane, *[f"text {number} {part}" for part in range(1 + number % 5)]))


SPINS = "import memory_embedder.engine, os; print(os.environ.get('GOMP_SPINCOUNT'))"


@pytest.mark.parametrize(
    ("given", "spins"),
    [({}, "10000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, "None")],
    ids=["by default", "set", "another policy"],
)
def test_threads_that_wait_for_each_other_spin_briefly_unless_the_user_says_otherwise(
    given: dict[str, str], spins: str
) -> None:
    environment = {key: value for key, value in os.environ.items() if key not in {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}}
    done = subprocess.run(
        [sys.executable, "-c", SPINS], env=environment | given, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == spins
