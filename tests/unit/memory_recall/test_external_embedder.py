"""Third-party embedders: how each is asked, how its answers are read, and what becomes of what it refuses."""

import base64
import json
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest

from memory_recall import EmbedderApi, EmbedderOptions, ExternalEmbedder, InvalidConfiguration
from memory_recall.embedding.canary import CANARY_DOCUMENTS, CANARY_PREFIX, CANARY_QUERY
from memory_recall.embedding.client import EmbedderClient
from memory_recall.errors import (
    DimensionMismatch,
    EmbedderBroken,
    EmbedderBusy,
    EmbedderRejected,
    EmbedderUnavailable,
    ModelMismatch,
)

OPENAI, TEI, VOYAGE, COHERE = EmbedderApi.OPENAI, EmbedderApi.TEI, EmbedderApi.VOYAGE, EmbedderApi.COHERE
MODEL = "bge-small-en-v1.5"
QUERY_PREFIX = "Represent this sentence for searching relevant passages: "
Handler = Callable[[httpx.Request], httpx.Response]


def vector(text: str) -> list[float]:
    """A vector of length 5 that tells texts apart by their length."""
    angle = len(text) / 1000
    return [5 * float(np.cos(angle)), 5 * float(np.sin(angle)), 0.0]


def is_canary(texts: list[str]) -> bool:
    return texts[0].endswith((*CANARY_DOCUMENTS, CANARY_QUERY))


class Server:
    """Answers as each make does, refuses what that make refuses, and keeps the bodies but those of the canary."""

    def __init__(self, api: EmbedderApi, *, most_texts: int = 1000, most_characters: int = 1_000_000) -> None:
        self.api = api
        self.most_texts, self.most_characters = most_texts, most_characters
        self.too_long = 400
        self.bodies: list[dict[str, Any]] = []
        self.listed: Any = {"data": [{"id": MODEL}]} if api is OPENAI else {"model_id": f"BAAI/{MODEL}"}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, json=self.listed)
        body = json.loads(request.content)
        texts = body.get("input") or body.get("inputs") or body.get("texts")
        if is_canary(texts):
            return httpx.Response(200, json=self.answer(list(map(vector, texts))))
        self.bodies.append(body)
        if len(texts) > self.most_texts:
            return httpx.Response(413, json={"error": "batch size > maximum", "error_type": "Validation"})
        if any(len(text) > self.most_characters for text in texts):
            return httpx.Response(self.too_long, json={"error": {"type": "exceed_context_size_error"}})
        return httpx.Response(200, json=self.answer(list(map(vector, texts))))

    def answer(self, vectors: list[list[float]]) -> Any:
        if self.api is TEI:
            return vectors
        if self.api is COHERE:
            return {"id": "x", "embeddings": {"float": vectors}, "meta": {"billed_units": {"input_tokens": 3}}}
        encoded = [
            base64.b64encode(np.array(one, dtype="<f4").tobytes()).decode() if self.api is VOYAGE else one
            for one in vectors
        ]
        data = [{"object": "embedding", "index": index, "embedding": one} for index, one in enumerate(encoded)]
        return {"object": "list", "data": data[::-1], "usage": {"prompt_tokens": 3, "total_tokens": 3}}


def client(server: Handler, api: EmbedderApi = OPENAI, url: str = "http://e:8080", **options: Any) -> ExternalEmbedder:
    asked = EmbedderOptions(api, **{name: options.pop(name) for name in ("served_as", "batch") if name in options})
    options = {"query_egress": True, "dimensions": 3} | options
    return ExternalEmbedder(url, MODEL, options=asked, transport=httpx.MockTransport(server), **options)


