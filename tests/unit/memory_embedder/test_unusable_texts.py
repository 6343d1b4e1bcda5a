"""A text for which the model computes nothing finite: it is named, and no other request knows of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from memory_embedder.engine.llama import LlamaComputer
from memory_embedder.errors import EmbedderError
from memory_embedder.models.profiles import RERANKERS
from memory_embedder.scheduling.service import EmbeddingService
from tests.unit.memory_embedder.conftest import POISON, Connect, FakeComputer, FakeEngine, MakeService

POISONED = f"a {POISON}"


async def post(client: httpx.AsyncClient, texts: list[str], **more: Any) -> httpx.Response:
    return await client.post("/v1/embeddings", json={"input": texts, **more})


@pytest.mark.promise("bad-vector-costs-itself")
@pytest.mark.finding("embedder 1")
@pytest.mark.parametrize("input_type", ["query", "document"])
async def test_a_text_without_a_finite_vector_fails_nobody_elses_request(
    client: httpx.AsyncClient, probe: httpx.AsyncClient, engine: FakeEngine, input_type: str
) -> None:
    """They wait together, so that they are computed in one batch; the context stays."""
    computers = engine.computers
    engine.gate.clear()
    asked = [asyncio.create_task(post(client, ["one"], input_type=input_type)) for _ in range(2)]
    asked += [
        asyncio.create_task(post(client, [POISONED if number % 4 == 0 else f"text {number}"], input_type=input_type))
        for number in range(20)
    ]
    await asyncio.sleep(0)
    engine.gate.set()
    statuses = [answer.status_code for answer in await asyncio.gather(*asked)]
    assert statuses == [200, 200, *(422 if number % 4 == 0 else 200 for number in range(20))]
    assert max(map(len, engine.seen)) > 1
    assert engine.computers == computers
    metrics = (await probe.get("/metrics")).text
    assert "memory_embedder_engine_failures_total 0.0" in metrics
    assert 'memory_embedder_rejected_total{code="unusable_vector"} 5.0' in metrics


@pytest.mark.finding("embedder 1")
async def test_the_answer_names_each_such_text_and_no_client_repeats_it(client: httpx.AsyncClient) -> None:
    """SDKs repeat what is answered 429 or 5xx, and what names a time."""
    answer = await post(client, ["one", POISONED, "three", f"another {POISON}"])
    assert answer.status_code == 422
    assert "retry-after" not in answer.headers
    error = answer.json()["error"]
    assert (error["code"], error["type"], error["param"]) == ("unusable_vector", "invalid_request_error", "input[1]")
    assert "1, 3." in error["message"]
    assert error["indexes"] == [1, 3]
    assert POISON not in answer.text
    many = (await post(client, [POISONED] * 25)).json()["error"]
    assert "8, 9 and 15 more" in many["message"]


@pytest.mark.finding("embedder 1")
@pytest.mark.parametrize("input_type", ["query", "document"])
async def test_texts_that_cannot_be_embedded_are_skipped_where_the_caller_asks_for_it(
    client: httpx.AsyncClient, input_type: str
) -> None:
    """Whatever is wrong with them, one list of them is answered, by the code that each alone would have got."""
    long = "word " * 300
    texts = [" ", "one", POISONED, long, "two", "\u200b"]
    answer = (await post(client, texts, input_type=input_type, on_error="skip")).json()
    alone = (await post(client, ["one", long, "two"], input_type=input_type)).json()
    assert [item["index"] for item in answer["data"]] == [1, 3, 4]
    assert [item["embedding"] for item in answer["data"]] == [item["embedding"] for item in alone["data"]]
    assert [item.get("truncated") for item in answer["data"]] == [None, True, None]
    assert answer["skipped"] == [
        {"index": 0, "code": "empty_input"}, {"index": 2, "code": "unusable_vector"},
        {"index": 5, "code": "empty_input"},
    ]  # fmt: skip
    strict = (await post(client, texts, input_type=input_type, on_error="skip", truncate=False)).json()
    assert [item["index"] for item in strict["data"]] == [1, 4]
    assert strict["skipped"][2] == {"index": 3, "code": "input_too_long"}
    assert "skipped" not in (await post(client, ["one"], on_error="skip")).json()


@pytest.mark.parametrize("input_type", ["query", "document"])
async def test_a_text_that_is_skipped_because_it_is_too_long_is_not_computed(
    client: httpx.AsyncClient, engine: FakeEngine, input_type: str
) -> None:
    long = "word " * 300
    engine.seen.clear()
    asked = {"input_type": input_type, "on_error": "skip", "truncate": False}
    answer = (await post(client, [long, "one", long], **asked)).json()
    assert [item["index"] for item in answer["data"]] == [1]
    assert answer["usage"]["prompt_tokens"] == 3
    assert (await post(client, [long], **asked)).json()["skipped"] == [{"index": 0, "code": "input_too_long"}]
    assert engine.seen == [[3]]


@pytest.mark.finding("embedder 1")
@pytest.mark.parametrize("texts", [[""], [POISONED], ["", POISONED]], ids=ascii)
async def test_a_request_of_which_every_text_is_skipped_is_answered(
    client: httpx.AsyncClient, texts: list[str]
) -> None:
    answer = (await post(client, texts, on_error="skip")).json()
    assert answer["data"] == []
    assert [item["index"] for item in answer["skipped"]] == list(range(len(texts)))


@pytest.mark.finding("embedder 1")
async def test_such_a_query_is_never_cached_and_is_named_by_its_place_among_cached_ones(
    make_service: MakeService, connect: Connect, engine: FakeEngine, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("alice")
    service = make_service(api_key_file=tmp_path / "key")
    service.load()
    async with connect(service) as client:
        client.headers["authorization"] = "Bearer alice"
        assert (await post(client, ["one", "two"], input_type="query")).status_code == 200
        for _ in range(2):
            computed = len(engine.seen)
            answer = await post(client, ["one", "two", POISONED], input_type="query")
            assert answer.json()["error"]["param"] == "input[2]"
            assert len(engine.seen) > computed
            skipping = await post(client, ["one", "two", POISONED], input_type="query", on_error="skip")
            assert [item["index"] for item in skipping.json()["data"]] == [0, 1]
    service.close()


@pytest.mark.finding("embedder 1")
@pytest.mark.parametrize("name", ["documents", "texts"])
async def test_a_pair_without_a_finite_score_is_named_too(
    make_service: MakeService, connect: Connect, model_file: Path, name: str
) -> None:
    service = make_service(reranker=next(iter(RERANKERS)), reranker_file=model_file)
    service.load()
    async with connect(service) as client:
        answer = await client.post("/v1/rerank", json={"query": "q", name: ["one", POISONED]})
        assert (answer.status_code, answer.json()["error"]["param"]) == (422, f"{name}[1]")
        assert (await client.post("/v1/rerank", json={"query": "q", name: ["one"]})).status_code == 200
    service.close()


@pytest.mark.parametrize(("poisoned", "most"), [({40}, 17), ({3, 40}, 25), (set(range(64)), 73)], ids=["1", "2", "64"])
def test_a_text_that_spoils_its_batch_is_found_without_computing_every_other_one_alone(
    monkeypatch: pytest.MonkeyPatch, poisoned: set[int], most: int
) -> None:
    """As some kernels do: with them, no row of a batch is usable in which one text is not."""
    sizes: list[int] = []

    def spoiled(_: LlamaComputer, sequences: list[int]) -> np.ndarray[Any, Any]:
        sizes.append(len(sequences))
        usable = [[float(number), 1.0] for number in sequences]
        return np.full((len(sequences), 2), np.nan) if poisoned & set(sequences) else np.array(usable)

    monkeypatch.setattr(LlamaComputer, "_vectors", spoiled)
    vectors = LlamaComputer.__new__(LlamaComputer).embed(list(range(64)))  # type: ignore[arg-type]  # numbers for texts
    assert {place for place in range(64) if vectors[place, 0] != place} == poisoned
    assert len(sizes) <= most


@pytest.mark.finding("embedder 1")
def test_a_model_that_computes_nothing_finite_at_all_is_not_served(
    make_service: MakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is found while contexts are warmed up, so that no caller hears of it text by text."""

    def nothing(_: FakeComputer, sequences: list[object]) -> np.ndarray[Any, Any]:
        return np.full((len(sequences), 384), np.nan, dtype=np.float32)

    monkeypatch.setattr(FakeComputer, "embed", nothing)
    service: EmbeddingService = make_service()
    with pytest.raises(EmbedderError, match="not finite or has no length"):
        service.load()
    service.close()
