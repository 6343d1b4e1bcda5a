"""The HTTP contract of the reranker against a fake engine, and that its lane keeps out of the way of queries."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from memory_embedder.errors import EmbedderError
from memory_embedder.scheduling.lanes import Lane
from memory_embedder.scheduling.service import EmbeddingService
from memory_embedder.settings import EmbedderSettings, Limits
from tests.unit.memory_embedder.conftest import Connect, MakeService, until

TEXTS = ["one", "one two three", "one two"]  # the fake engine scores a pair by its words, the query's too
DIGEST = "sha256:" + "6" * 64
SETTINGS = {"reranker": "tiny", "reranker_max_tokens": 256}


@pytest.fixture
async def both(make_service: MakeService, engine: Any, reranking_engine: Any) -> AsyncIterator[EmbeddingService]:
    """A service of an embedding model and a reranker, with one core."""
    service = make_service(limits=Limits(queued_rerank_tokens=1000, rerank_request_tokens=600), **SETTINGS)
    service.load()
    yield service
    engine.gate.set()
    reranking_engine.gate.set()
    assert await asyncio.to_thread(service.close)
    assert reranking_engine.closed


@pytest.fixture
async def http(both: EmbeddingService, connect: Connect) -> AsyncIterator[httpx.AsyncClient]:
    async with connect(both) as client:
        yield client


async def rerank(http: httpx.AsyncClient, **body: Any) -> httpx.Response:
    return await http.post("/v1/rerank", json={"query": "q", **body})


def sigmoid(score: float) -> float:
    return 1 / (1 + math.exp(-score))


async def test_documents_are_answered_in_coheres_shape_best_first_with_the_files_digest(
    http: httpx.AsyncClient,
) -> None:
    answer = (await rerank(http, documents=TEXTS, model="tiny")).json()
    assert [item["index"] for item in answer["results"]] == [1, 2, 0]
    assert answer["results"][0]["relevance_score"] == pytest.approx(sigmoid(-4), abs=1e-6)
    assert (answer["model"], answer["digest"]) == ("tiny", DIGEST)
    assert answer["usage"] == {"prompt_tokens": 15, "total_tokens": 15, "truncated_inputs": 0}


async def test_texts_are_answered_in_teis_shape_and_the_digest_is_in_a_header(http: httpx.AsyncClient) -> None:
    answer = await rerank(http, texts=TEXTS, raw_scores=True, return_text=False, truncation_direction="Right")
    assert answer.json() == [{"index": 1, "score": -4.0}, {"index": 2, "score": -5.0}, {"index": 0, "score": -6.0}]
    assert answer.headers["x-model-digest"] == DIGEST


@pytest.mark.finding("embedder 2")
async def test_an_answer_repeats_the_texts_where_the_client_asks_for_them(http: httpx.AsyncClient) -> None:
    """The Python libraries of Dify, LiteLLM and Cohere ask for them by default."""
    documents = (await rerank(http, documents=TEXTS, top_n=2, return_documents=True)).json()["results"]
    assert [(item["index"], item["document"]) for item in documents] == [
        (1, {"text": TEXTS[1]}),
        (2, {"text": TEXTS[2]}),
    ]
    texts = (await rerank(http, texts=TEXTS, top_n=1, return_text=True)).json()
    assert [(item["index"], item["text"]) for item in texts] == [(1, TEXTS[1])]
    assert "document" not in (await rerank(http, documents=TEXTS, return_documents=False)).json()["results"][0]


@pytest.mark.finding("embedder 3")
async def test_clients_of_cohere_and_tei_find_the_route_at_their_own_paths_and_may_send_objects(
    http: httpx.AsyncClient,
) -> None:
    expected = (await rerank(http, documents=TEXTS)).json()
    objects = [{"text": text, "title": "not scored"} for text in TEXTS]
    for path in ("/rerank", "/v1/rerank", "/v2/rerank", "/rerank/"):
        answer = await http.post(path, json={"query": "q", "documents": objects})
        assert answer.json() == expected


async def test_texts_that_are_repeated_count_as_memory_until_they_are_sent(
    make_service: MakeService, connect: Connect, engine: Any
) -> None:
    """Otherwise callers that do not read would hold twice what the bound of large requests says."""
    service = make_service(limits=Limits(large_bytes=300_000), **SETTINGS)
    service.load()
    long = "w" * 100_000
    async with connect(service) as http:
        assert (await rerank(http, documents=[long, long])).status_code == 200
        answer = await rerank(http, documents=[long, long], return_documents=True)
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "overloaded")
        assert (await rerank(http, documents=[long], return_documents=True)).status_code == 200
    assert await asyncio.to_thread(service.close)


async def test_only_the_best_are_returned_where_top_n_says_so_and_equal_scores_keep_their_order(
    http: httpx.AsyncClient,
) -> None:
    answer = (await rerank(http, documents=["a b", "c d", "e"], top_n=2)).json()
    assert [item["index"] for item in answer["results"]] == [0, 1]


async def test_a_pair_beyond_the_window_is_truncated_and_counted_or_refused(http: httpx.AsyncClient) -> None:
    long = "word " * 300
    assert (await rerank(http, documents=[long, "x"])).json()["usage"]["truncated_inputs"] == 1
    for given in (False, "NONE"):
        refused = await rerank(http, documents=["x", long], truncate=given)
        assert (refused.status_code, refused.json()["error"]["code"]) == (422, "input_too_long")


REFUSALS: dict[str, tuple[dict[str, Any], int, str, str | None]] = {
    "no texts": ({}, 422, "malformed", "documents"),
    "both lists": ({"documents": ["a"], "texts": ["a"]}, 422, "malformed", "documents"),
    "an empty list": ({"texts": []}, 400, "empty_input", "texts"),
    "an empty text": ({"texts": ["a", " "]}, 400, "empty_input", "texts"),
    "an empty query": ({"query": "", "texts": ["a"]}, 400, "empty_input", "query"),
    "no query": ({"query": None, "texts": ["a"]}, 422, "malformed", "query"),
    "objects without a text": ({"documents": [{"title": "CANARY"}]}, 422, "malformed", "documents"),
    "the embedding model": ({"texts": ["a"], "model": "all-MiniLM-L6-v2"}, 404, "model_not_found", "model"),
    "none of the best": ({"texts": ["a"], "top_n": 0}, 422, "malformed", "top_n"),
    "a word for yes": ({"documents": ["a"], "return_documents": "yes"}, 422, "malformed", "return_documents"),
    "the start cut off": ({"texts": ["a"], "truncation_direction": "Left"}, 422, "malformed", "truncation_direction"),
    "too many texts": ({"texts": ["a"] * 257}, 413, "too_large", "texts"),
    "too many tokens": ({"texts": ["w " * 200] * 4}, 413, "too_large", None),
    "too many values": ({"texts": ["a"] * 5000}, 413, "too_large", None),
}


@pytest.mark.parametrize(("body", "status", "code", "param"), REFUSALS.values(), ids=REFUSALS.keys())
async def test_a_request_that_cannot_be_served_is_refused_with_the_field_at_fault(
    http: httpx.AsyncClient, body: dict[str, Any], status: int, code: str, param: str | None
) -> None:
    answer = await rerank(http, **body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (status, code, param)
    assert "CANARY" not in answer.text


async def test_a_service_without_a_reranker_says_how_to_get_one(client: httpx.AsyncClient) -> None:
    answer = await rerank(client, texts=["a"])
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "no_reranker")
    assert "--reranker" in answer.json()["error"]["message"]


async def test_a_query_is_embedded_while_the_reranker_computes_and_a_full_lane_of_pairs_refuses_pairs_alone(
    both: EmbeddingService, http: httpx.AsyncClient, reranking_engine: Any
) -> None:
    reranking_engine.gate.clear()
    async with asyncio.TaskGroup() as asked:
        pairs = asked.create_task(rerank(http, texts=["w " * 97] * 5))
        await until(lambda: both.reading().inflight[Lane.RERANK] == 100)
        full = [asked.create_task(rerank(http, texts=["w " * 97] * 5)) for _ in range(2)]
        await until(lambda: any(task.done() for task in full))
        query = await http.post("/v1/embeddings", json={"input": "q", "input_type": "query"})
        assert query.status_code == 200
        assert not pairs.done()
        reranking_engine.gate.set()
    assert sorted(task.result().status_code for task in [pairs, *full]) == [200, 200, 429]


async def test_one_request_of_many_pairs_wakes_every_context_of_the_reranker(
    make_service: MakeService, connect: Connect, reranking_engine: Any
) -> None:
    service = make_service(cores=3, **SETTINGS)
    service.load()
    reranking_engine.gate.clear()
    async with connect(service) as http, asyncio.TaskGroup() as asked:
        asked.create_task(rerank(http, texts=["w " * 97] * 5))
        await until(lambda: service.reading().inflight[Lane.RERANK] == 300)
        reranking_engine.gate.set()
    assert await asyncio.to_thread(service.close)


async def test_the_reranker_is_listed_counted_and_described_beside_the_model(
    both: EmbeddingService, http: httpx.AsyncClient
) -> None:
    await rerank(http, texts=TEXTS)
    cards = (await http.get("/v1/models")).json()["data"]
    assert [(card["id"], card["pooling"]) for card in cards] == [("all-MiniLM-L6-v2", "mean"), ("tiny", "rank")]
    assert (await http.get("/v1/models/tiny")).json() == cards[1]
    counted = 'memory_embedder_documents_total{lane="rerank"} 3.0'  # a moment after the answer
    await until(lambda: counted in both.metrics.render().decode())
    metrics = both.metrics.render().decode()
    assert f'memory_embedder_reranker_info{{digest="{DIGEST}",model="tiny"}} 1.0' in metrics
    assert metrics.count("memory_embedder_model_info{") == 1  # which the operator reads the active model from


async def test_admitted_pairs_are_answered_during_a_drain_and_new_ones_refused(
    both: EmbeddingService, http: httpx.AsyncClient, reranking_engine: Any
) -> None:
    reranking_engine.gate.clear()
    admitted = asyncio.create_task(rerank(http, texts=["a"]))
    await until(lambda: both.reading().inflight[Lane.RERANK] > 0)
    both.begin_drain()
    assert (await rerank(http, texts=["a"])).json()["error"]["code"] == "draining"
    reranking_engine.gate.set()
    assert (await admitted).status_code == 200


async def test_the_key_of_embeddings_is_asked_for_here_too(
    make_service: MakeService, connect: Connect, tmp_path: Any
) -> None:
    key = tmp_path / "key"
    key.write_text("secret")
    service = make_service(api_key_file=key, **SETTINGS)
    service.load()
    async with connect(service) as http:
        assert (await rerank(http, texts=["a"])).status_code == 401
        given = await http.post(
            "/v1/rerank", json={"query": "q", "texts": ["a"]}, headers={"Authorization": "Bearer secret"}
        )
        assert given.status_code == 200
    await asyncio.to_thread(service.close)


async def test_pairs_of_one_key_that_fill_the_lane_do_not_refuse_those_of_another(
    make_service: MakeService, connect: Connect, tmp_path: Any, reranking_engine: Any
) -> None:
    (tmp_path / "keys").write_text("many\nother")
    limits = Limits(queued_rerank_tokens=600, rerank_request_tokens=600)
    service = make_service(api_key_file=tmp_path / "keys", limits=limits, **SETTINGS)
    service.load()
    reranking_engine.gate.clear()

    async def ask(key: str, count: int) -> int:
        body = {"query": "q", "texts": ["w " * 97] * count}
        return (await client.post("/v1/rerank", json=body, headers={"Authorization": f"Bearer {key}"})).status_code

    async with connect(service) as client, asyncio.TaskGroup() as asked:
        computing = asked.create_task(ask("many", 1))
        await until(lambda: service.reading().inflight[Lane.RERANK] == 100)
        waiting = asked.create_task(ask("many", 6))
        await until(lambda: service.reading().queued[Lane.RERANK] == 600)
        assert await ask("many", 1) == 429
        other = asked.create_task(ask("other", 1))
        await until(lambda: other.done() or service.reading().queued[Lane.RERANK] == 700)
        reranking_engine.gate.set()
    assert [task.result() for task in (computing, waiting, other)] == [200, 200, 200]
    assert await asyncio.to_thread(service.close)


async def test_a_failed_batch_of_pairs_answers_its_request_and_the_next_gets_a_new_context(
    both: EmbeddingService, http: httpx.AsyncClient, reranking_engine: Any
) -> None:
    reranking_engine.failures = 1
    assert (await rerank(http, texts=["a"])).json()["error"]["code"] == "engine_failed"
    async with asyncio.timeout(20):
        while (await rerank(http, texts=["a"])).status_code != 200:  # noqa: ASYNC110 -- it is another thread that changes
            await asyncio.sleep(0.01)
    assert both.metrics.engine_failures._value.get() == 1


async def test_without_a_context_of_the_reranker_pairs_are_refused_at_once_and_queries_are_embedded(
    both: EmbeddingService, http: httpx.AsyncClient, reranking_engine: Any
) -> None:
    """Pairs waited for a context until the pod was restarted."""
    reranking_engine.failures, reranking_engine.refused_contexts = 1, 10**9
    await rerank(http, texts=["a"])
    refused = await asyncio.wait_for(rerank(http, texts=["a"]), 10)
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert "reranker" in refused.json()["error"]["message"]
    query = {"input": "q", "input_type": "query"}
    assert (await http.post("/v1/embeddings", json=query)).status_code == 200
    reranking_engine.refused_contexts = 0


def test_an_unknown_reranker_needs_its_window_and_a_known_one_has_it() -> None:
    known = EmbedderSettings(reranker="bge-reranker-base").reranker_profile()
    assert known is not None
    assert (known.max_tokens, known.dimensions) == (512, 1)
    assert EmbedderSettings(reranker="bge-reranker-base", reranker_max_tokens=128).reranker_profile() == replace(
        known, max_tokens=128
    )
    with pytest.raises(EmbedderError, match="--reranker-max-tokens"):
        EmbedderSettings(reranker="other").reranker_profile()


@pytest.mark.parametrize(
    "values", [{"reranker_file": "r.gguf"}, {"reranker_digest": "1" * 64}, {"reranker_max_tokens": 64}], ids=str
)
def test_settings_of_a_reranker_without_its_name_are_refused(values: dict[str, Any]) -> None:
    (name,) = values
    with pytest.raises(EmbedderError, match=f"--{name.replace('_', '-')} has no effect without --reranker"):
        EmbedderSettings(**values).reranker_profile()


def test_rank_pooling_is_refused_for_the_embedding_model_with_the_remedy() -> None:
    with pytest.raises(EmbedderError, match="--reranker-file"):
        EmbedderSettings(pooling="rank").profile()
