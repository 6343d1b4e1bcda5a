"""Which context computes what, and that none sleeps while there is work for it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from memory_embedder.lanes import Lane
from memory_embedder.service import EmbeddingService

Connect = Callable[[EmbeddingService], httpx.AsyncClient]
Make = Callable[..., EmbeddingService]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 -- the state changes on another thread, which knows no event of ours
            await asyncio.sleep(0.005)


async def test_lone_queries_are_computed_by_the_express_context_with_a_thread_for_each_core(
    make_service: Make, engine: Any, connect: Connect
) -> None:
    service = make_service(threads=4)
    service.load()
    async with connect(service) as client:
        for number in range(40):
            body = {"input": f"question {number}", "input_type": "query"}
            assert (await client.post("/v1/embeddings", json=body)).status_code == 200
    service.close()
    assert engine.threads_used == [4] * 40


async def test_a_query_beside_documents_takes_the_threads_that_they_leave_and_all_of_them_afterwards(
    make_service: Make, engine: Any, connect: Connect
) -> None:
    service = make_service(threads=4)
    service.load()
    engine.gate.clear()
    async with connect(service) as client:
        documents = asyncio.create_task(client.post("/v1/embeddings", json={"input": ["d " * 100] * 3}))
        await until(lambda: service.reading().inflight[Lane.DOCUMENT] == 3 * 102)
        query = asyncio.create_task(client.post("/v1/embeddings", json={"input": "q", "input_type": "query"}))
        await until(lambda: service.reading().inflight[Lane.QUERY] == 3)
        engine.gate.set()
        assert [one.status_code for one in await asyncio.gather(documents, query)] == [200, 200]
        await client.post("/v1/embeddings", json={"input": "again", "input_type": "query"})
    service.close()
    assert sorted(engine.threads_used) == [1, 1, 1, 1, 4]


async def test_queries_beyond_the_express_contexts_batch_are_taken_by_idle_document_contexts(
    make_service: Make, engine: Any, connect: Connect
) -> None:
    service = make_service(threads=2)
    service.load()
    engine.gate.clear()
    async with connect(service) as client:
        body = {"input": ["q " * 100] * 3, "input_type": "query"}
        asked = asyncio.create_task(client.post("/v1/embeddings", json=body))
        await until(lambda: service.reading().inflight[Lane.QUERY] == 3 * 102)
        engine.gate.set()
        assert (await asked).status_code == 200
    service.close()
    assert sorted(engine.threads_used) == [1, 1, 2]


async def test_one_request_of_many_texts_wakes_every_document_context(
    make_service: Make, engine: Any, connect: Connect
) -> None:
    service = make_service(threads=4)
    service.load()
    engine.gate.clear()
    async with connect(service) as client:
        asked = asyncio.create_task(client.post("/v1/embeddings", json={"input": ["d " * 100] * 6}))
        await until(lambda: service.reading().inflight[Lane.DOCUMENT] == 4 * 102)
        engine.gate.set()
        assert (await asked).status_code == 200
    assert await asyncio.to_thread(service.close)


async def test_no_request_is_forgotten_when_both_lanes_are_busy_from_many_sides(
    make_service: Make, connect: Connect
) -> None:
    service = make_service(threads=3)
    service.load()
    async with connect(service) as client:

        async def ask(number: int) -> int:
            kind = "query" if number % 3 else "document"
            body = {"input": [f"text {number} {part}" for part in range(1 + number % 5)], "input_type": kind}
            return (await client.post("/v1/embeddings", json=body)).status_code

        async with asyncio.timeout(60):
            answers = await asyncio.gather(*(ask(number) for number in range(300)))
    assert set(answers) == {200}
    assert await asyncio.to_thread(service.close)


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
