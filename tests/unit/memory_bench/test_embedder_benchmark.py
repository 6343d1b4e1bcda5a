"""The embedder's benchmark: its plan, the ratios that it computes, and the build of llama-server."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_bench.embedder.cpu.recall_loss import RecallLoss, recall_loss
from memory_bench.embedder.gpu import matrix_product
from memory_bench.embedder.gpu.plan import gpu_plan
from memory_bench.embedder.plan import LARGE, MINILM, Extent, plan
from memory_bench.embedder.records import (
    LLAMA_CLASS,
    LLAMA_SERVER,
    ONNX_F32,
    ONNX_INT8,
    OURS,
    OURS_Q8_0,
    PYTORCH_BF16,
    PYTORCH_F32,
    RAW,
    SENTENCE_TRANSFORMERS,
    DocumentRecord,
    Measurements,
    MixedRecord,
    QueryRecord,
    RerankRecord,
)
from memory_bench.embedder.subject import paired_rounds
from memory_bench.embedder.summary import details, summary
from memory_bench.embedder.texts import WORDS, check_lengths, texts_of
from memory_bench.harness.dataset import Dataset, Memory, Query

ROOT = Path(__file__).parents[3]


def measured() -> Measurements:
    found = Measurements(MINILM, least_cosine=1.0, gemm_flops=[200.0], text_flops={122: 2.0})
    for number, slow in enumerate((1.0, 3.0, 1.0)):  # the machine is three times slower in one round, for everybody
        for subject, rate in ((OURS, 30.0), (LLAMA_SERVER, 20.0), (LLAMA_CLASS, 4.0), (RAW, 31.0)):
            found.documents.append(DocumentRecord(subject, 122, 8, 4, number, 60, 60 * slow / rate))
        for subject, seconds in ((OURS, 0.004), (LLAMA_SERVER, 0.006), (RAW, 0.003)):
            for tokens in (12, 122):
                found.queries.append(QueryRecord(subject, tokens, number, (seconds * slow, 9.0, 0.001)))
        found.mixed.append(MixedRecord(OURS, number, 64, 2.0 * slow, with_queries=False, queries=()))
        found.mixed.append(MixedRecord(OURS, number, 64, 2.1 * slow, with_queries=True, queries=(0.01, 0.02)))
        found.mixed.append(MixedRecord(LLAMA_SERVER, number, 64, 3.0 * slow, with_queries=True, queries=(1.0, 2.0)))
        found.reranking.append(RerankRecord(number, (0.004,), (0.006 * slow, 0.007 * slow), 0.02 * slow))
    found.document_batch_seconds = 0.05
    return found


def test_ratios_are_computed_within_a_round_so_that_a_slow_round_cancels_out() -> None:
    assert summary(measured()) == {
        "docs_vs_llama_server": 1.5,
        "docs_vs_llama_embed": 7.5,
        "docs_vs_raw": 0.968,
        "query_idle_vs_raw": 0.75,
        "query_idle_vs_llama_server_at_12_tokens": 1.5,
        "query_idle_vs_llama_server_at_122_tokens": 1.5,
        "query_under_bulk_vs_llama_server": 100.0,
        "bulk_loss_to_lanes": 0.048,
        "query_idle_p50_ms": 4.0,
        "query_beside_reranking_p50_ms": 7.0,
        "query_beside_reranking_bound_ms": 24.0,
        **NO_PEERS,
    }


NO_PEERS = dict.fromkeys(
    (
        "docs_vs_onnxruntime",
        "docs_vs_pytorch_f32",
        "docs_vs_pytorch_bf16",
        "docs_vs_onnxruntime_int8",
        "query_vs_onnxruntime",
        "query_vs_onnxruntime_int8",
        "onnxruntime_int8_least_cosine",
        "onnxruntime_int8_recall_lost",
        "docs_q8_0_vs_f16",
        "query_q8_0_vs_f16",
        "q8_0_least_cosine",
        "q8_0_recall_lost",
    )
)


def test_a_figure_that_was_not_measured_is_null() -> None:
    empty = Measurements(MINILM, least_cosine=1.0)
    assert set(summary(empty).values()) == {None}
    assert set(details(empty).values()) == {None}


def test_details_are_in_milliseconds_and_relative_to_the_matrix_product() -> None:
    found = details(measured())
    assert found["document_batch_ms"] == 50.0
    assert found["under_bulk_p50_ms"] == 15.0
    assert found["docs_vs_gemm_limit"] == 0.3


@pytest.mark.parametrize("extent", [Extent.DEFAULT, Extent.FULL])
def test_the_default_model_is_measured_at_every_length_and_concurrency(extent: Extent) -> None:
    minilm, large = plan(extent)
    assert (minilm.model, large.model) == (MINILM, LARGE)
    assert {(point.tokens, point.concurrency) for point in minilm.documents} == {
        (tokens, concurrency) for tokens in (12, 60, 122, 400) for concurrency in (1, 8, 32)
    }
    assert all(point.everyone for point in minilm.documents if point.concurrency == 8)
    assert minilm.mixed is not None
    assert minilm.calibrate


def test_on_a_gpu_many_texts_are_under_way_and_both_models_are_measured() -> None:
    for extent in Extent:
        models = gpu_plan(extent)
        assert [one.model for one in models] == [MINILM, LARGE]
        assert all(point.concurrency * point.texts_per_request >= 512 for one in models for point in one.documents)
        assert all({12, 122} <= set(one.lengths) for one in models)


def test_the_peer_on_a_gpu_is_sentence_transformers() -> None:
    found = measured()
    found.gpu = True
    found.documents.append(DocumentRecord(SENTENCE_TRANSFORMERS, 122, 8, 64, 0, 60, 4.0))
    found.queries.append(QueryRecord(SENTENCE_TRANSFORMERS, 12, 0, (0.008,)))
    on_gpu = summary(found)
    assert on_gpu.pop("docs_vs_sentence_transformers") == 2.0
    assert on_gpu.pop("query_idle_vs_sentence_transformers_at_12_tokens") == 2.0
    assert on_gpu | NO_PEERS == summary(measured())


def test_the_peers_on_a_cpu_are_pytorch_and_onnx_runtime_each_by_its_precision() -> None:
    found = measured()
    for seconds, peer in enumerate((PYTORCH_F32, PYTORCH_BF16, ONNX_F32, ONNX_INT8), start=1):
        found.documents.append(DocumentRecord(peer, 122, 8, 64, 0, 60, float(seconds)))
    found.queries += [QueryRecord(ONNX_F32, 12, 0, (0.002,)), QueryRecord(ONNX_INT8, 12, 0, (0.001,))]
    found.documents.append(DocumentRecord(OURS_Q8_0, 122, 8, 4, 0, 60, 0.5))
    found.queries.append(QueryRecord(OURS_Q8_0, 12, 0, (0.0005,)))
    found.eight_bit_cosine = {ONNX_INT8: 0.98, OURS_Q8_0: 0.999}
    lost = ((ONNX_INT8, "a", 0.001), (ONNX_INT8, "b", 0.004), (OURS_Q8_0, "a", 0.0), (OURS_Q8_0, "b", -0.002))
    found.eight_bit_recall = [RecallLoss(subject, name, 9, 0.8, part, 0.0, 0.1, 0.5) for subject, name, part in lost]
    on_cpu = summary(found)
    against_peers = [1.5, 0.5, 1.0, 8.0, 0.5, 2.0, 0.98, 0.004]
    against_f16 = [4.0, 8.0, 0.999, 0.0]
    assert [on_cpu[name] for name in NO_PEERS] == against_peers + against_f16


def test_what_recall_loses_is_counted_among_the_memories_of_a_question_s_scope() -> None:
    """By exact vectors each question finds its memory first; by rounded ones the second question finds none of its own.

    It has eleven others of its scope nearer than the one that answers it; those of the other scope are not searched.
    """
    memories = [Memory(number, f"memory {number}", scope="ada" if number else "bob") for number in range(13)]
    queries = [
        Query("q0", "query of bob", "", "bob", frozenset({0})),
        Query("q1", "query of ada", "", "ada", frozenset({1})),
    ]
    dataset = Dataset("invented", tuple(memories), tuple(queries), 0, "")

    alike = {"query of ada", "query of bob", "memory 0", "memory 1"}

    def exact(texts: Sequence[str]) -> np.ndarray:
        return np.array([[1.0, 0.0] if text in alike else [0.0, 1.0] for text in texts])

    def rounded(texts: Sequence[str]) -> np.ndarray:
        return np.array([[0.0, 1.0] if text == "memory 1" else [1.0, 0.0] for text in texts])

    found = recall_loss(dataset, exact, "rounded", rounded)
    assert (found.name, found.questions, found.exact, found.lost) == ("invented", 2, 1.0, 0.5)


class FailingLibrary:
    """CUDA's runtime and cuBLAS on a machine without a GPU: every call gives a status that is no success."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        return lambda *_: 100


