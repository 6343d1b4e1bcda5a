"""Measures the latency of recall and of the plain design (see `plain_design`) on the same questions, in blocks.

In production a server runs only one design, whose data stay in the processor caches and in the buffers of Postgres. If
the designs alternated after each question, each design would displace the other's data there. Therefore each design
gets a whole block of questions at a time. The order of the designs alternates from block to block.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

import asyncpg
import numpy as np

from memory_bench.latency import plain_design
from memory_bench.latency.store import MODEL, Built
from memory_bench.latency.synthetic import Questions, Synthetic
from memory_bench.latency.unbounded_bm25 import UnboundedBm25
from memory_recall import (
    EVERYONE,
    EmbeddedQuery,
    EmbedderClient,
    Everyone,
    Fusion,
    HybridRecall,
    Mode,
    RecallQuery,
)

_PAGE = 10
_TIME_BUDGET = 60.0  # seconds; a slow recall is to be timed, not refused
_BLOCK = 20  # questions in a block; the first block of each arm is not timed
_WARM_UP = 1_000  # questions that bring pages into memory, as on a server that has run for a while
_RECALL_DEPTH = 50
_CLOSED_PORT = "http://127.0.0.1:9"  # the discard port
LEXICAL_ONLY, DENSE_ONLY, EMBEDDER_STOPPED = "ours, lexical only", "ours, dense only", "ours, embedder stopped"
ONE_CONNECTION = "ours, one connection"
WITH_GRAPH, WITH_GRAPH_ALONE = "ours, with the graph", "ours, with the graph, one connection"
_SEARCHED: dict[str, str | Everyone] = {"all": EVERYONE, "one user of ten": "user3"}


@dataclass(frozen=True, slots=True)
class Measured:
    """The times of one compared configuration in milliseconds, one for each question; `arm` is its name."""

    arm: str
    milliseconds: tuple[float, ...]

    def percentile(self, percent: float) -> float:
        """Return a percentile of the times in milliseconds; `percent` is from 0 to 100."""
        return float(np.percentile(self.milliseconds, percent))


async def measure(built: Built, count: int, *, graph: bool = False) -> list[Measured]:
    """Measure the time of every configuration on `count` questions.

    The questions are divided into blocks; every configuration answers a block before the next block begins. With
    `graph` True, recalls with the graph leg are measured beside those without it.

    Raises:
        RuntimeError: a recall was degraded, or no recall with the graph reached anything.
    """
    questions = Synthetic().questions(built.rows, count + _BLOCK)
    async with AsyncExitStack() as stack:
        pool: Any = await stack.enter_async_context(asyncpg.create_pool(built.dsn, min_size=2, max_size=2))
        # By its estimates Postgres would scan all 5,000 rows for the plain design; our statement prevents that itself.
        settings = {"enable_seqscan": "off"}
        plain_pool: Any = await stack.enter_async_context(
            asyncpg.create_pool(built.dsn, min_size=1, max_size=1, server_settings=settings)
        )
        nobody = await stack.enter_async_context(EmbedderClient(_CLOSED_PORT, MODEL))
        recall = _Recalls(
            HybridRecall(pool, concept_graph=False, time_budget=_TIME_BUDGET),
            HybridRecall(pool, nobody, concept_graph=False, time_budget=_TIME_BUDGET),
            HybridRecall(pool, concept_graph=False, parallel_legs=False, time_budget=_TIME_BUDGET),
            HybridRecall(pool, time_budget=_TIME_BUDGET) if graph else None,
            HybridRecall(pool, parallel_legs=False, time_budget=_TIME_BUDGET) if graph else None,
        )
        for one in recall:
            if one is not None:
                stack.push_async_callback(one.close)
        arms = _arms(plain_pool, recall, questions)
        warm_up = Synthetic().questions(built.rows, _WARM_UP, stream=2)
        await _warm_up(recall.plain, warm_up)
        if recall.graph is not None and not await _warm_up(recall.graph, warm_up):
            raise RuntimeError("the graph reached no memory; its time would not be its own")
        times: dict[str, list[float]] = {name: [] for name in arms}
        for block, first in enumerate(range(0, len(questions.texts), _BLOCK)):
            order = list(arms) if block % 2 else list(reversed(arms))
            block_questions = range(first, min(first + _BLOCK, len(questions.texts)))
            for name in order:
                times[name] += [await _timed(arms[name], number) for number in block_questions]
    return [Measured(name, tuple(taken[_BLOCK:])) for name, taken in times.items()]


class _Recalls(NamedTuple):
    """Recalls as usual, with an embedder that is down, and by one connection; then two with the graph, if any."""

    plain: HybridRecall
    stopped: HybridRecall
    alone: HybridRecall
    graph: HybridRecall | None
    graph_alone: HybridRecall | None


async def _timed(arm: Callable[[int], Awaitable[object]], number: int) -> float:
    started = time.perf_counter()
    await arm(number)
    return (time.perf_counter() - started) * 1e3


async def _warm_up(recall: HybridRecall, questions: Questions) -> int:
    """Recall questions without measuring, so that caches are filled for recall and for the plain design alike.

    Return how many memories the graph reached.
    """
    reached = 0
    for text, vector in zip(questions.texts, questions.vectors, strict=True):
        result = await recall.recall(
            RecallQuery(text, user_id=EVERYONE, limit=_PAGE, vector=EmbeddedQuery(vector.tolist(), MODEL))
        )
        reached += sum(memory.evidence.graph_score is not None for memory in result.memories)
    return reached


def _arms(
    plain_pool: Any,  # noqa: ANN401  (asyncpg's pool)
    recall: _Recalls,
    questions: Questions,
) -> dict[str, Callable[[int], Awaitable[object]]]:
    vectors = [EmbeddedQuery(vector.tolist(), MODEL) for vector in questions.vectors]

    def ours(
        mode: Mode, user: str | Everyone = EVERYONE, by: HybridRecall = recall.plain
    ) -> Callable[[int], Awaitable[object]]:
        async def recall_one(number: int) -> object:
            result = await by.recall(
                RecallQuery(
                    questions.texts[number],
                    limit=_PAGE,
                    mode=mode,
                    vector=vectors[number],
                    user_id=user,
                )
            )
            if result.reason is not None:
                raise RuntimeError(f"recall degraded ({result.reason}); its time would not be its own")
            return result

        return recall_one

    async def degraded(number: int) -> object:
        result = await recall.stopped.recall(RecallQuery(questions.texts[number], user_id=EVERYONE, limit=_PAGE))
        if result.reason is None:
            raise RuntimeError(f"{_CLOSED_PORT} answered, though no server should listen there")
        return result

    return {
        "ours": ours("hybrid"),
        "plain": lambda number: plain_design.recall(plain_pool, questions.texts[number], vectors[number].vector, _PAGE),
        LEXICAL_ONLY: ours("lexical"),
        EMBEDDER_STOPPED: degraded,
        DENSE_ONLY: ours("dense"),
        ONE_CONNECTION: ours("hybrid", by=recall.alone),
        "ours, one user of ten": ours("hybrid", "user3"),
        **({} if recall.graph is None else {WITH_GRAPH: ours("hybrid", by=recall.graph)}),
        **({} if recall.graph_alone is None else {WITH_GRAPH_ALONE: ours("hybrid", by=recall.graph_alone)}),
    }


async def index_recall(built: Built, count: int) -> dict[str, float]:
    """Return the mean recall@50 of the dense leg, judged by exact search, for all rows and for one user's rows."""
    questions = Synthetic().questions(built.rows, count, stream=1)
    pool: Any = await asyncpg.create_pool(built.dsn, min_size=1, max_size=1)
    recall = HybridRecall(pool, time_budget=_TIME_BUDGET)
    found: dict[str, list[float]] = {"all": [], "one user of ten": []}
    try:
        for text, vector in zip(questions.texts, questions.vectors, strict=True):
            for name, user in _SEARCHED.items():
                embedded = EmbeddedQuery(vector.tolist(), MODEL)
                given = await recall.recall(
                    RecallQuery(text, limit=_RECALL_DEPTH, mode="dense", vector=embedded, user_id=user)
                )
                exact = await _exact(pool, embedded.vector, user if isinstance(user, str) else None)
                found[name].append(len(set(given.ids) & set(exact)) / len(exact))
    finally:
        await recall.close()
        await pool.close()
    return {name: float(np.mean(shares)) for name, shares in found.items()}


