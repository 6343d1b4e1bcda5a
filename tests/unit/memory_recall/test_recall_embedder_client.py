"""The embedder's client: what it sends, what it makes of every answer, and what its errors never say."""

import asyncio
import base64
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import httpx
import numpy as np
import pytest
import stamina

from memory_recall.embedding.blocking_client import HttpEmbedder
from memory_recall.embedding.client import EmbedderClient
from memory_recall.errors import (
    DimensionMismatch,
    EmbedderBroken,
    EmbedderBusy,
    EmbedderRejected,
    EmbedderUnauthorized,
    EmbedderUnavailable,
    EmptyText,
    InvalidConfiguration,
    MemoryIndexError,
    ModelMismatch,
    UnusableText,
)

TEXT = "the launch code canary is 0000"
VECTORS = np.array([[0.6, 0.8, 0.0], [0.0, 1.0, 0.0]], dtype=np.float32)


def encode(vector: "np.ndarray[Any, Any]") -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


def answer(*vectors: Any, **extra: Any) -> dict[str, Any]:
    data = [{"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(vectors)]
    usage = {"total_tokens": 9, "truncated_inputs": 1}
    return {"object": "list", "data": data, "digest": "sha256:aa", "usage": usage, **extra}


def client(handler: Callable[[httpx.Request], httpx.Response], **options: Any) -> EmbedderClient:
    return EmbedderClient("http://embedder:8080/", transport=httpx.MockTransport(handler), **options)


async def test_the_texts_that_the_service_has_not_read_to_their_end_are_named_by_their_place() -> None:
    """Whatever is not true names none."""
    body = answer(*(encode(VECTORS[0]) for _ in range(6)))
    for entry, said in zip(body["data"], [None, True, "true", 1, False, [True]], strict=True):
        entry["truncated"] = said
    del body["data"][0]["truncated"]
    async with client(lambda _: httpx.Response(200, json=body)) as embedder:
        batch = await embedder.embed_documents([TEXT] * 6)
    assert batch.truncated == {1}


async def test_cancelled_calls_leave_every_connection_usable() -> None:
    """Far more recalls than connections run out of time at once, as under load; the next one is answered."""
    body = json.dumps(answer(encode(VECTORS[0]))).encode()
    answering = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
                await answering.wait()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, EmbedderClient(f"http://127.0.0.1:{port}") as embedder:
        for turns in range(1, 5):  # given up before, while and after a connection is made
            asked = [asyncio.create_task(embedder.embed_query("q")) for _ in range(64)]
            for _ in range(turns):
                await asyncio.sleep(0)
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        answering.set()
        async with asyncio.timeout(30):
            assert np.array_equal(await embedder.embed_query("q"), VECTORS[0])
        server.close()


async def test_a_request_that_a_stopping_pod_refuses_is_sent_again_on_new_connections() -> None:
    """A kept connection leads to the same pod until it is closed; a new one leads to another pod, sooner or later."""
    draining = json.dumps({"error": {"code": "draining"}}).encode()
    served = json.dumps(answer(encode(VECTORS[0]))).encode()
    stopping, connections = False, 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        is_stopped = connections < 4
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
                status, body = (b"503 x", draining) if stopping and is_stopped else (b"200 OK", served)
                writer.write(b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n%s" % (status, len(body), body))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, EmbedderClient(f"http://127.0.0.1:{port}") as embedder:
        await embedder.embed_query("q")
        stopping = True
        async with asyncio.timeout(30):
            assert np.array_equal(await embedder.embed_query("q"), VECTORS[0])
        assert connections == 4
        server.close()


@pytest.mark.parametrize(
    ("failures", "requests"),
    [
        ([httpx.Response(503, json={"error": {"code": "draining"}})] * 9, 9),
        ([httpx.Response(503, json={"error": {"code": "loading"}})], 1),
        ([httpx.ConnectError("refused")] * 9, 9),
        ([httpx.ReadError("reset")] * 2, 2),
        ([httpx.RemoteProtocolError("disconnected"), *[httpx.ConnectError("refused")] * 3], 5),
        ([httpx.ReadTimeout("no answer")], 1),
    ],
)
async def test_a_request_is_sent_again_if_its_pod_stops_and_once_if_it_may_have_ended_the_pod(
    failures: list[httpx.Response | httpx.TransportError], requests: int
) -> None:
    """The embedder has answered before; a list of failures that ends early is followed by an answer."""
    seen, coming = [], iter([httpx.Response(200, json=answer(encode(VECTORS[0]))), *failures])

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        outcome = next(coming, None) or httpx.Response(200, json=answer(encode(VECTORS[0])))
        if isinstance(outcome, httpx.TransportError):
            raise outcome
        return outcome

    with stamina.set_testing(True, attempts=8, cap=True):
        async with client(handler) as embedder:
            await embedder.embed_query("q")
            seen.clear()
            if len(failures) < requests:
                assert np.array_equal(await embedder.embed_query("q"), VECTORS[0])
            else:
                with pytest.raises(EmbedderUnavailable):
                    await embedder.embed_query("q")
    assert len(seen) == requests


async def test_an_embedder_that_has_not_answered_since_it_failed_is_asked_once() -> None:
    """Each recall would else wait its whole budget for an embedder that is not there."""
    seen = []

    def refuse(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        raise httpx.ConnectError("refused")

    async with client(refuse) as embedder:
        for _ in range(2):
            with pytest.raises(EmbedderUnavailable):
                await embedder.embed_query("q")
    assert len(seen) == 2


async def test_documents_are_sent_as_documents_and_come_back_as_float32_in_input_order() -> None:
    """Vectors are matched to inputs by their index, not by their place in the answer."""
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        payload = answer(encode(VECTORS[0]), encode(VECTORS[1]))
        payload["data"].reverse()
        return httpx.Response(200, json=payload)

    async with client(handler, model="all-MiniLM-L6-v2", api_key="key") as embedder:
        batch = await embedder.embed_documents(["a", "b"])
    assert batch.vectors.dtype == np.float32
    assert np.array_equal(batch.vectors, VECTORS)
    assert batch.tokens == 9
    assert seen[0].url == "http://embedder:8080/v1/embeddings"
    assert seen[0].headers["authorization"] == "Bearer key"
    assert json.loads(seen[0].content) == {
        "input": ["a", "b"], "encoding_format": "base64", "input_type": "document", "model": "all-MiniLM-L6-v2",
    }  # fmt: skip


async def test_a_query_is_sent_as_a_query_and_yields_one_vector() -> None:
    """The prefix of queries is the service's business; the client only says which kind of text it sends."""

    def handler(request: httpx.Request) -> httpx.Response:
        assert json.loads(request.content)["input_type"] == "query"
        return httpx.Response(200, json=answer([0.6, 0.8, 0.0]))  # a plain list is understood too

    async with client(handler) as embedder:
        assert np.allclose(await embedder.embed_query(TEXT), VECTORS[0])


async def test_no_texts_need_no_request() -> None:
    """An empty batch is answered without the service, which would refuse it."""
    async with client(lambda _: httpx.Response(500), dimensions=3) as embedder:
        batch = await embedder.embed_documents([])
    assert batch.vectors.shape == (0, 3)


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        (httpx.Response(401), EmbedderUnauthorized),
        (httpx.Response(404), ModelMismatch),
        (httpx.Response(400), EmbedderRejected),
        (httpx.Response(413), EmbedderRejected),
        (httpx.Response(422), EmbedderRejected),
        (httpx.Response(429), EmbedderBusy),
        (httpx.Response(500), EmbedderUnavailable),
        (httpx.Response(503), EmbedderUnavailable),
        (httpx.Response(302), EmbedderRejected),
        (httpx.Response(200, content=b"<html>"), EmbedderBroken),
        (httpx.Response(200, json=[]), EmbedderBroken),
        (httpx.Response(200, json={"data": "none"}), EmbedderBroken),
        (httpx.Response(200, json=answer("not base64!")), EmbedderBroken),
        (httpx.Response(200, json=answer("AAA=")), EmbedderBroken),
        (httpx.Response(200, json=answer(encode(VECTORS[0]), encode(VECTORS[1]))), EmbedderBroken),
        (httpx.Response(200, json=answer(encode(np.array([np.nan, 0, 0])))), EmbedderBroken),
        (httpx.Response(200, json=answer(encode(np.array([1.0, 0.0])))), DimensionMismatch),
        (httpx.Response(200, json=answer()), EmbedderBroken),
    ],
)
async def test_every_bad_answer_becomes_one_of_our_errors(
    response: httpx.Response, kind: type[MemoryIndexError]
) -> None:
    """Callers handle one family of errors, each with a remedy."""
    async with client(lambda _: response, dimensions=3) as embedder:
        with pytest.raises(kind) as caught:
            await embedder.embed_query(TEXT)
    assert caught.value.remedy
    assert TEXT not in str(caught.value)


@pytest.mark.parametrize("failure", [httpx.ConnectError, httpx.ReadTimeout, httpx.RemoteProtocolError])
async def test_a_lost_connection_is_an_unavailable_embedder(failure: type[httpx.TransportError]) -> None:
    """What httpx raises, and the request that it quotes, does not get past the client."""

    def handler(request: httpx.Request) -> httpx.Response:
        raise failure(f"while sending {TEXT}", request=request)

    async with client(handler) as embedder:
        with pytest.raises(EmbedderUnavailable) as caught:
            await embedder.embed_query(TEXT)
    assert TEXT not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("header", "seconds"),
    [({"retry-after": "7"}, 7.0), ({}, 1.0), ({"retry-after": "x"}, 1.0), ({"retry-after": "86400"}, 60.0)],
)
async def test_a_busy_embedder_names_the_delay_of_the_next_attempt(header: dict[str, str], seconds: float) -> None:
    """Retry-After reaches whoever decides about the retry."""
    async with client(lambda _: httpx.Response(429, headers=header)) as embedder:
        with pytest.raises(EmbedderBusy) as caught:
            await embedder.embed_documents([TEXT])
    assert caught.value.retry_after == seconds


async def test_an_error_code_is_quoted_and_an_error_message_is_not() -> None:
    """A foreign server may echo the input in its message."""
    body = {"error": {"message": f"bad input: {TEXT}", "type": "invalid_request_error", "code": "input_empty"}}
    async with client(lambda _: httpx.Response(422, json=body)) as embedder:
        with pytest.raises(EmbedderRejected) as caught:
            await embedder.embed_query(TEXT)
    assert "input_empty" in caught.value.message
    assert TEXT not in str(caught.value)


@pytest.mark.finding("embedder 1")
async def test_a_text_without_a_finite_vector_is_a_refusal() -> None:
    """Nothing is repeated for it, and no circuit breaker opens."""
    body = {"error": {"message": TEXT, "code": "unusable_vector", "param": "input[3]", "indexes": [3]}}
    async with client(lambda _: httpx.Response(422, json=body)) as embedder:
        with pytest.raises(UnusableText) as caught:
            await embedder.embed_documents(["a"] * 5)
    assert isinstance(caught.value, EmbedderRejected)
    assert TEXT not in str(caught.value)


def skipping(embedded: list[int], skipped: object, **more: Any) -> Callable[[httpx.Request], httpx.Response]:
    """A server that has vectors of the texts at the places `embedded` and says that it has skipped others."""
    entries = [{"index": place, "embedding": encode(VECTORS[0] * (place + 1)), **more} for place in embedded]
    return lambda _: httpx.Response(200, json={"data": entries, "skipped": skipped, "digest": "sha256:aa"})


async def test_texts_that_the_service_has_skipped_are_named_and_the_others_have_their_vectors() -> None:
    named = [{"index": 3, "code": "unusable_vector"}, {"index": 0, "code": "empty_input"}, {"index": 4, "code": "new"}]
    sent = list[dict[str, Any]]()

    def handler(request: httpx.Request) -> httpx.Response:
        sent.append(json.loads(request.content))
        return skipping([2, 1], named, truncated=True)(request)

    async with client(handler) as embedder:
        batch = await embedder.embed_documents(["a"] * 5, skip=True)
    assert np.array_equal(batch.vectors, np.stack([VECTORS[0] * 2, VECTORS[0] * 3]))
    assert batch.truncated == {0, 1}
    assert batch.skipped == {0: EmptyText, 3: UnusableText, 4: EmbedderRejected}
    assert sent[0]["on_error"] == "skip"


async def test_a_request_of_which_every_text_is_skipped_has_no_vectors() -> None:
    async with client(skipping([], [{"index": 0, "code": "unusable_vector"}])) as embedder:
        batch = await embedder.embed_documents(["a"], skip=True)
    assert (len(batch.vectors), batch.skipped) == (0, {0: UnusableText})


@pytest.mark.parametrize(
    "skipped",
    [
        [{"index": 2, "code": "x"}], [{"index": -1, "code": "x"}], [{"index": True, "code": "x"}], [{"index": 1}],
        [{"index": 1, "code": []}], [1], 7, {"index": 1}, [{"index": 0, "code": "x"}, {"index": 1, "code": "x"}],
    ],
    ids=str,
)  # fmt: skip
async def test_a_claim_to_have_skipped_what_is_none_of_the_texts_is_a_broken_answer(skipped: object) -> None:
    """The last has a vector for a text that it says it has skipped."""
    async with client(skipping([0], skipped)) as embedder:
        with pytest.raises(EmbedderBroken):
            await embedder.embed_documents(["a", "b"], skip=True)


async def test_an_answer_that_skips_unasked_is_a_broken_answer() -> None:
    async with client(skipping([0], [{"index": 1, "code": "unusable_vector"}])) as embedder:
        with pytest.raises(EmbedderBroken):
            await embedder.embed_documents(["a", "b"])


async def test_the_served_model_is_described() -> None:
    """Name, dimensions and digest come from the service's model list."""
    entry = {"id": "m", "dimensions": 3, "max_tokens": 512, "pooling": "mean", "digest": "sha256:00"}
    async with client(lambda _: httpx.Response(200, json={"data": [entry]})) as embedder:
        info = await embedder.model_info()
    assert (info.name, info.dimensions, info.digest) == ("m", 3, "sha256:00")


async def test_an_unusable_model_list_is_a_broken_answer() -> None:
    """A server that is no embedder of ours is named as such."""
    async with client(lambda _: httpx.Response(200, json={"data": []})) as embedder:
        with pytest.raises(EmbedderBroken):
            await embedder.model_info()


@pytest.mark.finding("M8")
@pytest.mark.parametrize("client", [EmbedderClient, HttpEmbedder])
def test_user_information_in_the_url_is_refused_and_not_repeated(client: type[EmbedderClient | HttpEmbedder]) -> None:
    """Errors, logs and the database repeat the embedder's URL, so it must hold no password."""
    with pytest.raises(InvalidConfiguration) as raised:
        client("http://svc:hunter2@embedder:8080")
    assert "hunter2" not in f"{raised.value!r} {raised.value}"