def test_a_failing_call_of_cuda_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix_product, "cuda_library", lambda _: FailingLibrary())
    with pytest.raises(ValueError, match="cudaMalloc ended with status 100"):
        matrix_product.gpu_gemm_flops(8, 0.0)


def test_subjects_take_turns_and_every_second_round_has_the_reverse_order() -> None:
    turns: list[tuple[object, int]] = []
    paired_rounds(["a", "b"], 3, lambda subject, number: turns.append((subject, number)))  # type: ignore[type-var]  # names stand for subjects
    assert turns == [("a", 0), ("b", 0), ("b", 1), ("a", 1), ("a", 2), ("b", 2)]


@given(st.integers(3, 500), st.integers(1, 5), st.integers(0, 99))
def test_texts_have_the_given_number_of_tokens_and_are_the_same_for_a_seed(tokens: int, count: int, seed: int) -> None:
    texts = texts_of(tokens, count, seed)
    assert [len(text.split()) for text in texts] == [tokens - 2] * count
    assert texts == texts_of(tokens, count, seed)
    assert {word for text in texts for word in text.split()} <= set(WORDS)


def test_a_tokenizer_that_splits_the_words_is_refused() -> None:
    check_lengths(lambda text: len(text.split()) + 2, {12, 122})
    with pytest.raises(ValueError, match="use a BERT model"):
        check_lengths(len, {12})


def test_llama_server_is_built_with_the_flags_and_processor_variants_of_our_wheel_and_without_our_kernels() -> None:
    wheel = (ROOT / "embedder-service/build-llama-wheel").read_text()
    server = (ROOT / "devcluster/build-llama-server").read_text()
    flags = re.search(r'arguments="(-DGGML_NATIVE=OFF [^"]*?)( -DLLAVA_BUILD=OFF)?"', wheel)
    assert flags
    assert flags[1] in server
    assert all("packaging/fewer-processor-variants.patch" in script for script in (wheel, server))
    assert "kernels/" not in server
    assert all('"$requirements/llama.txt"' in script for script in (wheel, server))
