"""What a signal does: a service that is ready goes on serving for its shutdown delay, then drains."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import httpx
import pytest
import uvicorn

from memory_embedder.scheduling.service import EmbeddingService, State
from memory_embedder.server import shut_down
from memory_embedder.settings import Limits
from tests.unit.memory_embedder.conftest import Connect, until
from tests.unit.memory_embedder.conftest import MakeService as Make

NO_DRAIN = Limits(drain_seconds=0)


async def test_a_terminating_service_is_not_ready_but_serves_and_sends_its_callers_elsewhere(
    service: EmbeddingService, client: httpx.AsyncClient, probe: httpx.AsyncClient
) -> None:
    before = await client.post("/v1/embeddings", json={"input": "x"})
    service.begin_termination()
    after = await client.post("/v1/embeddings", json={"input": "x"})
    assert (await probe.get("/readyz")).json()["error"]["code"] == "draining"
    assert (await client.get("/v1/models")).status_code == 200
    assert [(answer.status_code, answer.headers.get("connection")) for answer in (before, after)] == [
        (200, None),
        (200, "close"),
    ]


async def test_a_service_stops_after_its_shutdown_delay_which_a_second_signal_ends(make_service: Make) -> None:
    service = make_service(shutdown_delay_seconds=120, limits=NO_DRAIN)
    service.load()
    server = uvicorn.Server(uvicorn.Config("unused:app"))
    signals: asyncio.Queue[int] = asyncio.Queue()
    stopping = asyncio.create_task(shut_down(service, server, signals))
    signals.put_nowait(signal.SIGTERM)
    await until(lambda: service.state is State.TERMINATING)
    assert not server.should_exit
    signals.put_nowait(signal.SIGTERM)
    await asyncio.wait_for(stopping, 20)
    assert (service.state, server.should_exit) == (State.DRAINING, True)
    service.close()


@pytest.mark.parametrize(
    ("number", "delay", "loaded"),
    [(signal.SIGTERM, 0, True), (signal.SIGTERM, 120, False), (signal.SIGINT, 120, True)],
)
async def test_a_service_stops_at_once_without_a_delay_before_it_is_ready_and_on_an_interrupt(
    *, make_service: Make, number: int, delay: int, loaded: bool
) -> None:
    service = make_service(shutdown_delay_seconds=delay, limits=NO_DRAIN)
    if loaded:
        service.load()
    server = uvicorn.Server(uvicorn.Config("unused:app"))
    signals: asyncio.Queue[int] = asyncio.Queue()
    signals.put_nowait(number)
    await asyncio.wait_for(shut_down(service, server, signals), 20)
    assert (service.state, server.should_exit) == (State.DRAINING, True)
    service.close()


async def test_what_is_not_answered_within_the_time_to_drain_is_refused_and_the_service_says_so(
    make_service: Make, engine: Any, connect: Connect
) -> None:
    """Callers then send it to another pod; a connection that is merely cut would tell them nothing."""
    service = make_service(limits=NO_DRAIN)
    service.load()
    engine.gate.clear()
    signals: asyncio.Queue[int] = asyncio.Queue()
    signals.put_nowait(signal.SIGINT)
    async with connect(service) as client:
        admitted = asyncio.create_task(client.post("/v1/embeddings", json={"input": ["a"] * 50}))
        await until(lambda: sum(service.reading().inflight.values()) > 0)
        await shut_down(service, uvicorn.Server(uvicorn.Config("unused:app")), signals)
        answer = await admitted
    finished = await asyncio.to_thread(service.close)
    engine.gate.set()
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "draining")
    assert not finished
    await until(lambda: not service.computing)