async def _exact(pool: Any, vector: Sequence[float], user: str | None) -> list[int]:  # noqa: ANN401  (asyncpg's connection or pool)
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("SET LOCAL enable_indexscan = off")
        rows = await connection.fetch(
            "SELECT id FROM memories WHERE deleted_at IS NULL AND ($2::text IS NULL OR user_id = $2)"
            " ORDER BY embedding <=> $1::real[]::halfvec LIMIT $3",
            vector,
            user,
            _RECALL_DEPTH,
        )
    return [row["id"] for row in rows]


async def lexical_overlap(built: Built, count: int) -> float:
    """Return which share of the ten best rows the lexical leg finds, on average over `count` questions.

    The ten best rows are those that BM25 without a candidate budget ranks highest.
    """
    questions = Synthetic().questions(built.rows, count, stream=1)
    unbounded = UnboundedBm25(built.rows)
    pool: Any = await asyncpg.create_pool(built.dsn, min_size=1, max_size=1)
    recall = HybridRecall(pool, fusion=Fusion(importance=False), time_budget=_TIME_BUDGET)
    try:
        shares = []
        for text in questions.texts:
            given = await recall.recall(RecallQuery(text, user_id=EVERYONE, limit=_PAGE, mode="lexical"))
            shares.append(unbounded.overlap(text, given.ids))
    finally:
        await recall.close()
        await pool.close()
    return float(np.mean(shares))