@pytest.mark.finding("mission 4.3")
@pytest.mark.parametrize("api", [OPENAI, TEI, VOYAGE, COHERE])
async def test_the_texts_come_back_in_order_as_vectors_of_length_one(api: EmbedderApi) -> None:
    texts = ["a", "bb" * 100, "ccc" * 200]
    async with client(Server(api), api) as embedder:
        batch = await embedder.embed_documents(texts)
        query = await embedder.embed_query(texts[1])
    assert np.allclose(np.linalg.norm(batch.vectors, axis=1), 1)
    assert batch.digest is None if embedder.hosted else str(batch.digest).startswith(CANARY_PREFIX)
    if api in {VOYAGE, COHERE}:
        assert np.allclose(batch.vectors, np.array([vector(text) for text in texts]) / 5, atol=1e-6)
        assert np.allclose(query, np.array(vector(texts[1])) / 5, atol=1e-6)


@pytest.mark.finding("mission 4.3")
@pytest.mark.parametrize(
    ("api", "expected"),
    [
        (OPENAI, [{"model": "bge", "input": ["d"]}, {"model": "bge", "input": [f"{QUERY_PREFIX}q"]}]),
        (
            TEI,
            [
                {"inputs": ["d"], "truncate": True, "normalize": True},
                {"inputs": [f"{QUERY_PREFIX}q"], "truncate": True, "normalize": True},
            ],
        ),
        (
            VOYAGE,
            [
                {
                    "model": "bge", "input": [text], "input_type": kind, "truncation": True,
                    "encoding_format": "base64", "output_dimension": 3,
                }
                for text, kind in (("d", "document"), ("q", "query"))
            ],
        ),
        (
            COHERE,
            [
                {
                    "model": "bge", "texts": [text], "input_type": kind, "truncate": "END",
                    "embedding_types": ["float"], "output_dimension": 3,
                }
                for text, kind in (("d", "search_document"), ("q", "search_query"))
            ],
        ),
    ],
)  # fmt: skip
async def test_a_request_holds_what_the_api_demands_and_the_prefix_where_the_server_knows_no_types(
    api: EmbedderApi, expected: list[dict[str, Any]]
) -> None:
    server = Server(api)
    async with client(server, api, served_as="bge") as embedder:
        await embedder.embed_documents(["d"])
        await embedder.embed_query("q")
    assert server.bodies == expected


async def test_given_prefixes_come_before_those_of_the_profile_and_an_unknown_model_has_none() -> None:
    for model, options, expected in (
        (MODEL, EmbedderOptions(OPENAI, None, "ask: ", "say: "), ["ask: q", "say: d"]),
        (MODEL, EmbedderOptions(OPENAI, None, "", ""), ["q", "d"]),
        ("custom", EmbedderOptions(OPENAI), ["q", "d"]),
    ):
        assert [
            options.request(model, [text], kind)[1]["input"] for text, kind in (("q", "query"), ("d", "document"))
        ] == [[one] for one in expected]


async def test_fewer_texts_are_sent_from_then_on_where_a_server_says_that_they_were_too_many() -> None:
    server = Server(TEI, most_texts=4)
    async with client(server, TEI, batch=16) as embedder:
        for _ in range(2):
            batch = await embedder.embed_documents([f"text {number}" for number in range(16)])
            assert len(batch.vectors) == 16
    sent = [len(body["inputs"]) for body in server.bodies]
    assert sent == [16, 8, 4, 4, 8, 4, 4, 4, 4, 4, 4], "after the first list, each request has four"


@pytest.mark.parametrize("status", [400, 413, 422, 500])
async def test_a_text_that_is_too_long_for_the_server_is_embedded_by_its_beginning_and_counted(status: int) -> None:
    """llama-server answers 500, vLLM 400; neither truncates."""
    server = Server(OPENAI, most_characters=300)
    server.too_long = status
    async with client(server) as embedder:
        batch = await embedder.embed_documents(["x" * 1000])
    assert (len(batch.vectors), batch.truncated) == (1, {0})
    again = [1000] if status == 500 else []  # which may have passed
    assert [len(body["input"][0]) for body in server.bodies] == [1000, 500, 250, *again]


async def test_of_a_long_query_no_more_is_sent_than_the_model_may_read() -> None:
    """Each refusal costs a recall a part of its budget, and a prompt of 50,000 characters would have seven."""
    server = Server(OPENAI, most_characters=2200)
    async with client(server) as embedder:
        await embedder.embed_query("word " * 10_000)
    sent = [len(body["input"][0]) - len(QUERY_PREFIX) for body in server.bodies]
    assert sent == [8 * 512, 4 * 512]


