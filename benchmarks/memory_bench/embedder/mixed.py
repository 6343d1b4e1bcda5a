"""Measures how long queries take beside bulk work: documents, as a backfill sends them, or pairs to be reranked."""

import re
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

from memory_bench.embedder.over_http import HttpSubject
from memory_bench.embedder.plan import MixedPlan, RerankPlan
from memory_bench.embedder.records import MixedRecord, RerankRecord
from memory_bench.embedder.subject import DocumentLoad

_SATURATED_AFTER_SECONDS = 0.3  # by then both clients have documents in the queue


def bulk_alone(subject: HttpSubject, load: DocumentLoad, number: int) -> MixedRecord:
    """Measure how long the documents take without queries at the same time."""
    return MixedRecord(subject.name, number, load.texts, subject.run_documents(load), with_queries=False, queries=())


def bulk_with_queries(
    subject: HttpSubject, load: DocumentLoad, queries: Iterator[str], plan: MixedPlan, number: int
) -> MixedRecord:
    """Measure how long the documents take while queries are sent one after another, and how long each query takes.

    A query that ends after the documents is left out.
    """
    seconds, waited = _beside(lambda: subject.run_documents(load), subject, queries, plan.query_pause_seconds)
    return MixedRecord(subject.name, number, load.texts, seconds, with_queries=True, queries=waited)


def measure_reranking(
    subject: HttpSubject, load: DocumentLoad, queries: Iterator[str], plan: RerankPlan, number: int
) -> RerankRecord:
    """Measure queries while nothing else runs, the batches of pairs alone, and queries beside pairs without pause."""
    idle = tuple(subject.run_query(next(queries)) for _ in range(plan.idle_queries))
    before = batch_seconds(subject.probe_port, "rerank")
    subject.run_reranking(next(queries), replace(load, requests=load.requests[: load.concurrency]))
    seconds, batches = batch_seconds(subject.probe_port, "rerank", before)
    query = next(queries)
    _, beside = _beside(lambda: subject.run_reranking(query, load), subject, queries, plan.query_pause_seconds)
    return RerankRecord(number, idle, beside, seconds / batches)


def _beside(
    work: Callable[[], float], subject: HttpSubject, queries: Iterator[str], pause: float
) -> tuple[float, tuple[float, ...]]:
    """Do the bulk work and send queries meanwhile; return the seconds of the work and of each query."""
    with ThreadPoolExecutor(1) as pool:
        bulk = pool.submit(work)
        time.sleep(_SATURATED_AFTER_SECONDS)
        waited = tuple(_run_queries(subject, queries, bulk, pause))
        return bulk.result(), waited


def _run_queries(subject: HttpSubject, queries: Iterator[str], bulk: Future[float], pause: float) -> Iterator[float]:
    while not bulk.done():
        seconds = subject.run_query(next(queries))
        if bulk.done():
            return  # the documents ended while this query waited
        yield seconds
        time.sleep(pause)


def batch_seconds(port: int, lane: str, before: tuple[float, float] | None = None) -> tuple[float, float]:
    """Read from our server's metrics how many batches of a lane it has computed, and how many seconds they took.

    Returns (seconds, batches) since the start of the server, or since the earlier reading `before` if one is given.
    """
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = [_metric(text, f'memory_embedder_batch_seconds_{part}{{lane="{lane}"}}') for part in ("sum", "count")]
    start = before or (0.0, 0.0)
    return found[0] - start[0], found[1] - start[1]


def _metric(text: str, name: str) -> float:
    match = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    return float(match[1]) if match else 0.0


def load_of(texts: Sequence[str], tokens: int, clients: int, texts_per_request: int) -> DocumentLoad:
    """Divide the texts into requests of `texts_per_request` texts each, and return the requests as a `DocumentLoad`."""
    requests = tuple(
        tuple(texts[start : start + texts_per_request]) for start in range(0, len(texts), texts_per_request)
    )
    return DocumentLoad(tokens, clients, requests)
