"""Compares the results of recall with those of exact search: of the dense leg and of the lexical leg."""

from collections.abc import Sequence
from typing import Any

import asyncpg
import numpy as np

from memory_bench.latency.designs import PAGE, TIME_BUDGET
from memory_bench.latency.store import MODEL
from memory_bench.latency.synthetic import Synthetic
from memory_bench.latency.unbounded_bm25 import UnboundedBm25
from memory_recall import EVERYONE, EmbeddedQuery, Everyone, Fusion, HybridRecall, RecallOptions, RecallQuery

_RECALL_DEPTH = 50
_SEARCHED: dict[str, str | Everyone] = {"all": EVERYONE, "one user of ten": "user3"}


async def index_recall(dsn: str, rows: int, count: int) -> dict[str, float]:
    """Return the mean recall@50 of the dense leg over `count` questions, judged by exact search.

    The keys are the filters: all rows, and one user's rows. `dsn` is that of the filled database of `rows` rows.
    """
    questions = Synthetic().questions(rows, count, stream=1)
    pool: Any = await asyncpg.create_pool(dsn, min_size=1, max_size=1)
    recall = HybridRecall(pool, None, RecallOptions(time_budget=TIME_BUDGET))
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


async def lexical_overlap(dsn: str, rows: int, count: int) -> float:
    """Return which share of the ten best rows the lexical leg finds, on average over `count` questions.

    The ten best rows are those that BM25 without a candidate budget ranks highest. `dsn` is that of the filled database
    of `rows` rows.
    """
    questions = Synthetic().questions(rows, count, stream=1)
    unbounded = UnboundedBm25(rows)
    pool: Any = await asyncpg.create_pool(dsn, min_size=1, max_size=1)
    recall = HybridRecall(pool, None, RecallOptions(fusion=Fusion(importance=False), time_budget=TIME_BUDGET))
    try:
        shares = []
        for text in questions.texts:
            given = await recall.recall(RecallQuery(text, user_id=EVERYONE, limit=PAGE, mode="lexical"))
            shares.append(unbounded.overlap(text, [int(one) for one in given.ids]))
    finally:
        await recall.close()
        await pool.close()
    return float(np.mean(shares))
