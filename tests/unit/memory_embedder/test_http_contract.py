"""The HTTP contract of the embedder against a fake engine."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import numpy as np
import pytest

from memory_embedder.scheduling.service import EmbeddingService
from tests.unit.memory_embedder.conftest import until


async def ask(client: httpx.AsyncClient, **body: Any) -> httpx.Response:
    return await client.post("/v1/embeddings", json=body)


async def test_a_string_and_a_list_of_one_yield_the_same_unit_vector(client: httpx.AsyncClient) -> None:
    one = (await ask(client, input="hello world")).json()
    many = (await ask(client, input=["hello world"])).json()
    assert one["data"] == many["data"]
    assert np.linalg.norm(one["data"][0]["embedding"]) == pytest.approx(1, abs=1e-6)


async def test_vectors_keep_the_order_of_the_texts_and_usage_counts_every_token(client: httpx.AsyncClient) -> None:
    texts = ["a b c", "d", "e f"]
    answer = (await ask(client, input=texts)).json()
    singles = [(await ask(client, input=text)).json()["data"][0]["embedding"] for text in texts]
    assert [item["embedding"] for item in answer["data"]] == singles
    assert [item["index"] for item in answer["data"]] == [0, 1, 2]
    assert answer["usage"] == {"prompt_tokens": 12, "total_tokens": 12, "truncated_inputs": 0}


async def test_every_answer_names_the_file_that_made_its_vectors(client: httpx.AsyncClient) -> None:
    answer = (await ask(client, input="x")).json()
    (card,) = (await client.get("/v1/models")).json()["data"]
    assert (answer["model"], answer["digest"]) == (card["id"], card["digest"])
    assert answer["digest"].startswith("sha256:")


async def test_base64_carries_exactly_the_floats(client: httpx.AsyncClient) -> None:
    floats = (await ask(client, input="x", encoding_format="float")).json()["data"][0]["embedding"]
    packed = (await ask(client, input="x", encoding_format="base64")).json()["data"][0]["embedding"]
    assert np.array_equal(np.frombuffer(base64.b64decode(packed), "<f4"), np.array(floats, dtype=np.float32))


async def test_a_text_beyond_the_window_is_truncated_and_counted_or_refused(client: httpx.AsyncClient) -> None:
    text = "word " * 300
    for given in ({}, {"truncate": True}, {"truncate": "END"}):
        answer = await ask(client, input=[text, "short"], **given)
        assert answer.json()["usage"]["truncated_inputs"] == 1
    for given in ({"truncate": False}, {"truncate": "NONE"}):
        refused = await ask(client, input=["short", text], **given)
        assert (refused.status_code, refused.json()["error"]["code"]) == (422, "input_too_long")
        assert "Input 1" in refused.json()["error"]["message"]


async def test_the_answer_says_which_texts_the_model_has_not_read_to_their_end(client: httpx.AsyncClient) -> None:
    """Of a query that was answered from the cache, too."""
    data = (await ask(client, input=["short", "word " * 300])).json()["data"]
    assert [item.get("truncated") for item in data] == [None, True]
    for _ in range(2):
        asked = await ask(client, input=["word " * 300, "short"], input_type="query")
        assert [item.get("truncated") for item in asked.json()["data"]] == [True, None]


@pytest.mark.finding("embedder 8")
async def test_the_default_lane_is_documents_and_a_query_goes_to_its_own(
    client: httpx.AsyncClient, service: EmbeddingService
) -> None:
    await ask(client, input="x")
    await ask(client, input="y", input_type="document")
    await ask(client, input="z", input_type="query")
    await ask(client, input="a", input_type="passage")
    await ask(client, input="b", input_type="search_document")
    await ask(client, input="c", input_type="search_query")
    for lane, number in (("document", 4.0), ("query", 2.0)):  # counted a moment after the answer
        series = f'memory_embedder_documents_total{{lane="{lane}"}} {number}'
        await until(lambda series=series: series in service.metrics.render().decode())  # type: ignore[misc]


REFUSALS: list[tuple[str, bytes | dict[str, Any], int, str, str | None]] = [
    ("empty text", {"input": ""}, 400, "empty_input", "input"),
    ("blank text", {"input": " \n\t"}, 400, "empty_input", "input"),
    ("a text of no width", {"input": "\u200b"}, 400, "empty_input", "input"),
    ("list with a text of controls", {"input": ["a", "\0 \u2028\ufeff\xad"]}, 400, "empty_input", "input"),
    ("empty list", {"input": []}, 400, "empty_input", "input"),
    ("list with an empty text", {"input": ["a", ""]}, 400, "empty_input", "input"),
    ("no input", {}, 422, "malformed", "input"),
    ("null input", {"input": None}, 422, "malformed", "input"),
    ("number", {"input": 1.5}, 422, "malformed", "input"),
    ("object", {"input": {"text": "a"}}, 422, "malformed", "input"),
    ("mixed list", {"input": ["a", None]}, 422, "malformed", "input"),
    ("token ids", {"input": [1, 2, 3]}, 422, "token_input_unsupported", "input"),
    ("lists of token ids", {"input": [[1, 2], [3]]}, 422, "token_input_unsupported", "input"),
    ("unknown model", {"input": "a", "model": "gpt-4"}, 404, "model_not_found", "model"),
    ("model of a wrong type", {"input": "a", "model": 3}, 422, "malformed", "model"),
    ("other dimensions", {"input": "a", "dimensions": 7}, 422, "dimensions_mismatch", "dimensions"),
    ("dimensions as text", {"input": "a", "dimensions": "384"}, 422, "malformed", "dimensions"),
    ("unknown encoding", {"input": "a", "encoding_format": "hex"}, 422, "malformed", "encoding_format"),
    ("unknown input type", {"input": "a", "input_type": "clustering"}, 422, "malformed", "input_type"),
    ("truncate as text", {"input": "a", "truncate": "no"}, 422, "malformed", "truncate"),
    ("only the end kept", {"input": "a", "truncate": "START"}, 422, "malformed", "truncate"),
    ("too many texts", {"input": ["a"] * 2049}, 413, "too_large", "input"),
    ("a list as the body", b'["a"]', 422, "malformed", None),
    ("no body", b"", 422, "malformed", None),
    ("no JSON", b"input=hello", 422, "malformed", None),
    ("cut JSON", b'{"input": "a', 422, "malformed", None),
    ("deep JSON", b'{"input":' + b"[" * 100_000 + b"]" * 100_000 + b"}", 422, "malformed", None),
    ("invalid UTF-8", b'{"input": "\xff\xfe"}', 422, "malformed", None),
    ("a body beyond the limit", b'{"input": "' + b"a" * (8 << 20) + b'"}', 413, "too_large", None),
]


@pytest.mark.parametrize(
    ("body", "status", "code", "param"), [row[1:] for row in REFUSALS], ids=[row[0] for row in REFUSALS]
)
async def test_a_callers_mistake_gets_the_envelope_with_its_status_and_field(
    client: httpx.AsyncClient, body: bytes | dict[str, Any], status: int, code: str, param: str | None
) -> None:
    if isinstance(body, bytes):
        answer = await client.post("/v1/embeddings", content=body, headers={"content-type": "application/json"})
    else:
        answer = await client.post("/v1/embeddings", json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (status, code)
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param


@pytest.mark.finding("embedder 14")
async def test_an_address_is_joined_to_a_path_in_any_of_the_ways_of_clients(
    client: httpx.AsyncClient, probe: httpx.AsyncClient
) -> None:
    expected = (await ask(client, input="x")).json()
    for path in ("/embeddings", "/embeddings/", "/v1/embeddings/"):
        assert (await client.post(path, json={"input": "x"})).json() == expected
    assert (await client.get("/v1/models/")).json() == (await client.get("/v1/models")).json()
    assert (await probe.get("/readyz/")).status_code == 200


async def test_clients_that_ask_for_health_before_they_send_texts_are_told_on_their_own_port(
    client: httpx.AsyncClient, service: EmbeddingService
) -> None:
    assert (await client.get("/health")).json() == {"status": "ok"}
    service.begin_drain()
    assert (await client.get("/health")).json()["error"]["code"] == "draining"


@pytest.mark.finding("embedder 13")
async def test_a_request_of_as_many_tokens_as_openai_takes_is_served(client: httpx.AsyncClient) -> None:
    """LangChain and others fill their requests up to 300,000."""
    answer = await ask(client, input=["w " * 148] * 2000, encoding_format="base64")
    assert answer.json()["usage"]["prompt_tokens"] == 300_000


@pytest.mark.finding("embedder 12")
@pytest.mark.parametrize("text", ["a\u200b", "\u0000.", "\u0301", "\U0001f4b0", "\u3000\u6f22"], ids=ascii)
async def test_a_text_that_shows_anything_is_embedded(client: httpx.AsyncClient, text: str) -> None:
    """What shows nothing is refused wherever it stands, in the list of refusals above."""
    assert (await ask(client, input=[text])).status_code == 200


async def test_token_ids_are_refused_with_the_switch_of_the_client_that_sends_them(client: httpx.AsyncClient) -> None:
    answer = await ask(client, input=[[101, 102]])
    assert "check_embedding_ctx_length=False" in answer.json()["error"]["message"]


@pytest.mark.finding("embedder 15")
async def test_unknown_paths_and_methods_get_the_same_envelope(
    client: httpx.AsyncClient, probe: httpx.AsyncClient
) -> None:
    for path in ("/v1/embeddings//", "/v1//embeddings", "/"):
        slashed = await client.post(path, json={"input": "x"})
        assert (slashed.status_code, slashed.json()["error"]["code"]) == (404, "not_found")
    assert (await client.get("/docs")).status_code == 404  # a page that needs the internet
    lost = await client.get("/v1/nothing/SECRET")
    wrong = await client.get("/v1/embeddings")
    assert (lost.status_code, lost.json()["error"]["code"]) == (404, "not_found")
    assert "/openapi.json" in lost.json()["error"]["message"]
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, "method_not_allowed")
    assert wrong.headers["allow"] == "POST"
    assert "SECRET" not in (await probe.get("/metrics")).text


async def test_the_model_list_describes_the_served_file(client: httpx.AsyncClient) -> None:
    card = (await client.get("/v1/models")).json()["data"][0]
    assert card["id"] == "all-MiniLM-L6-v2"
    assert (card["dimensions"], card["max_tokens"], card["pooling"], card["owned_by"]) == (
        384,
        256,
        "mean",
        "memory-index",
    )
    assert card["digest"].startswith("sha256:")
    assert (await client.get("/v1/models/all-MiniLM-L6-v2")).json() == card
    assert (await client.get("/v1/models/other")).status_code == 404


async def test_nul_and_unusual_characters_are_text_like_any_other(client: httpx.AsyncClient) -> None:
    for text in ("a\x00b", "\U0001f9e0 brain", "日本語の記憶", "e\u0301", "\u200b x"):
        assert (await ask(client, input=text)).status_code == 200


async def test_openapi_describes_the_request_with_examples(client: httpx.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    operation = document["paths"]["/v1/embeddings"]["post"]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    assert len(schema["examples"]) == 2
    assert {"200", "400", "401", "404", "413", "422", "429", "503"} <= set(operation["responses"])
