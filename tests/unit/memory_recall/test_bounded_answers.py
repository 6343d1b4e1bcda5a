"""What the clients of embedders, rerankers and language models take from a server, which may be hostile or broken."""

import asyncio
import base64
import gzip
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import httpx
import numpy as np
import pytest

from memory_recall.contrib.chat_client import ChatClient
from memory_recall.embedding import bounded_answer
from memory_recall.embedding.blocking_client import HttpEmbedder
from memory_recall.embedding.client import EmbedderClient
from memory_recall.errors import EmbedderBroken, EmbedderRejected, EmbedderUnavailable
from memory_recall.search.query_embedding import BudgetedQueryEmbedder
from memory_recall.search.result import Degraded
from tests.support.voyage import voyage_client

Answering = Callable[[asyncio.StreamWriter], Awaitable[None]]
Call = Callable[[str], Awaitable[object]]


@asynccontextmanager
async def served(answer: Answering, heads: list[bytes] | None = None) -> AsyncIterator[str]:
    """Serve an answer to every request on a port of this machine; `heads` are given the requests' heads."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            if heads is not None:
                heads.append(head)
            await answer(writer)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def body(content: bytes, *, status: bytes = b"200 OK", encoding: bytes = b"identity") -> Answering:
    async def answer(writer: asyncio.StreamWriter) -> None:
        fields = b"content-type: application/json\r\nconnection: close\r\ncontent-encoding: " + encoding
        writer.write(b"HTTP/1.1 " + status + b"\r\n" + fields + b"\r\ncontent-length: %d\r\n\r\n" % len(content))
        writer.write(content)

    return answer


async def endless(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")
    while True:
        writer.write(b" " * 65_536)
        await writer.drain()


async def dribbling(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.01)


async def ask_query(url: str) -> object:
    async with EmbedderClient(url, "m", dimensions=3) as client:
        return await client.embed_query("q")


async def ask_documents(url: str) -> object:
    async with EmbedderClient(url, "m", dimensions=3) as client:
        return await client.embed_documents(["one", "two"])


async def ask_scores(url: str) -> object:
    async with EmbedderClient(url, "m") as client:
        return await client.rerank("q", ["one", "two"])


async def ask_models(url: str) -> object:
    async with EmbedderClient(url) as client:
        return await client.model_info()


async def ask_blocking(url: str) -> object:
    client = HttpEmbedder(url, "m", dimensions=3)
    try:
        return await asyncio.to_thread(client.embed_query, "q")
    finally:
        client.close()


async def ask_hosted(url: str) -> object:
    async with voyage_client("voyage-4", 3, "key", base_url=url) as client:
        return await client.embed_query("q")


async def ask_chat(url: str) -> object:
    async with ChatClient(url, "m") as client:
        return await client.complete("Say.", "q", most_tokens=3)


CALLS = (ask_query, ask_documents, ask_scores, ask_models, ask_blocking, ask_hosted, ask_chat)
HOSTILE = {
    "compressed": (body(gzip.compress(b'{"data":"' + b"0" * (1 << 20) + b'"}'), encoding=b"gzip"), "it is compressed"),
    "endless": (endless, "it has more than \\d+ bytes"),
    "many values": (body(b'{"data":[' + b"[]," * 20_000 + b"[]]}"), "it has more than \\d+ values"),
    "deeply nested": (body(b'{"data":' + b"[" * 600 + b"]" * 600 + b"}"), "it is nested too deeply"),
    "of another encoding": (body('{"data": []}'.encode("utf-16")), "it is not JSON"),
}


@pytest.mark.promise("embedder-answers-bounded")
@pytest.mark.finding("security S7")
@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("call", CALLS)
async def test_an_answer_beyond_its_bounds_is_refused_by_every_client(call: Call, hostile: str) -> None:
    """By its size before it is unpacked, and by its structure before it is parsed."""
    answer, reason = HOSTILE[hostile]
    async with served(answer) as url, asyncio.timeout(30):
        with pytest.raises(EmbedderBroken, match=reason):
            await call(url)


@pytest.mark.finding("security S7")
@pytest.mark.parametrize("call", CALLS)
async def test_every_client_asks_for_an_answer_that_is_not_compressed(call: Call) -> None:
    """A server that compresses all the same is refused, so none is led into it."""
    heads: list[bytes] = []
    async with served(body(b"[]"), heads) as url:
        with pytest.raises(EmbedderBroken):
            await call(url)
    assert b"accept-encoding: identity\r\n" in heads[0].lower()


@pytest.mark.finding("security S7")
@pytest.mark.parametrize(
    "answer",
    [
        body(gzip.compress(b"{}"), status=b"422 x", encoding=b"gzip"),
        body(b" " * 1_000_000, status=b"422 x"),
        body(b"[" * 20_000, status=b"422 x"),
    ],
)
async def test_an_error_is_told_by_its_status_whatever_its_body_holds(answer: Answering) -> None:
    """A proxy compresses its error pages, for instance."""
    async with served(answer) as url, asyncio.timeout(30):
        with pytest.raises(EmbedderRejected, match="answered 422"):
            await ask_query(url)


@pytest.mark.finding("security S7")
async def test_the_bound_grows_with_what_is_asked_and_a_full_answer_fits() -> None:
    """Base64 as asked for, and lists of numbers, which some servers send all the same."""
    vectors = np.random.default_rng(1).normal(size=(64, 384)).astype(np.float32)
    packed = [base64.b64encode(vector.astype("<f4").tobytes()).decode() for vector in vectors]
    for encoded in (packed, vectors.astype(np.float64).tolist()):
        data = [{"object": "embedding", "index": index, "embedding": one} for index, one in enumerate(encoded)]
        async with (
            served(body(json.dumps({"data": data, "digest": "sha256:aa"}).encode())) as url,
            EmbedderClient(url, "m", dimensions=384) as client,
        ):
            batch = await client.embed_documents(["text"] * 64)
        assert np.allclose(batch.vectors, vectors)


@pytest.mark.promise("embedder-answers-bounded")
@pytest.mark.finding("security S7")
async def test_a_long_answer_is_not_parsed_on_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop may be that of an API, whose other requests would wait."""
    parsed: list[int] = []
    parse = bounded_answer.Answer.json

    def record(answer: bounded_answer.Answer) -> object:
        parsed.append(threading.get_ident())
        return parse(answer)

    monkeypatch.setattr(bounded_answer.Answer, "json", record)
    vector = base64.b64encode(np.ones(1024, dtype="<f4").tobytes()).decode()
    data = [{"index": index, "embedding": vector} for index in range(64)]
    async with (
        served(body(json.dumps({"data": data, "digest": "sha256:aa"}).encode())) as url,
        EmbedderClient(url, "m", dimensions=1024) as client,
    ):
        await client.embed_documents(["text"] * 64)
    assert parsed
    assert parsed != [threading.get_ident()]


