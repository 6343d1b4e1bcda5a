"""A reranker's scores are those of its network by an independent computation; what is no reranker is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from memory_embedder.engine import amx
from memory_embedder.engine.amx_trial import compute_once
from memory_embedder.engine.llama import LlamaEngine
from memory_embedder.engine.protocol import EngineOptions
from memory_embedder.errors import EmbedderError
from memory_embedder.models import gguf_header
from memory_embedder.models.model_file import ModelFile
from memory_embedder.models.profiles import ModelProfile, Pooling
from memory_recall.embedding.client import EmbedderClient
from tests.integration.memory_embedder.cross_encoder import WIDTH, WINDOW, CrossEncoder, make_cross_encoder

PROFILE = ModelProfile("tiny-reranker", dimensions=1, max_tokens=WINDOW, pooling=Pooling.RANK)
QUERY = "where is the backup of the NAS?"
TEXTS = {
    "a sentence": "The NAS is backed up to the second disk every night at three.",
    "a word": "backup",
    "special tokens": "what does [SEP] mean, and [CLS]?",
    "other scripts": "Где лежит резервная копия? 我的记忆 한국어",
    "beyond the window": "alpha beta gamma delta " * 40,
}


@pytest.fixture(scope="session")
def reranker(cross_encoder: CrossEncoder) -> Iterator[LlamaEngine]:
    engine = LlamaEngine(options(cross_encoder.path))
    yield engine
    engine.close()


def options(path: Path, profile: ModelProfile = PROFILE) -> EngineOptions:
    return EngineOptions(path=path, profile=profile, batch_tokens=256, contexts=1)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
@pytest.mark.parametrize("query", [QUERY, QUERY * 20], ids=["a query", "a long query"])
def test_a_pairs_tokens_and_score_are_those_of_a_plain_forward_pass(
    reranker: LlamaEngine, cross_encoder: CrossEncoder, query: str, text: str
) -> None:
    (pair,) = reranker.pair_tokenizer(query)([text])
    assert pair.tokens.tolist() == cross_encoder.tokens(query, text)
    assert pair.truncated == (query != QUERY or text == TEXTS["beyond the window"])
    computer = reranker.computer(1)
    scores = computer.embed([pair.tokens])
    computer.close()
    assert scores.shape == (1, 1)
    assert scores[0, 0] == pytest.approx(cross_encoder.score(query, text), abs=2e-3)


def test_the_scores_of_a_batch_are_those_of_its_pairs_alone_and_differ(
    reranker: LlamaEngine, cross_encoder: CrossEncoder
) -> None:
    texts = [TEXTS[name] for name in ("a sentence", "a word", "special tokens", "other scripts")]
    computer = reranker.computer(1)
    scores = computer.embed([pair.tokens for pair in reranker.pair_tokenizer(QUERY)(texts)])[:, 0]
    computer.close()
    assert scores == pytest.approx([cross_encoder.score(QUERY, text) for text in texts], abs=2e-3)
    assert np.ptp(scores) > 0.1


def test_a_query_is_tokenised_once_for_all_parts_of_a_request(
    reranker: LlamaEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request of 256 long texts has a part for each; its query may be as long as half of the window."""
    read: list[str] = []
    tokenize = reranker._tokenizer._tokenize

    def observed(text: str) -> Any:
        read.append(text)
        return tokenize(text)

    monkeypatch.setattr(reranker._tokenizer, "_tokenize", observed)
    encode = reranker.pair_tokenizer(QUERY)
    assert read == []
    parts = [*encode(["a", "b"]), *encode(["c"])]
    assert read == [QUERY, "a", "b", "c"]
    assert [part.tokens.tolist() for part in parts] == [
        pair.tokens.tolist() for pair in reranker.pair_tokenizer(QUERY)(["a", "b", "c"])
    ]


def test_a_file_without_a_classifier_is_refused_as_a_reranker_by_its_name(f16_file: Path) -> None:
    with pytest.raises(EmbedderError, match=r"minilm-f16\.gguf has a classifier of 0 outputs"):
        LlamaEngine(options(f16_file))


def test_a_reranker_with_token_types_is_refused_since_llama_cpp_leaves_them_out(
    model_directory: Path, reference: Any, tmp_path: Path
) -> None:
    other = make_cross_encoder(model_directory, reference, tmp_path / "two-types.gguf", token_types=2)
    with pytest.raises(EmbedderError, match=r"two-types\.gguf tells texts apart by 2 token types"):
        LlamaEngine(options(other.path))


def test_the_trial_of_amx_kernels_computes_a_reranker_too(cross_encoder: CrossEncoder) -> None:
    """It fails for every quantised one otherwise, which is then computed without AMX wherever there is any."""
    compute_once(cross_encoder.path, PROFILE.width, PROFILE.max_tokens, PROFILE.pooling)


def test_a_model_that_is_computed_passes_the_trial_of_amx_kernels(
    cross_encoder: CrossEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a process of its own, with the best kernels that this machine has."""
    monkeypatch.setattr(amx, "amx_possible", lambda: True)
    with ModelFile(cross_encoder.path) as file:
        assert amx.amx_works(file, PROFILE)


def test_the_trial_of_amx_kernels_reads_the_header_once(
    cross_encoder: CrossEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The vocabulary of a multilingual model takes tenths of a second."""
    opened: list[Any] = []
    read = gguf_header._read_values

    def observed(file: Any) -> Any:
        opened.append(file)
        return read(file)

    monkeypatch.setattr(gguf_header, "_read_values", observed)
    compute_once(cross_encoder.path, PROFILE.width, PROFILE.max_tokens, PROFILE.pooling)
    assert len(opened) == 1


def test_a_reranker_is_refused_as_an_embedding_model(cross_encoder: CrossEncoder) -> None:
    profile = ModelProfile("x", dimensions=WIDTH, max_tokens=WINDOW, pooling=Pooling.CLS)
    with pytest.raises(EmbedderError, match="was made for rank pooling"):
        LlamaEngine(options(cross_encoder.path, profile))


def test_a_served_reranker_orders_texts_by_the_reference(server: Any, cross_encoder: CrossEncoder) -> None:
    texts = list(TEXTS.values())
    body = {"query": QUERY, "documents": texts, "raw_scores": True}
    answer = httpx.post(f"{server.url}/v1/rerank", json=body, timeout=60).raise_for_status().json()
    scores = {item["index"]: item["relevance_score"] for item in answer["results"]}
    expected = [cross_encoder.score(QUERY, text) for text in texts]
    assert [scores[index] for index in range(len(texts))] == pytest.approx(expected, abs=2e-3)
    assert list(scores) == sorted(scores, key=lambda index: -expected[index])
    assert answer["usage"]["truncated_inputs"] == 1


async def test_the_librarys_client_gets_the_references_scores_in_the_order_of_the_texts(
    server: Any, cross_encoder: CrossEncoder
) -> None:
    texts = list(TEXTS.values())
    async with EmbedderClient(server.url) as client:
        scores = await client.rerank(QUERY, texts)
    assert scores == pytest.approx([cross_encoder.score(QUERY, text) for text in texts], abs=2e-3)
