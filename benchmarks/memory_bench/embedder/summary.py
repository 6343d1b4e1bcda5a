"""Computes the main figures of the embedder benchmark: ratios of two programs in each round, and their medians."""

from collections.abc import Iterable, Sequence

import numpy as np

from memory_bench.embedder.plan import ACCEPTANCE_CONCURRENCY, ACCEPTANCE_TOKENS, QUERY_TOKENS
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
    RAW_ONE_THREAD,
    SENTENCE_TRANSFORMERS,
    Measurements,
    MixedRecord,
)
from memory_bench.embedder.subject import median


def summary(found: Measurements) -> dict[str, float | None]:
    """Return the main figures: our throughput and latency relative to those of other programs; above 1, ours is better.

    The exceptions are `bulk_loss_to_lanes`, the share of our document throughput that is lost while queries are sent,
    and the milliseconds of a query beside a reranker: the medians while nothing else runs and while pairs are reranked,
    and the bound of the latter, which is the former and one batch of pairs. A figure without measurements is None. The
    peers on a GPU and on a CPU differ: sentence-transformers in F16 there, PyTorch and ONNX Runtime in several
    precisions here. ONNX Runtime in INT8 is compared with our server on a file in Q8_0, which is eight bits too.
    """
    idle, beside = _median_of(one.idle for one in found.reranking), _median_of(one.beside for one in found.reranking)
    batch = _median_of([one.batch_seconds] for one in found.reranking)
    under_bulk = _pooled(found.mixed, LLAMA_SERVER, 50), _pooled(found.mixed, OURS, 50)
    on_gpu = {
        "docs_vs_sentence_transformers": document_ratio(found, SENTENCE_TRANSFORMERS),
        "query_idle_vs_sentence_transformers_at_12_tokens": query_ratio(found, SENTENCE_TRANSFORMERS, QUERY_TOKENS),
    }
    on_cpu = {
        "docs_vs_onnxruntime": document_ratio(found, ONNX_F32),
        "docs_vs_pytorch_f32": document_ratio(found, PYTORCH_F32),
        "docs_vs_pytorch_bf16": document_ratio(found, PYTORCH_BF16),
        "docs_vs_onnxruntime_int8": document_ratio(found, ONNX_INT8, ours=OURS_Q8_0),
        "query_vs_onnxruntime": query_ratio(found, ONNX_F32, QUERY_TOKENS),
        "query_vs_onnxruntime_int8": query_ratio(found, ONNX_INT8, QUERY_TOKENS, ours=OURS_Q8_0),
        "onnxruntime_int8_least_cosine": found.eight_bit_cosine.get(ONNX_INT8),
        "onnxruntime_int8_recall_lost": _most_recall_lost(found, ONNX_INT8),
        "docs_q8_0_vs_f16": document_ratio(found, OURS, ours=OURS_Q8_0),
        "query_q8_0_vs_f16": query_ratio(found, OURS, QUERY_TOKENS, ours=OURS_Q8_0),
        "q8_0_least_cosine": found.eight_bit_cosine.get(OURS_Q8_0),
        "q8_0_recall_lost": _most_recall_lost(found, OURS_Q8_0),
    }
    return {
        **(on_gpu if found.gpu else on_cpu),
        "docs_vs_llama_server": document_ratio(found, LLAMA_SERVER),
        "docs_vs_llama_embed": document_ratio(found, LLAMA_CLASS),
        "docs_vs_raw": document_ratio(found, RAW),
        "query_idle_vs_raw": query_ratio(found, RAW, ACCEPTANCE_TOKENS),
        "query_idle_vs_llama_server_at_12_tokens": query_ratio(found, LLAMA_SERVER, QUERY_TOKENS),
        "query_idle_vs_llama_server_at_122_tokens": query_ratio(found, LLAMA_SERVER, ACCEPTANCE_TOKENS),
        "query_under_bulk_vs_llama_server": _ratio(*under_bulk),
        "bulk_loss_to_lanes": bulk_loss(found),
        "query_idle_p50_ms": _milliseconds(idle),
        "query_beside_reranking_p50_ms": _milliseconds(beside),
        "query_beside_reranking_bound_ms": None if idle is None or batch is None else _milliseconds(idle + batch),
    }


def details(found: Measurements) -> dict[str, float | None]:
    """Return the secondary figures: further ratios of throughput and latency, and latencies in milliseconds."""
    batch = found.document_batch_seconds
    return {
        "query_idle_vs_raw_at_12_tokens": query_ratio(found, RAW, QUERY_TOKENS),
        "query_idle_vs_raw_one_thread_at_12_tokens": query_ratio(found, RAW_ONE_THREAD, QUERY_TOKENS),
        "query_idle_vs_raw_one_thread_at_122_tokens": query_ratio(found, RAW_ONE_THREAD, ACCEPTANCE_TOKENS),
        "idle_p50_ms": _milliseconds(_idle(found, OURS, QUERY_TOKENS)),
        "under_bulk_p50_ms": _milliseconds(_pooled(found.mixed, OURS, 50)),
        "under_bulk_p95_ms": _milliseconds(_pooled(found.mixed, OURS, 95)),
        "document_batch_ms": _milliseconds(batch),
        "llama_server_idle_p50_ms": _milliseconds(_idle(found, LLAMA_SERVER, QUERY_TOKENS)),
        "llama_server_under_bulk_p50_ms": _milliseconds(_pooled(found.mixed, LLAMA_SERVER, 50)),
        "llama_server_under_bulk_p95_ms": _milliseconds(_pooled(found.mixed, LLAMA_SERVER, 95)),
        "query_under_bulk_p95_vs_llama_server": _ratio(
            _pooled(found.mixed, LLAMA_SERVER, 95), _pooled(found.mixed, OURS, 95)
        ),
        "docs_vs_gemm_limit": _share_of_limit(found),
    }


