"""Asks every store its questions and prompts, and keeps of each recalled memory what its relevance is computed from."""

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby

import numpy as np
from rich.progress import Progress

from memory_bench.harness.vectors import EmbeddedSet, embed_dataset, embed_texts
from memory_bench.postgres import BenchmarkDatabase
from memory_bench.recall.relevance.stores import QUESTION, Asked, Store
from memory_bench.report import console
from memory_recall import EVERYONE, EmbeddedQuery, HybridRecall, RecallOptions, RecallQuery, RecallResult
from memory_recall.embedding.wire import Vectors
from memory_recall.indexing.usual_cosine import everyday_prompts
from memory_recall.indexing.usual_cosine_sql import write_usual_cosine
from memory_recall.postgres.connection import Pool
from memory_recall.schema.models_sql import active_model
from memory_recall.schema.revisions import require_schema
from memory_recall.schema.table import ACTIVE

DEPTH = 10
_TIME_BUDGET = 60.0  # seconds; what is measured here is no time but in `added_milliseconds`
_TIMED = 300  # questions of each table


@dataclass(frozen=True, slots=True)
class Recalled:
    """A memory that a store recalled: what it was recalled for, its place from 0, and what relevance is made of.

    `asked` counts what the store was asked. `closeness` is None for a memory without a vector.
    """

    store: str
    family: str
    kind: str
    asked: int
    place: int
    relevant: bool
    closeness: float | None
    words: float
    relevance: float


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything that the stores recalled, how many times each kind was asked of each, and what relevance costs.

    `usual_cosines` are by table. `milliseconds` are what a recall takes longer with relevance than without, in the
    median over pairs of recalls.
    """

    recalled: Sequence[Recalled]
    asked: Mapping[tuple[str, str], int]
    usual_cosines: Mapping[str, float]
    milliseconds: float


def observe(stores: Sequence[Store], url: str) -> Observed:
    """Ask every store with the model of an embedder. The stores of one table follow one another.

    Raises:
        MemoryIndexError: the embedder or the database failed.
    """
    recalled: list[Recalled] = []
    counted: dict[tuple[str, str], int] = {}
    usual: dict[str, float] = {}
    differences: list[float] = []
    for name, of_table in groupby(stores, key=lambda one: one.dataset.name):
        table = list(of_table)
        database = BenchmarkDatabase(words=table[0].words)
        try:
            embedded = database.wait(embed_dataset(table[0].dataset, url))
            texts = list(dict.fromkeys([*everyday_prompts(), *(one.text for each in table for one in each.asked)]))
            vectors = dict(zip(texts, database.wait(embed_texts(name, texts, url)).tolist(), strict=True))
            database.fill(table[0].dataset.memories, embedded)
            pool = database.pool("plain")
            usual[name] = database.wait(_record_usual_cosine(pool, [vectors[text] for text in everyday_prompts()]))
            recall = HybridRecall(pool, None, RecallOptions(time_budget=_TIME_BUDGET))
            with Progress(console=console, transient=True) as bar:
                for store in table:
                    for number, asked in enumerate(bar.track(store.asked, description=store.name)):
                        query = _query(store, asked, vectors, embedded)
                        recalled += _recalled(store, number, asked, database.wait(recall.recall(query)))
                        counted[store.name, asked.kind] = counted.get((store.name, asked.kind), 0) + 1
            timed = [one for one in table[0].asked if one.kind == QUESTION][:_TIMED]
            queries = [_query(table[0], one, vectors, embedded) for one in timed]
            differences += database.wait(_added_milliseconds(recall, queries))
            database.wait(recall.close())
        finally:
            database.close()
    return Observed(recalled, counted, usual, statistics.median(differences))


def _query(store: Store, asked: Asked, vectors: Mapping[str, list[float]], embedded: EmbeddedSet) -> RecallQuery:
    return RecallQuery(
        asked.text,
        user_id=store.user or EVERYONE,
        limit=DEPTH,
        vector=EmbeddedQuery(vectors[asked.text], embedded.model),
        least_relevance=0.0,
    )


def _recalled(store: Store, number: int, asked: Asked, result: RecallResult) -> list[Recalled]:
    scale = result.relevance_scale
    if result.reason is not None or scale is None:
        raise RuntimeError(f"{store.name}: relevance is not known ({result.reason or result.relevance_basis})")
    found = []
    for place, memory in enumerate(result.memories):
        scores = asdict(memory.evidence)
        found.append(
            Recalled(
                store.name,
                store.family,
                asked.kind,
                number,
                place,
                memory.id in asked.relevant,
                scale.closeness_of(scores),
                scale.words_of(scores),
                memory.relevance or 0.0,
            )
        )
    return found


async def _record_usual_cosine(pool: Pool, prompts: Sequence[list[float]]) -> float:
    async with pool.acquire() as connection:
        table = await require_schema(connection, "memories")
        model = await active_model(connection, table)
        vectors: Vectors = np.array(prompts, dtype=np.float32)
        await write_usual_cosine(connection, table, model.id, ACTIVE, vectors)
        found = (await active_model(connection, table)).usual_cosine
    if found is None:
        raise RuntimeError("no usual cosine was recorded")
    return found


async def _added_milliseconds(recall: HybridRecall, queries: Sequence[RecallQuery]) -> list[float]:
    """Return by how many milliseconds each recall with relevance takes longer than the same one without it."""
    found = []
    for number, query in enumerate(queries):
        plain = RecallQuery(query.text, user_id=query.user_id, limit=query.limit, vector=query.vector)
        both = {}
        for asked in (plain, query) if number % 2 else (query, plain):
            began = time.perf_counter()
            await recall.recall(asked)
            both[asked.least_relevance] = time.perf_counter() - began
        found.append((both[0.0] - both["everything"]) * 1e3)
    return found