@pytest.mark.promise("embedder-answers-bounded")
@pytest.mark.finding("security S7")
async def test_a_request_whose_answer_comes_byte_by_byte_ends_as_a_whole() -> None:
    """Its caller may have gone long before, and it would hold a connection for ever."""
    async with (
        served(dribbling) as url,
        EmbedderClient(url, "m", timeout=httpx.Timeout(0.2, connect=0.2)) as client,
        asyncio.timeout(30),
    ):
        with pytest.raises(EmbedderUnavailable, match="TimeoutError"):
            await client.embed_documents(["text"])


@pytest.mark.promise("embedder-answers-bounded")
@pytest.mark.finding("security S7")
async def test_a_blocking_request_whose_answer_comes_byte_by_byte_ends_as_a_whole() -> None:
    """It would hold the thread of a memory server's request."""
    async with served(dribbling) as url, asyncio.timeout(30):
        client = HttpEmbedder(url, "m", timeout=0.2)
        with pytest.raises(EmbedderUnavailable, match="ReadTimeout"):
            await asyncio.to_thread(client.embed_query, "q")
        client.close()


@pytest.mark.promise("embedder-answers-bounded")
@pytest.mark.finding("security S7")
async def test_a_recall_does_not_wait_longer_than_its_budget_for_an_answer_without_end() -> None:
    """The request goes on, so that its connection stays usable, but nobody waits for it."""
    async with served(dribbling) as url, EmbedderClient(url, "m") as client, asyncio.timeout(30):
        embedder = BudgetedQueryEmbedder(client, budget=0.05, probe_delays=(3600.0,))
        assert await embedder.embed("q") is Degraded.EMBEDDER_TIMEOUT
        await embedder.close()