def table(found: Measurements) -> dict[str, dict[str, float]]:
    """Return the medians over all rounds: documents a second by length, and milliseconds of a query alone by length."""
    documents = {one.tokens for one in found.documents}
    rates = {tokens: document_rates(found, tokens, ACCEPTANCE_CONCURRENCY) for tokens in sorted(documents)}
    subjects = {one.subject for one in found.queries}
    return {
        **{
            f"documents a second, {tokens} tokens": {name: _rounded(median(each)) for name, each in by_subject.items()}
            for tokens, by_subject in rates.items()
        },
        **{
            f"a query of {tokens} tokens alone, p50 ms": {
                name: value
                for name in sorted(subjects)
                if (value := _milliseconds(_idle(found, name, tokens))) is not None
            }
            for tokens in sorted({one.tokens for one in found.queries})
        },
    }


def document_ratio(
    found: Measurements,
    other: str,
    tokens: int = ACCEPTANCE_TOKENS,
    concurrency: int = ACCEPTANCE_CONCURRENCY,
    *,
    ours: str = OURS,
) -> float | None:
    """Return the median over the rounds of our texts per second divided by those of the program `other`.

    Returns None if no round measured both programs.
    """
    rates = {
        (one.subject, one.round): one.rate
        for one in found.documents
        if one.tokens == tokens and one.concurrency == concurrency
    }
    rounds = [number for subject, number in rates if subject == ours and (other, number) in rates]
    return _rounded(median([rates[ours, n] / rates[other, n] for n in rounds])) if rounds else None


def query_ratio(found: Measurements, other: str, tokens: int, *, ours: str = OURS) -> float | None:
    """Return the median over the rounds of the query time of the program `other` divided by ours.

    Returns None if no round measured both programs.
    """
    middle = {(one.subject, one.round): median(one.seconds) for one in found.queries if one.tokens == tokens}
    rounds = [number for subject, number in middle if subject == ours and (other, number) in middle]
    return _rounded(median([middle[other, n] / middle[ours, n] for n in rounds])) if rounds else None


def bulk_loss(found: Measurements) -> float | None:
    """Return the share of our document throughput that is lost while queries are sent, as the median over the rounds.

    Returns None if no round measured the documents both with and without queries.
    """
    alone = {one.round: one for one in found.mixed if one.subject == OURS and not one.with_queries}
    shared = {one.round: one for one in found.mixed if one.subject == OURS and one.with_queries}
    rounds = sorted(alone.keys() & shared.keys())
    losses = [1 - alone[n].bulk_seconds / shared[n].bulk_seconds for n in rounds]
    return _rounded(median(losses)) if losses else None


def document_rates(found: Measurements, tokens: int, concurrency: int) -> dict[str, list[float]]:
    """Return every program's documents per second in each round, at one text length and concurrency."""
    rates: dict[str, list[float]] = {}
    for one in found.documents:
        if one.tokens == tokens and one.concurrency == concurrency:
            rates.setdefault(one.subject, []).append(one.rate)
    return rates


def queries_under_bulk(records: Iterable[MixedRecord], subject: str) -> list[float]:
    """Return the durations in seconds of all queries that one server answered while documents were sent to it."""
    return [value for one in records if one.subject == subject for value in one.queries]


def _most_recall_lost(found: Measurements, subject: str) -> float | None:
    """Return what recall@10 loses by a program's vectors on the set where it loses most."""
    return max((one.lost for one in found.eight_bit_recall if one.subject == subject), default=None)


def _share_of_limit(found: Measurements) -> float | None:
    rates = document_rates(found, ACCEPTANCE_TOKENS, ACCEPTANCE_CONCURRENCY).get(OURS)
    if not rates or not found.gemm_flops:
        return None
    return _rounded(median(rates) * found.text_flops[ACCEPTANCE_TOKENS] / median(found.gemm_flops))


def _idle(found: Measurements, subject: str, tokens: int) -> float | None:
    values = [v for one in found.queries if one.subject == subject and one.tokens == tokens for v in one.seconds]
    return median(values) if values else None


def _pooled(records: Iterable[MixedRecord], subject: str, percentile: int) -> float | None:
    values = queries_under_bulk(records, subject)
    return float(np.percentile(values, percentile)) if values else None


def _median_of(rounds: Iterable[Sequence[float]]) -> float | None:
    """Return the median of the values of all rounds, or None if there is none."""
    values = [value for one in rounds for value in one]
    return median(values) if values else None


def _ratio(over: float | None, under: float | None) -> float | None:
    return None if over is None or under is None else _rounded(over / under)


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)


def _rounded(value: float) -> float:
    return round(value, 3)
