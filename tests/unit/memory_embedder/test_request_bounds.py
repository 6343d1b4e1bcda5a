"""No single request costs the service much, and none delays another caller's query."""

from __future__ import annotations

import asyncio
import json
import threading
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson
import pytest

from memory_embedder.errors import EmbedderError, ErrorKind
from memory_embedder.http import routes
from memory_embedder.http.answers import EmbeddingAnswer, write_pieces
from memory_embedder.http.bodies import MOST_VALUES, MemoryBudget, check_structure
from memory_embedder.scheduling.service import Embedded, EmbeddingService
from memory_embedder.settings import Limits
from tests.support.exhausting_bodies import EXHAUSTING, exhausting
from tests.unit.memory_embedder.conftest import Connect, MakeService, until

HEADERS = {"content-type": "application/json"}
MANY_VALUES = {
    "numbers": (b"1,", b"1", 413),
    "lists": (b"[],", b"[]", 413),
    "lists of numbers": (b"[1,2],", b"[1]", 413),
    "nulls": (b"null,", b"null", 413),
    "objects": (b"{},", b"{}", 413),
    "empty texts": (b'"",', b'""', 413),
    "nesting": (b"[", b"", 422),
}


def filled(part: bytes, last: bytes, size: int = 1 << 18) -> bytes:
    return b'{"input":[' + part * (size // len(part)) + last + b"]}"


@pytest.mark.promise("embedder-requests-bounded")
@pytest.mark.finding("H7", case="numbers")
@pytest.mark.parametrize(("part", "last", "status"), MANY_VALUES.values(), ids=MANY_VALUES.keys())
async def test_a_body_of_many_values_takes_no_more_memory_than_a_few_times_its_size(
    client: httpx.AsyncClient, part: bytes, last: bytes, status: int
) -> None:
    body = filled(part, last)
    await client.post("/v1/embeddings", content=body, headers=HEADERS)
    tracemalloc.start()
    try:
        answer = await client.post("/v1/embeddings", content=body, headers=HEADERS)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    assert peak < 8 * len(body)


@pytest.mark.promise("embedder-requests-bounded")
@pytest.mark.parametrize("name", [name for name in EXHAUSTING if name != "long texts"])  # slow in the fake engine
async def test_every_exhausting_request_of_the_flood_gets_an_answer_that_is_documented(
    client: httpx.AsyncClient, name: str
) -> None:
    answer = await client.post("/v1/embeddings", content=exhausting(name), headers=HEADERS)
    assert answer.status_code in {200, 400, 413, 422}
    assert answer.status_code == 200 or set(answer.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    "text",
    ["a, b, [c], {d}", 'a "quoted" word', "back\\slash", "ends with a backslash\\", '\\"', "\\\\", "\u2028 é 🚀"],
)
def test_what_looks_like_structure_within_a_text_does_not_count(text: str) -> None:
    check_structure(json.dumps({"input": [text * 400] * 100}).encode())


def test_as_many_texts_as_a_request_may_have_pass_and_many_more_do_not() -> None:
    check_structure(json.dumps({"input": ["text"] * 2048, "user": "x", "metadata": {"a": [1, 2, 3]}}).encode())
    with pytest.raises(EmbedderError) as refusal:
        check_structure(json.dumps({"input": ["text"] * (MOST_VALUES + 1)}).encode())
    assert refusal.value.kind is ErrorKind.TOO_LARGE


@pytest.mark.finding("H7")
@pytest.mark.parametrize(("size", "elsewhere"), [(1_000, False), (100_000, True)])
async def test_only_a_small_body_is_parsed_on_the_event_loop(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, size: int, *, elsewhere: bool
) -> None:
    threads: list[int] = []
    parse = routes.parse_and_check

    def observed(body: bytes, service: EmbeddingService) -> Any:
        threads.append(threading.get_ident())
        return parse(body, service)

    monkeypatch.setattr(routes, "parse_and_check", observed)
    assert (await client.post("/v1/embeddings", json={"input": "x" * size})).status_code == 200
    assert (threads != [threading.get_ident()]) is elsewhere


async def test_large_bodies_are_parsed_one_after_the_other(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse, busy, most = routes.parse_and_check, 0, 0

    def observed(body: bytes, service: EmbeddingService) -> Any:
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        parsed = parse(body, service)
        busy -= 1
        return parsed

    monkeypatch.setattr(routes, "parse_and_check", observed)
    await asyncio.gather(*(client.post("/v1/embeddings", json={"input": "x" * 200_000}) for _ in range(8)))
    assert most == 1


async def test_a_long_text_is_tokenised_in_turns_with_others(client: httpx.AsyncClient, engine: Any) -> None:
    encoded: list[str] = []
    encode: Callable[[str], Any] = engine.encode

    def observed(text: str) -> Any:
        encoded.append(text[:1])
        return encode(text)

    engine.encode = observed
    bulk = [client.post("/v1/embeddings", json={"input": [name + "w" * 17_000] * 40}) for name in "ab"]
    query = client.post("/v1/embeddings", json={"input": "q" + "w" * 5_000, "input_type": "query"})
    await asyncio.gather(*bulk, query)
    assert encoded.index("q") < 20


async def test_a_long_query_is_tokenised_however_many_requests_of_documents_are(
    client: httpx.AsyncClient, engine: Any
) -> None:
    tokenised = threading.Event()
    waited: list[bool] = []
    encode: Callable[[str], Any] = engine.encode

    def observed(text: str) -> Any:
        if text.startswith("q"):
            tokenised.set()
        else:
            waited.append(tokenised.wait(5))
        return encode(text)

    engine.encode = observed
    bulk = [client.post("/v1/embeddings", json={"input": ["d" + "w" * 5_000]}) for _ in range(6)]
    query = client.post("/v1/embeddings", json={"input": "q" + "w" * 5_000, "input_type": "query"})
    await asyncio.gather(*bulk, query)
    assert all(waited)


@pytest.mark.parametrize(("before", "status"), [(0, 413), (2, 429)], ids=["larger than one may be", "full lane"])
async def test_of_a_request_that_is_refused_no_more_is_tokenised_than_shows_that_it_does_not_fit(
    make_service: MakeService, connect: Connect, engine: Any, before: int, status: int
) -> None:
    service = make_service(limits=Limits(queued_query_tokens=2100, query_request_tokens=1500))
    service.load()
    engine.gate.clear()
    encoded, encode = 0, engine.encode

    def observed(text: str) -> Any:
        nonlocal encoded
        encoded += 1
        return encode(text)

    async with connect(service) as client:
        body = {"input": ["w " * 99] * 10, "input_type": "query"}
        waiting = [asyncio.create_task(client.post("/v1/embeddings", json=body)) for _ in range(before)]
        await until(lambda: service.reading().queued["query"] >= before * 800)
        engine.encode = observed
        body = {"input": ["w " * 20 + " " * 2000] * 2000, "input_type": "query"}
        refused = await client.post("/v1/embeddings", json=body)
        engine.gate.set()
        await asyncio.gather(*waiting)
    assert refused.status_code == status
    assert encoded < 100
    service.close()


async def test_a_body_that_stops_arriving_is_refused_and_its_connection_closed(
    make_service: MakeService, connect: Connect
) -> None:
    service = make_service(limits=Limits(body_seconds=0.05))
    service.load()

    async def half_a_body() -> AsyncIterator[bytes]:
        yield b'{"input": "'
        await asyncio.Event().wait()

    async with connect(service) as client:
        answer = await client.post("/v1/embeddings", content=half_a_body(), headers=HEADERS)
    assert (answer.status_code, answer.json()["error"]["code"]) == (408, "body_timeout")
    assert answer.headers["connection"] == "close"
    service.close()


def vectors(count: int) -> Embedded:
    return Embedded(np.arange(count * 8, dtype=np.float32).reshape(count, 8), tokens=count, truncated=frozenset({0}))


@pytest.mark.parametrize("count", [1, 32, 33, 100])
def test_the_pieces_of_an_answer_are_the_answer(count: int) -> None:
    body = orjson.loads(b"".join(write_pieces(vectors(count), "m", "sha256:aa", as_base64=False)))
    assert [item["index"] for item in body["data"]] == list(range(count))
    assert np.array_equal([item["embedding"] for item in body["data"]], vectors(count).vectors)
    assert body["usage"] == {"prompt_tokens": count, "total_tokens": count, "truncated_inputs": 1}
    assert (body["model"], body["digest"]) == ("m", "sha256:aa")


async def test_others_have_their_turn_between_the_pieces_of_a_large_answer() -> None:
    turns = 0
    finished = False

    async def other() -> None:
        nonlocal turns
        while not finished:
            turns += 1
            await asyncio.sleep(0)

    pieces = 0

    async def send(message: Any) -> None:
        nonlocal pieces
        pieces += message["type"] == "http.response.body"

    task = asyncio.create_task(other())
    await EmbeddingAnswer(vectors(1000), "m", "sha256:aa", as_base64=False)({"type": "http"}, send, send)  # type: ignore[arg-type]  # it receives nothing
    finished = True
    await task
    assert pieces > 20
    assert turns >= pieces - 2


async def test_a_large_answer_is_never_whole_in_memory_for_a_caller_that_has_to_be_told_its_length() -> None:
    """Vectors are several times as large in JSON as in memory, where they are counted."""
    start: dict[str, Any] = {}
    size = 0

    async def send(message: Any) -> None:
        nonlocal size
        if message["type"] == "http.response.start":
            start.update(message)
        size += len(message.get("body", b""))

    numbers = np.random.default_rng(1).standard_normal((1000, 384), dtype=np.float32)
    answer = EmbeddingAnswer(Embedded(numbers, 1000, frozenset()), "m", "sha256:aa", as_base64=False)
    tracemalloc.start()
    try:
        await answer({"type": "http", "http_version": "1.0"}, send, send)  # type: ignore[arg-type]  # it receives nothing
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (b"content-length", str(size).encode()) in start["headers"]
    assert peak < size / 4


async def test_what_an_answer_holds_counts_as_memory_until_it_is_sent(
    make_service: MakeService, connect: Connect
) -> None:
    answer_bytes = 1000 * 384 * 4
    service = make_service(limits=Limits(large_bytes=answer_bytes + 100_000))
    service.load()
    async with connect(service) as client:
        first = await client.post("/v1/embeddings", json={"input": ["a"] * 1000})
        again = await client.post("/v1/embeddings", json={"input": ["a"] * 1000})
        too_much = await client.post("/v1/embeddings", json={"input": ["a"] * 1100})
        small = await client.post("/v1/embeddings", json={"input": "a"})
    assert [answer.status_code for answer in (first, again, too_much, small)] == [200, 200, 429, 200]
    service.close()


@pytest.mark.promise("embedder-requests-bounded")
async def test_bodies_of_one_caller_that_stop_arriving_take_no_room_from_another_callers(
    make_service: MakeService, connect: Connect, tmp_path: Path
) -> None:
    (tmp_path / "keys").write_text("slow\nother")
    service = make_service(limits=Limits(large_bytes=1_000_000, body_seconds=5), api_key_file=tmp_path / "keys")
    service.load()
    begun, may_go_on = 0, asyncio.Event()

    async def stalling() -> AsyncIterator[bytes]:
        nonlocal begun
        yield b'{"input": "' + b"x" * 120_000
        begun += 1
        await may_go_on.wait()
        yield b'"}'

    async def ask(client: httpx.AsyncClient, key: str, content: Any) -> int:
        headers = HEADERS | {"authorization": f"Bearer {key}"}
        return (await client.post("/v1/embeddings", content=content, headers=headers)).status_code

    async with connect(service) as client:
        slow = [asyncio.create_task(ask(client, "slow", stalling())) for _ in range(9)]
        await until(lambda: begun + sum(one.done() for one in slow) == 9)
        other = await asyncio.gather(*(ask(client, "other", b'{"input": "%b"}' % (b"y" * 150_000)) for _ in range(2)))
        may_go_on.set()
        statuses = await asyncio.gather(*slow)
    assert other == [200, 200]
    assert (begun, statuses.count(200), statuses.count(429)) == (2, 2, 7)
    service.close()


def test_bodies_that_arrive_take_half_of_the_memory_so_that_a_complete_one_finds_room() -> None:
    budget = MemoryBudget(1_000_000)
    with ExitStack() as held:
        for _ in range(5):
            held.enter_context(budget.share()).add(100_000, arriving=True)
        late = held.enter_context(budget.share())
        with pytest.raises(EmbedderError):
            late.add(100_000, arriving=True)
        for _ in range(4):
            held.enter_context(budget.share()).add(100_000)
    with budget.share() as alone:
        alone.add(1_000_000, arriving=True)
        with budget.share() as small:
            small.add(1000)


async def test_one_text_as_long_as_the_window_is_answered_however_few_tokens_a_request_may_have(
    make_service: MakeService, connect: Connect
) -> None:
    limits = Limits(
        queued_query_tokens=100,
        query_request_tokens=50,
        queued_document_tokens=100,
        queued_rerank_tokens=100,
        rerank_request_tokens=50,
    )
    service = make_service(limits=limits, reranker="tiny", reranker_max_tokens=256)
    service.load()
    text = "w " * 250
    async with connect(service) as client:
        for lane in ("query", "document"):
            answer = await client.post("/v1/embeddings", json={"input": text, "input_type": lane})
            assert answer.status_code == 200
            answer = await client.post("/v1/embeddings", json={"input": [text, text], "input_type": lane})
            assert answer.status_code == 413
        answer = await client.post("/v1/rerank", json={"query": "q", "texts": [text]})
        assert answer.status_code == 200
    await asyncio.to_thread(service.close)


async def test_texts_count_as_memory_as_wide_as_their_widest_character_makes_them(
    make_service: MakeService, connect: Connect
) -> None:
    service = make_service(limits=Limits(large_bytes=300_000), reranker="tiny", reranker_max_tokens=256)
    service.load()
    narrow, wide = "x" * 100_000, "x" * 100_000 + "\U0001f680"
    async with connect(service) as client:
        for text, status in ((narrow, 200), (wide, 429)):
            for path, body in (
                ("/v1/embeddings", {"input": text}),
                ("/v1/embeddings", {"input": ["a", text], "on_error": "skip"}),
                ("/v1/rerank", {"query": "q", "documents": [{"text": text}]}),
            ):
                assert (await client.post(path, json=body)).status_code == status
    await asyncio.to_thread(service.close)
