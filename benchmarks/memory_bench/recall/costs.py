"""Measures what recall costs beside FTS5: latency from text to ids, the time of indexing a corpus, and storage.

Latency is measured end to end: the query goes to the embedder over HTTP, and then the statement goes to Postgres. Both
paths answer the same questions in turn, so that whatever else the machine does slows both down. Embedding a corpus is
measured on a sample of its memories, because the vectors of a whole set come from a cache.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from memory_bench.harness.dataset import Dataset, Query
from memory_bench.harness.retrievers import SqliteModeRetriever
from memory_bench.harness.runner import RETRIEVE_DEPTH
from memory_bench.postgres import BenchmarkDatabase
from memory_recall import EVERYONE, EmbedderClient, HybridRecall, RecallOptions, RecallQuery

SEEDS = {"FTS5": (15.7, 27.8, 12.8, 31.9), "hybrid": (229.6, 344.5, 249.3, 640.0)}
"""p50, p95, mean and maximum in milliseconds that the first report gives, with bge-large-en-v1.5 on a CPU."""

_QUESTIONS = 200
_SAMPLE = 256  # memories
_BATCH = 32
_TIME_BUDGET = 60.0  # seconds; a slow answer is measured, not refused
_GIN, _HNSW = "idx_memories_search", "idx_memories_embedding"
_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of one set: milliseconds of each question by path, seconds by step, and bytes by component."""

    milliseconds: Mapping[str, tuple[float, ...]]
    seconds: Mapping[str, float]
    sizes: Mapping[str, int]


def measure_costs(dataset: Dataset, database: BenchmarkDatabase, url: str, *, seed: int) -> Costs:
    """Measure the costs of both paths on a database that holds the set, with the embedder at `url`."""
    local = SqliteModeRetriever()
    try:
        began = time.perf_counter()
        local.build_index(dataset.memories)
        built = time.perf_counter() - began
        milliseconds = _latencies(dataset, database, url, local, seed)
        seconds = {"FTS5": built, **_indexing_seconds(dataset, database, url, seed)}
        return Costs(milliseconds, seconds, {"FTS5, table and index": local.index_size_bytes(), **_sizes(database)})
    finally:
        local.close()


def _latencies(
    dataset: Dataset, database: BenchmarkDatabase, url: str, local: SqliteModeRetriever, seed: int
) -> dict[str, tuple[float, ...]]:
    order = np.random.default_rng(seed).permutation(len(dataset.queries))[:_QUESTIONS]
    found: dict[str, list[float]] = {"FTS5": [], "hybrid": []}
    pool = database.pool("plain")

    async def hybrid(recall: HybridRecall, query: Query) -> None:
        asked = RecallQuery(query.text, user_id=query.scope or EVERYONE, limit=RETRIEVE_DEPTH)
        result = await recall.recall(asked)
        if result.reason is not None:
            raise RuntimeError(f"a recall degraded to its lexical leg ({result.reason}); its time would not be its own")

    async def work() -> None:
        async with EmbedderClient(url) as client:
            model = (await client.model_info()).name
        async with EmbedderClient(url, model) as client:
            recall = HybridRecall(
                pool,
                client,
                RecallOptions(time_budget=_TIME_BUDGET, embedding_budget=_TIME_BUDGET / 2, concept_graph=False),
            )
            await hybrid(recall, dataset.queries[int(order[0])])  # connects, and prepares the statement
            for place in order:
                query = dataset.queries[int(place)]
                began = time.perf_counter()
                if query.scope is None:
                    local.retrieve(query.text, RETRIEVE_DEPTH)
                else:
                    local.retrieve_in(query.text, RETRIEVE_DEPTH, query.scope)
                found["FTS5"].append((time.perf_counter() - began) * 1e3)
                began = time.perf_counter()
                await hybrid(recall, query)
                found["hybrid"].append((time.perf_counter() - began) * 1e3)
            await recall.close()

    database.wait(work())
    return {path: tuple(times) for path, times in found.items()}


def _indexing_seconds(dataset: Dataset, database: BenchmarkDatabase, url: str, seed: int) -> dict[str, float]:
    drawn = np.random.default_rng(seed).permutation(len(dataset.memories))[:_SAMPLE]
    texts = [dataset.memories[int(place)].content for place in drawn]
    pool = database.pool("plain")

    async def embed() -> float:
        async with EmbedderClient(url) as client:
            began = time.perf_counter()
            for start in range(0, len(texts), _BATCH):
                await client.embed_documents(texts[start : start + _BATCH])
            return time.perf_counter() - began

    async def reindex(name: str) -> float:
        began = time.perf_counter()
        await pool.execute(f'REINDEX INDEX "{name}"')
        return time.perf_counter() - began

    return {
        "embedding": database.wait(embed()) * len(dataset.memories) / len(texts),
        "HNSW": database.wait(reindex(_HNSW)),
        "GIN": database.wait(reindex(_GIN)),
    }


def _sizes(database: BenchmarkDatabase) -> dict[str, int]:
    query = """
SELECT pg_relation_size('memories') AS rows, coalesce(pg_total_relation_size(reltoastrelid), 0) AS toast,
       (SELECT coalesce(sum(pg_column_size(embedding)), 0) FROM memories) AS vectors
  FROM pg_class WHERE oid = 'memories'::regclass"""
    rows, toast, vectors = database.wait(database.pool("plain").fetch(query))[0]
    return {
        "Postgres, table": int(rows) + int(toast),
        "of it vectors": int(vectors),
        "GIN": database.size_of(_GIN),
        "HNSW": database.size_of(_HNSW),
    }


def sections(sets: Mapping[str, Costs]) -> dict[str, Iterator[Sequence[str]]]:
    """Return the report's tables of costs, each as rows under its title; `sets` are the costs by the set's name."""
    return {
        "Latency from text to ids, FTS5 and hybrid side by side": _latency_table(sets),
        "Indexing a whole corpus (embedding: from a sample)": _indexing_table(sets),
        "Storage by component": _storage_table(sets),
    }


def _latency_table(sets: Mapping[str, Costs]) -> Iterator[Sequence[str]]:
    titles = ("p50", "p95", "mean", "max")
    yield ["set", *(f"{path} {title} ms" for path in SEEDS for title in titles)]
    yield ["first report, 5,452 rows", *(f"{value:.1f}" for values in SEEDS.values() for value in values)]
    for name, costs in sets.items():
        yield [name, *(f"{value:.1f}" for path in SEEDS for value in _summary(costs.milliseconds[path]))]


def _summary(times: Sequence[float]) -> tuple[float, float, float, float]:
    p50, p95 = (float(np.percentile(times, share)) for share in (50, 95))
    return p50, p95, float(np.mean(times)), max(times)


def _indexing_table(sets: Mapping[str, Costs]) -> Iterator[Sequence[str]]:
    yield ["set", "FTS5 s", "embedding s", "HNSW s", "GIN s"]
    for name, costs in sets.items():
        yield [name, *(f"{costs.seconds[step]:.1f}" for step in ("FTS5", "embedding", "HNSW", "GIN"))]


def _storage_table(sets: Mapping[str, Costs]) -> Iterator[Sequence[str]]:
    components = list(next(iter(sets.values())).sizes)
    yield ["set", *(f"{component}, MiB" for component in components)]
    for name, costs in sets.items():
        yield [name, *(f"{costs.sizes[component] / _MIB:.1f}" for component in components)]
