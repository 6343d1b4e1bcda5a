"""The states of the service, and its answers in each."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from fastapi import Request

from memory_embedder.engine.protocol import Engine, EngineOptions
from memory_embedder.errors import EmbedderError, ErrorKind
from memory_embedder.http.intake import while_connected
from memory_embedder.scheduling import service as service_module
from memory_embedder.scheduling.lanes import Lane
from memory_embedder.scheduling.service import EmbeddingService
from memory_embedder.settings import Limits
from tests.unit.memory_embedder.conftest import FACTS, Connect, until
from tests.unit.memory_embedder.conftest import MakeService as Make


async def embed_while(leaves: Callable[[], Awaitable[None]], service: EmbeddingService, texts: list[str]) -> None:
    """Have texts embedded for a caller that closes its connection when `leaves` returns."""

    async def receive() -> dict[str, str]:
        await leaves()
        return {"type": "http.disconnect"}

    async with while_connected(Request({"type": "http"}, receive)):
        await service.embed(Lane.DOCUMENT, texts, truncate=True, skip=False)


async def test_while_loading_the_service_is_alive_but_not_ready_and_says_when_to_try_again(
    make_service: Make, connect: Connect, connect_probe: Connect
) -> None:
    service = make_service()
    async with connect(service) as client, connect_probe(service) as probe:
        assert (await probe.get("/healthz")).status_code == 200
        ready = await probe.get("/readyz")
        answer = await client.post("/v1/embeddings", json={"input": "x"})
    assert ready.status_code == answer.status_code == 503
    assert answer.json()["error"]["code"] == "loading"
    assert int(answer.headers["retry-after"]) >= 1


async def test_the_metric_of_refused_requests_counts_those_of_callers_and_no_probes(
    make_service: Make, connect: Connect, connect_probe: Connect
) -> None:
    """A pod that is not ready is asked every few seconds, and would seem to refuse callers that it has none of."""
    service = make_service()
    async with connect(service) as client, connect_probe(service) as probe:
        for _ in range(3):
            assert (await probe.get("/readyz")).status_code == 503
        assert "memory_embedder_rejected_total{" not in (await probe.get("/metrics")).text
        await client.post("/v1/embeddings", json={"input": "x"})
        metrics = (await probe.get("/metrics")).text
    assert 'memory_embedder_rejected_total{code="loading"} 1.0' in metrics
    assert 'memory_embedder_requests_total{route="/readyz",status="503"} 3.0' in metrics


async def test_a_refusal_holds_no_frames_of_the_scrapes_that_it_was_raised_for(
    make_service: Make, connect_probe: Connect
) -> None:
    """A pod without its GPU stays alive, and would hold some kilobytes more with each scrape."""
    service, error = make_service(), EmbedderError(ErrorKind.GPU_NOT_USED, "There is no GPU.")
    service.refuse(error)
    async with connect_probe(service) as probe:
        assert "memory_embedder_ready 0.0" in (await probe.get("/metrics")).text
        assert (await probe.get("/readyz")).json()["error"]["code"] == "gpu_not_used"
        assert "memory_embedder_ready 0.0" in (await probe.get("/metrics")).text
    assert error.__traceback__ is None


async def test_the_service_is_ready_only_after_every_context_has_computed_its_largest_batch(
    make_service: Make, engine: Any, connect_probe: Connect
) -> None:
    service = make_service(contexts=3)
    service.load()
    async with connect_probe(service) as probe:
        assert (await probe.get("/readyz")).status_code == 200
    assert engine.computers == 4
    service.close()
    assert engine.closed


async def test_the_metrics_say_which_file_is_served(
    make_service: Make, connect: Connect, connect_probe: Connect
) -> None:
    """The operator compares its digest with that of the file that made the stored vectors."""
    service = make_service()
    service.load()
    async with connect(service) as client, connect_probe(service) as probe:
        card = (await client.get("/v1/models")).json()["data"][0]
        metrics = (await probe.get("/metrics")).text
    labels = f'digest="{card["digest"]}",model="{card["id"]}",pooling="{card["pooling"]}"'
    assert f"memory_embedder_model_info{{{labels}}} 1.0" in metrics


async def test_a_failed_batch_costs_only_its_own_request_and_the_context_is_replaced(
    service: EmbeddingService, engine: Any, connect: Connect, connect_probe: Connect
) -> None:
    before = engine.computers
    engine.failures = 1
    async with connect(service) as client, connect_probe(service) as probe:
        failed = await client.post("/v1/embeddings", json={"input": "first"})
        after = await client.post("/v1/embeddings", json={"input": "second"})
        metrics = (await probe.get("/metrics")).text
    assert (failed.status_code, failed.json()["error"]["code"]) == (503, "engine_failed")
    assert after.status_code == 200
    assert engine.computers == before + 1
    assert "memory_embedder_engine_failures_total 1.0" in metrics


async def test_batches_that_fail_count_neither_as_computed_nor_in_the_measured_rate(
    service: EmbeddingService, engine: Any, client: httpx.AsyncClient
) -> None:
    before = service.reading().tokens_per_second
    engine.failures = 20
    for _ in range(10):
        answers = await asyncio.gather(*(client.post("/v1/embeddings", json={"input": "w " * 250}) for _ in range(2)))
        assert [answer.status_code for answer in answers] == [503, 503]
    await until(lambda: "engine_failures_total 20.0" in service.metrics.render().decode())
    assert service.reading().tokens_per_second <= before
    metrics = service.metrics.render().decode()
    for series in ("documents_total", "tokens_total", "batch_seconds_count"):
        assert f'memory_embedder_{series}{{lane="document"}} 0.0' in metrics


async def test_a_worker_survives_an_unexpected_exception(
    service: EmbeddingService, engine: Any, connect: Connect
) -> None:
    engine.failures, engine.crash = 1, ZeroDivisionError
    async with connect(service) as client:
        failed = await client.post("/v1/embeddings", json={"input": "first"})
        after = await client.post("/v1/embeddings", json={"input": "second"})
    assert (failed.status_code, after.status_code) == (503, 200)
    assert "CANARY" not in failed.text


async def test_liveness_notices_a_hung_batch_and_recovers_with_it(
    make_service: Make, engine: Any, connect: Connect, connect_probe: Connect
) -> None:
    service = make_service(limits=Limits(hang_seconds=0.05))
    service.load()
    engine.gate.clear()
    async with connect(service) as client, connect_probe(service) as probe:
        stuck = asyncio.create_task(client.post("/v1/embeddings", json={"input": "x"}))
        statuses: list[int] = []
        async with asyncio.timeout(20):
            while 503 not in statuses:
                statuses.append((await probe.get("/healthz")).status_code)
                await asyncio.sleep(0.01)
        engine.gate.set()
        assert (await stuck).status_code == 200
        await until(lambda: service.reading().inflight["document"] == 0)
        assert (await probe.get("/healthz")).status_code == 200
    service.close()


async def test_a_batch_that_takes_as_long_as_the_largest_one_at_start_is_not_hung(
    make_service: Make, engine: Any, connect: Connect, connect_probe: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A window of thousands of tokens on one thread takes minutes, and to end the pod would begin them anew."""
    service = make_service(limits=Limits(hang_seconds=0))
    service.load()
    monkeypatch.setattr(service, "_longest_seconds", 1000.0)
    engine.gate.clear()
    async with connect(service) as client, connect_probe(service) as probe:
        slow = asyncio.create_task(client.post("/v1/embeddings", json={"input": "x"}))
        await until(lambda: sum(service.reading().inflight.values()) > 0)
        assert (await probe.get("/healthz")).status_code == 200
        engine.gate.set()
        assert (await slow).status_code == 200
    service.close()


