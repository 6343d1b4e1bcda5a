"""A service that is asked to compute on a GPU: what it does where layers or contexts do not fit there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from memory_embedder.errors import EmbedderError
from memory_embedder.scheduling.service import State
from tests.unit.memory_embedder.conftest import Connect
from tests.unit.memory_embedder.conftest import MakeService as Make


async def test_a_requested_gpu_that_is_not_used_keeps_the_service_alive_and_unready(
    make_service: Make, connect_probe: Connect
) -> None:
    service = make_service(gpu_layers=-1)
    with pytest.raises(EmbedderError) as refused:
        service.load()
    service.refuse(refused.value)
    async with connect_probe(service) as probe:
        ready = await probe.get("/readyz")
        metrics = (await probe.get("/metrics")).text
        assert (await probe.get("/healthz")).status_code == 200
    assert (ready.status_code, ready.json()["error"]["code"]) == (503, "gpu_not_used")
    assert "--allow-cpu" in ready.json()["error"]["message"]
    assert "memory_embedder_gpu_layers_offloaded 0.0" in metrics
    assert "memory_embedder_ready 0.0" in metrics


@pytest.mark.parametrize(
    ("asked", "offloaded", "allowed", "serves"),
    [
        (-1, 7, False, True),
        (-1, 6, False, False),
        (-1, 0, True, True),
        (0, 0, False, True),
        (3, 3, False, True),
        (3, 2, False, False),
        (99, 7, False, True),
    ],
)
async def test_all_requested_layers_must_be_offloaded_unless_a_cpu_is_allowed(
    *, make_service: Make, engine: Any, asked: int, offloaded: int, allowed: bool, serves: bool
) -> None:
    engine.facts = replace(engine.facts, layers_offloaded=offloaded, device="cuda0" if offloaded else "cpu")
    service = make_service(gpu_layers=asked, allow_cpu=allowed)
    if serves:
        service.load()
        assert service.state is State.READY
        service.close()
    else:
        with pytest.raises(EmbedderError, match="layers were to run on a GPU"):
            service.load()


def test_no_more_contexts_are_made_than_fit_into_the_gpus_memory(make_service: Make, engine: Any) -> None:
    engine.facts = replace(engine.facts, layers_offloaded=7, device="cuda0", most_contexts=2)
    service = make_service(gpu_layers=-1)
    service.load()
    assert engine.computers == 2  # for queries, and one instead of two for documents
    service.close()
