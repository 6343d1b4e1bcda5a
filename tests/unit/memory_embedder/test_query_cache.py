"""The query cache answers a caller only what the same caller has sent, and keeps nothing where anybody may call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from memory_embedder.scheduling.query_cache import CacheKey, QueryCache
from tests.unit.memory_embedder.conftest import Connect, MakeService

QUERY = {"input": ["one two", "three"], "input_type": "query"}


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_text("alice")
    return path


def replace_key(path: Path, key: str) -> None:
    path.unlink()
    path.write_text(key)


async def ask(client: httpx.AsyncClient, key: str | None = None, body: dict[str, Any] = QUERY) -> dict[str, Any]:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    answer = await client.post("/v1/embeddings", json=body, headers=headers)
    assert answer.status_code == 200
    return dict(answer.json())


async def test_a_repeated_query_of_a_caller_with_a_key_is_not_computed_again_and_has_the_same_usage(
    make_service: MakeService, connect: Connect, connect_probe: Connect, engine: Any, key_file: Path
) -> None:
    service = make_service(api_key_file=key_file)
    service.load()
    async with connect(service) as client, connect_probe(service) as probe:
        first = await ask(client, "alice")
        computed = len(engine.seen)
        assert await ask(client, "alice") == first
        assert "memory_embedder_query_cache_hits_total 2.0" in (await probe.get("/metrics")).text
    assert len(engine.seen) == computed
    service.close()


@pytest.mark.promise("query-cache-reveals-nothing")
@pytest.mark.finding("M2")
async def test_where_anybody_may_call_nobody_learns_whether_a_query_was_sent_before(
    make_service: MakeService, connect: Connect, connect_probe: Connect, engine: Any
) -> None:
    service = make_service()
    service.load()
    async with connect(service) as client, connect_probe(service) as probe:
        await ask(client)
        computed = sum(map(len, engine.seen))
        await ask(client)
        metrics = (await probe.get("/metrics")).text
    assert sum(map(len, engine.seen)) == 2 * computed
    assert "memory_embedder_query_cache_hits_total 0.0" in metrics
    assert "memory_embedder_query_cache_misses_total 0.0" in metrics
    service.close()


@pytest.mark.promise("query-cache-reveals-nothing")
@pytest.mark.finding("M2")
async def test_the_holder_of_another_key_is_not_answered_from_the_cache(
    make_service: MakeService, connect: Connect, connect_probe: Connect, key_file: Path
) -> None:
    service = make_service(api_key_file=key_file)
    service.load()
    async with connect(service) as client, connect_probe(service) as probe:
        await ask(client, "alice")
        replace_key(key_file, "mallory")
        await ask(client, "mallory")
        assert "memory_embedder_query_cache_hits_total 0.0" in (await probe.get("/metrics")).text
    service.close()


def test_the_many_queries_of_a_caller_displace_no_entry_of_one_with_fewer() -> None:
    cache = QueryCache(8)
    alice, mallory = bytes(32), bytes(31) + b"m"
    own = [cache.key(alice, text) for text in ("one", "two", "three")]
    other = [cache.key(mallory, f"text {number}") for number in range(100)]
    for key in (*own, *other):
        cache.put(key, np.zeros(3, dtype=np.float32), 1, truncated=False)
    assert [cache.get(key) is not None for key in own] == [True] * 3
    assert [cache.get(key) is not None for key in other] == [False] * 95 + [True] * 5
    assert len(cache) == 8


def test_a_key_that_is_not_used_for_an_hour_leaves_the_whole_cache_to_the_others() -> None:
    seconds = 0.0
    cache = QueryCache(8, lambda: seconds)
    replaced, current = bytes(32), bytes(31) + b"c"
    old = [cache.key(replaced, f"text {number}") for number in range(8)]
    own = [cache.key(current, f"text {number}") for number in range(8)]

    def held(keys: list[CacheKey]) -> int:
        return sum(cache.get(key) is not None for key in keys)

    def put(keys: list[CacheKey]) -> None:
        for key in keys:
            cache.put(key, np.zeros(3, dtype=np.float32), 1, truncated=False)

    put(old)
    put(own)
    assert (held(old), held(own)) == (4, 4)
    seconds = 3600.0
    put(own)
    assert (held(old), held(own)) == (4, 4)
    seconds = 7201.0
    put(own)
    assert (held(old), held(own)) == (0, 8)


async def test_a_text_is_cached_as_what_it_was_sent_as(
    make_service: MakeService, connect: Connect, connect_probe: Connect, key_file: Path
) -> None:
    service = make_service(api_key_file=key_file)
    service.load()
    async with connect(service) as client, connect_probe(service) as probe:
        for kind in ("document", "query", "document"):
            await ask(client, "alice", {"input": "text", "input_type": kind})
        assert "memory_embedder_query_cache_hits_total 0.0" in (await probe.get("/metrics")).text
    service.close()