async def test_a_context_that_is_replaced_at_the_second_attempt_leaves_the_service_alive(
    make_service: Make, engine: Any, connect: Connect, connect_probe: Connect
) -> None:
    service = make_service(limits=Limits(hang_seconds=0))
    service.load()
    engine.failures, engine.refused_contexts = 1, 1
    async with connect(service) as client, connect_probe(service) as probe, asyncio.timeout(20):
        assert (await client.post("/v1/embeddings", json={"input": "first"})).status_code == 503
        while engine.refused_contexts or (await probe.get("/healthz")).status_code != 200:  # noqa: ASYNC110 -- another thread changes it
            await asyncio.sleep(0.01)
    service.close()


async def test_the_service_is_not_ready_and_refuses_requests_while_no_context_can_compute(
    make_service: Make, engine: Any, connect: Connect, connect_probe: Connect
) -> None:
    service = make_service()  # an express context, and one for documents
    service.load()
    engine.failures, engine.refused_contexts = 2, 10**9
    query = {"input": "q", "input_type": "query"}
    async with connect(service) as client, connect_probe(service) as probe, asyncio.timeout(20):
        assert (await client.post("/v1/embeddings", json=query)).status_code == 503
        assert (await probe.get("/readyz")).status_code == 200  # the other one takes queries, too
        assert (await client.post("/v1/embeddings", json=query)).status_code == 503
        ready = await probe.get("/readyz")
        assert (ready.status_code, ready.json()["error"]["code"]) == (503, "engine_failed")
        service.require_serving()  # a reranker has contexts of its own, and cached vectors need none
        assert "memory_embedder_ready 0.0" in (await probe.get("/metrics")).text
        assert (await client.post("/v1/embeddings", json=query)).json()["error"]["code"] == "engine_failed"
        engine.refused_contexts = 0
        while (await probe.get("/readyz")).status_code != 200:  # noqa: ASYNC110 -- another thread changes it
            await asyncio.sleep(0.01)
        assert "memory_embedder_ready 1.0" in (await probe.get("/metrics")).text
        assert (await client.post("/v1/embeddings", json=query)).status_code == 200
    service.close()