def entry(index: object, *numbers: float) -> dict[str, object]:
    return {"index": index, "embedding": base64.b64encode(np.array(numbers, dtype="<f4").tobytes()).decode()}


@pytest.mark.promise("vectors-checked-at-entry")
@pytest.mark.finding("security S7")
@pytest.mark.parametrize(
    "data",
    [
        [entry(0, 1.0), entry(0, 1.0)],
        [entry(0, 1.0), entry(2, 1.0)],
        [entry(1, 1.0), entry(2, 1.0)],
        [entry("1", 1.0), entry(0, 1.0)],
        [entry(0, 1.0), entry(1.5, 1.0)],
        [entry(0, 1.0), entry(10**400, 1.0)],
        [entry(0, 1.0), entry(1)],
        [entry(0, 1.0), entry(1, 0.0)],
        [entry(0, 1.0), entry(1, 1e-9)],
        [entry(0, 1.0), entry(1, 1e9)],
        [entry(0, 1.0), {"index": 1, "embedding": [[1.0]]}],
        [entry(0, 1.0), {"index": 1, "embedding": ["1e999999"]}],
        [entry(0, 1.0), 1],
        {"0": entry(0, 1.0), "1": entry(1, 1.0)},
    ],
)
async def test_vectors_are_checked_once_where_they_enter(data: object) -> None:
    """Their number and order, and that each is finite and has a direction in half precision."""
    handler = httpx.MockTransport(
        lambda _: httpx.Response(200, content=json.dumps({"data": data, "digest": "sha256:aa"}).encode())
    )
    async with EmbedderClient("http://embedder:8080", transport=handler) as client:
        with pytest.raises(EmbedderBroken):
            await client.embed_documents(["one", "two"])


@pytest.mark.finding("security S7")
@pytest.mark.parametrize("dimensions", [0, -3, 10**6, 2.5, "3", True, None])
async def test_a_model_of_impossible_dimensions_is_refused(dimensions: object) -> None:
    """The bounds of later answers are computed from them."""
    entry = {"id": "m", "dimensions": dimensions}
    handler = httpx.MockTransport(lambda _: httpx.Response(200, json={"data": [entry]}))
    async with EmbedderClient("http://embedder:8080", transport=handler) as client:
        with pytest.raises(EmbedderBroken):
            await client.model_info()


@pytest.mark.finding("security S7")
async def test_counts_that_are_no_numbers_do_not_lose_the_vectors() -> None:
    """Nothing depends on them."""
    usages = ["none", [1], {"total_tokens": "many"}, {"total_tokens": float("inf")}, {"total_tokens": -1}]
    for usage in usages:
        content = json.dumps({"data": [entry(0, 1.0)], "digest": "sha256:aa", "usage": usage}).encode()
        handler = httpx.MockTransport(lambda _, content=content: httpx.Response(200, content=content))
        async with EmbedderClient("http://embedder:8080", transport=handler) as client:
            batch = await client.embed_documents(["one"])
        assert batch.tokens == 0


@pytest.mark.finding("embedder 7")
@pytest.mark.parametrize("ask", ["embedder", "blocking", "hosted", "rerank", "chat"])
async def test_half_a_character_in_a_text_is_sent_as_the_replacement_character(ask: str) -> None:
    """A text that a program has cut in the middle of an emoji; the whole request would be lost otherwise."""
    cut, sent = "cost \ud83d", list[str]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        sent.append((await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split()[0]))).decode())
        await body(b"[]")(writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, EmbedderClient(url) as embedder, voyage_client("v", 1, "key", base_url=url) as hosted:
        async with ChatClient(url, "m") as chat:
            blocking = HttpEmbedder(url)
            requests: dict[str, Callable[[], Awaitable[object]]] = {
                "embedder": lambda: embedder.embed_documents(["fine", cut]),
                "blocking": lambda: asyncio.to_thread(blocking.embed_query, cut),
                "hosted": lambda: hosted.embed_query(cut),
                "rerank": lambda: embedder.rerank(cut, [cut]),
                "chat": lambda: chat.complete(cut, cut, most_tokens=1),
            }
            with pytest.raises(EmbedderBroken):
                await requests[ask]()
            blocking.close()
        server.close()
    assert "cost \ufffd" in sent[0]