@pytest.mark.parametrize("failures", [1, 2])
async def test_a_server_that_fails_for_a_moment_does_not_leave_the_vector_of_a_part(failures: int) -> None:
    """It answers 500 to a text that is too long as well; nothing else would tell the two apart, nor repeat it later."""
    server = Server(OPENAI)
    left = [500] * failures

    def fail(request: httpx.Request) -> httpx.Response:
        if not is_canary(json.loads(request.content)["input"]) and left:
            return httpx.Response(left.pop())
        return server(request)

    async with client(fail) as embedder:
        batch = await embedder.embed_documents(["x" * 1000])
    assert (len(batch.vectors), batch.truncated) == (1, set())
    assert len(server.bodies[-1]["input"][0]) == 1000


@pytest.mark.parametrize(
    ("status", "error"), [(400, EmbedderRejected), (422, EmbedderRejected), (500, EmbedderUnavailable)]
)
async def test_a_refusal_for_another_reason_is_told_after_few_requests(status: int, error: type[Exception]) -> None:
    """A batch is refused at once, so that the worker divides it; a text alone is shortened a few times."""
    asked: list[int] = []
    server = Server(OPENAI)

    def refuse(request: httpx.Request) -> httpx.Response:
        texts = json.loads(request.content)["input"]
        if is_canary(texts):
            return server(request)
        asked.append(len(texts))
        return httpx.Response(status, json={"error": {"message": "SECRET", "type": "invalid"}})

    async with client(refuse) as embedder:
        with pytest.raises(error) as caught:
            await embedder.embed_documents(["a" * 900, "b"])
        assert asked == [2]
        with pytest.raises(error):
            await embedder.embed_documents(["a" * 900])
    assert asked == [2, 1, 1, 1, 1]
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (httpx.Response(429, headers={"retry-after": "7"}), EmbedderBusy),
        (httpx.Response(503), EmbedderUnavailable),
        (httpx.Response(404), ModelMismatch),
        (httpx.Response(200, json={"data": []}), EmbedderBroken),
        (httpx.Response(200, json=[[1.0, 0.0, 0.0]]), EmbedderBroken),
        (httpx.Response(200, json={"data": [{"index": 0, "embedding": [1.0, 0.0]}]}), DimensionMismatch),
        (httpx.Response(200, json={"data": [{"index": 0, "embedding": [0.0, 0.0, 0.0]}]}), EmbedderBroken),
        (httpx.Response(200, json={"data": [{"index": 0, "embedding": [1e9, 0.0, 0.0]}]}), EmbedderBroken),
        (httpx.Response(200, json={"data": [{"index": 1, "embedding": [1.0, 0.0, 0.0]}]}), EmbedderBroken),
    ],
)
async def test_every_bad_answer_becomes_one_of_our_errors(answer: httpx.Response, error: type[Exception]) -> None:
    async with client(lambda _: answer) as embedder:
        with pytest.raises(error) as caught:
            await embedder.embed_query("x")
    assert not isinstance(caught.value, EmbedderBusy) or caught.value.retry_after == 7


@pytest.mark.parametrize(
    ("api", "listed", "fits"),
    [
        (OPENAI, {"data": [{"id": MODEL}]}, True),
        (OPENAI, {"data": [{"id": f"{MODEL}:latest"}]}, True),
        (OPENAI, {"data": [{"id": "other"}, {"id": "third"}]}, False),
        (OPENAI, {"data": []}, False),
        (TEI, {"model_id": f"BAAI/{MODEL}"}, True),
        (TEI, {"model_id": "BAAI/bge-base-en-v1.5"}, False),
    ],
)
async def test_a_server_must_list_the_model_and_its_first_vector_says_the_dimensions(
    api: EmbedderApi, listed: Any, fits: bool
) -> None:
    server = Server(api)
    server.listed = listed
    async with client(server, api, dimensions=None) as embedder:
        if fits:
            served = await embedder.model_info()
            assert (served.name, served.dimensions) == (MODEL, 3)
            assert str(served.digest).startswith(CANARY_PREFIX)
        else:
            with pytest.raises(ModelMismatch, match="serves"):
                await embedder.model_info()