async def test_a_context_that_is_made_anew_does_not_change_how_long_a_batch_may_take(
    make_service: Make, engine: Any, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = make_service(limits=Limits(hang_seconds=0))
    service.load()
    at_start, make_computer = service._longest_seconds, engine.computer

    def slow(threads: int) -> Any:
        computer = make_computer(threads)
        embed = computer.embed

        def embed_slowly(sequences: Any) -> Any:
            time.sleep(at_start + 0.01)
            return embed(sequences)

        computer.embed = embed_slowly
        return computer

    monkeypatch.setattr(engine, "computer", slow)
    engine.failures = 1
    async with connect(service) as client:
        assert [(await client.post("/v1/embeddings", json={"input": "x"})).status_code for _ in range(2)] == [503, 200]
    assert 0 < service._longest_seconds == at_start
    service.close()


async def test_draining_answers_admitted_requests_and_refuses_later_ones(
    make_service: Make, engine: Any, connect: Connect, connect_probe: Connect
) -> None:
    service = make_service()
    service.load()
    engine.gate.clear()
    async with connect(service) as client, connect_probe(service) as probe:
        admitted = asyncio.create_task(client.post("/v1/embeddings", json={"input": ["a"] * 50}))
        await until(lambda: sum(service.reading().inflight.values()) > 0)
        service.begin_drain()
        late = await client.post("/v1/embeddings", json={"input": "late"})
        ready = await probe.get("/readyz")
        closing = asyncio.create_task(asyncio.to_thread(service.close))
        engine.gate.set()
        answer = await admitted
        finished = await closing
    assert (answer.status_code, len(answer.json()["data"])) == (200, 50)
    assert (late.status_code, late.json()["error"]["code"]) == (503, "draining")
    assert ready.status_code == 503
    assert finished


async def test_an_engine_is_not_freed_while_its_contexts_are_being_made(make_service: Make, engine: Any) -> None:
    service, make_computer = make_service(), engine.computer
    begun, may_go_on = threading.Event(), threading.Event()

    def slow(threads: int) -> Any:
        begun.set()
        may_go_on.wait(30)
        return make_computer(threads)

    engine.computer = slow
    loading = asyncio.create_task(asyncio.to_thread(service.load))
    await until(begun.is_set)
    assert await asyncio.to_thread(service.close)
    assert (service.computing, engine.closed) == (True, False)
    may_go_on.set()
    await loading
    assert await asyncio.to_thread(service.close)
    assert (service.computing, engine.closed) == (False, True)


async def test_an_engine_is_not_freed_while_it_computes_for_a_caller_that_has_gone(
    make_service: Make, engine: Any
) -> None:
    service = make_service(limits=Limits(drain_seconds=0.1))
    service.load()
    engine.gate.clear()

    async def gone() -> None:
        await until(lambda: sum(service.reading().inflight.values()) > 0)

    with pytest.raises(EmbedderError):
        await embed_while(gone, service, ["text"])
    assert await asyncio.to_thread(service.close)
    assert (service.computing, engine.closed) == (True, False)
    engine.gate.set()
    await until(lambda: not service.computing)


async def test_a_full_lane_answers_429_with_the_seconds_until_there_is_room(
    make_service: Make, engine: Any, connect: Connect
) -> None:
    service = make_service(limits=Limits(queued_document_tokens=600))
    service.load()
    engine.gate.clear()
    async with connect(service) as client:
        first = asyncio.create_task(client.post("/v1/embeddings", json={"input": ["w " * 100] * 5}))
        await until(lambda: sum(service.reading().inflight.values()) > 0)
        refused = await client.post("/v1/embeddings", json={"input": ["w " * 100] * 5})
        query = asyncio.create_task(client.post("/v1/embeddings", json={"input": "q", "input_type": "query"}))
        oversized = await client.post("/v1/embeddings", json={"input": ["w " * 100] * 20})
        engine.gate.set()
        assert [answer.status_code for answer in await asyncio.gather(first, query)] == [200, 200]
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "overloaded")
    assert int(refused.headers["retry-after"]) >= 1
    assert (oversized.status_code, oversized.json()["error"]["code"]) == (413, "too_large")
    service.close()