@pytest.mark.parametrize("listed", [{}, [], {"data": 7}, "x"])
async def test_a_list_of_models_that_is_none_is_a_broken_answer(listed: Any) -> None:
    server = Server(OPENAI)
    server.listed = listed
    async with client(server) as embedder:
        with pytest.raises(EmbedderBroken):
            await embedder.model_info()


async def test_a_gateway_without_a_list_of_models_is_taken_at_its_word() -> None:
    server = Server(OPENAI)
    handler = lambda request: httpx.Response(404) if request.method == "GET" else server(request)  # noqa: E731
    async with client(handler) as embedder:
        assert (await embedder.model_info()).dimensions == 3


@pytest.mark.promise("hosted-provider-by-consent")
@pytest.mark.finding("security S13")
@pytest.mark.parametrize(
    ("url", "api", "egress", "hosted"),
    [
        ("http://e:8080", OPENAI, False, False),
        ("http://10.1.2.3:8080", TEI, False, False),
        ("https://api.openai.com", OPENAI, True, True),
        ("https://api.openai.com", OPENAI, False, None),
        ("http://api.openai.com", OPENAI, True, None),
        ("http://litellm:4000", COHERE, True, True),
        ("http://litellm:4000", COHERE, False, None),
    ],
)
async def test_texts_leave_the_cluster_with_consent_and_encrypted_or_not_at_all(
    url: str, api: EmbedderApi, egress: bool, hosted: bool | None
) -> None:
    """The API of a hosted provider counts as one behind a gateway, too."""
    if hosted is None:
        with pytest.raises(InvalidConfiguration, match="may not be sent"):
            client(Server(api), api, url, query_egress=egress)
        return
    async with client(Server(api), api, url, query_egress=egress) as embedder:
        assert embedder.hosted is hosted


@pytest.mark.promise("hosted-provider-by-consent")
@pytest.mark.finding("security S13")
async def test_a_memory_embedder_beyond_the_cluster_is_hosted_and_needs_the_same_consent() -> None:
    with pytest.raises(InvalidConfiguration, match="may not be sent"):
        EmbedderClient("https://embeddings.saas.example")
    async with EmbedderClient("https://embeddings.saas.example", query_egress=True) as embedder:
        assert embedder.hosted
    async with EmbedderClient("http://embedder.ml.svc.cluster.local:8080") as embedder:
        assert not embedder.hosted


@pytest.mark.finding("mission 4.3")
async def test_our_client_refuses_vectors_of_a_server_that_puts_no_prefix_before_texts() -> None:
    """Such a server ignores the type of the input, so that a query would silently lose its instruction."""
    async with EmbedderClient("http://e:8080", MODEL, transport=httpx.MockTransport(Server(OPENAI))) as embedder:
        with pytest.raises(EmbedderBroken, match="no memory-embedder"):
            await embedder.embed_query("q")


async def test_a_memory_embedder_is_not_asked_as_a_third_party_one_since_each_text_would_have_two_prefixes() -> None:
    server = Server(OPENAI)

    def ours(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={**server(request).json(), "digest": "sha256:aa"})

    async with client(ours) as embedder:
        with pytest.raises(EmbedderBroken, match="is a memory-embedder"):
            await embedder.embed_query("q")


@pytest.mark.parametrize(
    "given",
    [
        {"served_as": "bge"},
        {"query_prefix": "ask: "},
        {"api": VOYAGE, "document_prefix": ""},
        {"api": COHERE, "query_prefix": "ask: "},
    ],
)
def test_a_name_or_a_prefix_that_would_have_no_effect_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfiguration, match="MEMORY_EMBEDDER_API"):
        EmbedderOptions(**given)