async def test_texts_of_a_disconnected_caller_are_not_computed(service: EmbeddingService, engine: Any) -> None:
    engine.gate.clear()

    async def leaves() -> None:
        await until(lambda: service.reading().queued["document"] > 400)

    staying = asyncio.create_task(service.embed(Lane.DOCUMENT, ["s " * 200], truncate=True, skip=False))
    await until(lambda: sum(service.reading().inflight.values()) > 0)
    with pytest.raises(EmbedderError) as gone:
        await embed_while(leaves, service, ["g " * 200] * 10)
    assert gone.value.kind is ErrorKind.CLIENT_GONE
    engine.gate.set()
    await staying
    await until(lambda: sum(service.reading().inflight.values()) == 0)
    assert sum(sum(batch) for batch in engine.seen) <= 2 * 202
    assert service.reading().queued["document"] == 0


async def test_the_texts_of_a_caller_that_leaves_are_not_tokenised_any_more(
    service: EmbeddingService, engine: Any
) -> None:
    encoded, encode = 0, engine.encode

    def slow(text: str) -> Any:
        nonlocal encoded
        encoded += 1
        time.sleep(0.01)
        return encode(text)

    async def leaves() -> None:
        await until(lambda: encoded > 0)

    engine.encode = slow
    with pytest.raises(EmbedderError) as gone:
        await embed_while(leaves, service, ["w" * 17_000] * 300)
    assert gone.value.kind is ErrorKind.CLIENT_GONE
    assert encoded < 150


def test_models_leave_the_memory_that_large_requests_may_take(
    make_service: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "available_memory", lambda: 1 << 30)
    service = make_service(limits=Limits(large_bytes=64 << 20), reranker="bge-reranker-base")
    make_engine, planned = service._make_engine, []

    def observed(options: EngineOptions) -> Engine:
        planned.append(options)
        return make_engine(options)

    monkeypatch.setattr(service, "_make_engine", observed)
    service.load()
    service.close()
    first, second = (options.memory for options in planned)
    assert first == (1 << 30) - (64 << 20)
    assert second == first - FACTS.memory_estimate_bytes


async def test_the_bodies_in_memory_are_bounded_together(make_service: Make, engine: Any, connect: Connect) -> None:
    service = make_service(limits=Limits(large_bytes=150_000))
    service.load()
    engine.gate.clear()
    async with connect(service) as client:
        held = asyncio.create_task(client.post("/v1/embeddings", json={"input": "a" * 100_000}))
        await until(lambda: sum(service.reading().inflight.values()) > 0)
        refused = await client.post("/v1/embeddings", json={"input": "b" * 100_000})
        engine.gate.set()
        assert (await held).status_code == 200
        assert (await client.post("/v1/embeddings", json={"input": "b" * 100_000})).status_code == 200
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    service.close()
