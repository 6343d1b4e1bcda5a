"""Recalls at a fixed rate from a process of its own: `python -m memory_bench.fleet.load PARAMETERS`, a JSON object.

Half of the recalls search the primary, and half the replica; both go through the pooler. Each begins at its time,
whether the ones before it have been answered or not, and its time is counted from then. Queries are embedded by a real
embedder, in a plain sentence of twelve words in place of the invented ones, whose letters would be many more tokens;
the vectors that are searched for are those of the synthetic questions. The last line of output is one JSON object.
"""

import asyncio
import json
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from memory_bench.fleet.store import MODEL, shortened, user
from memory_bench.fleet.usage import between, snapshot
from memory_bench.latency.synthetic import Synthetic
from memory_recall import EmbedderClient, HybridRecall, MemoryIndexError, RecallQuery, create_pool
from memory_recall.contrib.replicas import ReplicaRecall
from memory_recall.postgres.connection import DsnText
from memory_recall.search.recall import WrappingRecall

_SENTENCE = "What did we decide last week about the backups of the database?"
_POOL_SIZE = 10  # connections of this process to the pooler, for each instance
_QUESTIONS = 400
_WARM_UP = _QUESTIONS  # so that what they search is in memory, also of the replica, which was copied just before
_LATE_SECONDS = 30.0  # for what is still under way when the last recall has begun; each recall has a budget of its own


@dataclass(frozen=True, slots=True)
class LoadParameters:
    """The argument of this program: where the databases and the embedder are, how many rows and users there are, and
    how many recalls to begin a second, for how many seconds. `parts` are process ids whose processor time is counted.
    """

    primary: str
    replica: str
    embedder: str
    rows: int
    users: int
    rate: float
    seconds: float
    parts: dict[str, int]


@dataclass(slots=True)
class Answers:
    """What came of the recalls: milliseconds of those that both legs answered, and the reasons of all others.

    `under_way` recalls had begun and were not answered at one moment, at most.
    """

    under_way: int = 0
    milliseconds: list[float] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    degraded: Counter[str] = field(default_factory=Counter)


class SentenceEmbedder:
    """Has a plain sentence embedded by a real embedder, and returns the vector of the question itself."""

    model = MODEL

    def __init__(self, client: EmbedderClient, vectors: dict[str, Sequence[float]]) -> None:
        self._client = client
        self._vectors = vectors

    async def embed_query(self, text: str) -> Iterable[float]:
        """Return the vector of a question once the sentence has been embedded.

        Any other text, such as one by which a recall tries whether the embedder answers again, has that of a question.
        """
        await self._client.embed_query(_SENTENCE)
        return self._vectors.get(text) or next(iter(self._vectors.values()))


async def ask_at_rate(recalls: Sequence[Any], queries: Sequence[RecallQuery], rate: float, seconds: float) -> Answers:
    """Begin `rate` recalls a second for `seconds`, by `recalls` in turn, and return what came of them."""
    answers = Answers()
    began = time.perf_counter()

    async def ask(number: int) -> None:
        due = began + number / rate
        try:
            result = await recalls[number % len(recalls)].recall(queries[number % len(queries)])
        except MemoryIndexError as error:
            answers.refused[error.reason] += 1
            return
        if result.reason is not None:
            answers.degraded[str(result.reason)] += 1
        else:
            answers.milliseconds.append((time.perf_counter() - due) * 1000)

    tasks: set[asyncio.Task[None]] = set()
    async with asyncio.TaskGroup() as running:
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
            task = running.create_task(ask(number))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            answers.under_way = max(answers.under_way, len(tasks))
    return answers


async def _measure(given: LoadParameters) -> dict[str, Any]:
    questions = Synthetic().questions(given.rows, _QUESTIONS)
    vectors = dict(zip(questions.texts, shortened(questions.vectors).tolist(), strict=True))
    queries = [
        RecallQuery(text, user_id=user(number % given.users), limit=10) for number, text in enumerate(questions.texts)
    ]
    async with AsyncExitStack() as stack:
        pools: list[Any] = []
        for dsn in (given.primary, given.replica):
            pool = await create_pool(DsnText(dsn), min_size=1, max_size=_POOL_SIZE, statement_cache_size=0)
            pools.append(await stack.enter_async_context(pool))
        embedder = SentenceEmbedder(await stack.enter_async_context(EmbedderClient(given.embedder, MODEL)), vectors)
        of_primary, of_replica = (HybridRecall(pool, embedder) for pool in pools)
        for one in (of_primary, of_replica):
            stack.push_async_callback(one.close)
        recalls: list[HybridRecall | WrappingRecall] = [of_primary, ReplicaRecall(of_replica, pools[0])]
        await ask_at_rate(recalls, queries, min(given.rate, 20.0), _WARM_UP / 20)
        parts, own = snapshot(given.parts), resource.getrusage(resource.RUSAGE_SELF)
        async with asyncio.timeout(given.seconds + _LATE_SECONDS):
            answers = await ask_at_rate(recalls, queries, given.rate, given.seconds)
        usage, later = between(parts, snapshot(given.parts)), resource.getrusage(resource.RUSAGE_SELF)
    used = later.ru_utime + later.ru_stime - own.ru_utime - own.ru_stime
    p50, p95 = (_percentile(answers.milliseconds, percent) for percent in (50, 95))
    return {
        "rate": given.rate,
        "asked": int(given.rate * given.seconds),
        "answered": len(answers.milliseconds),
        "refused": dict(answers.refused),
        "degraded": dict(answers.degraded),
        "p50_ms": p50,
        "p95_ms": p95,
        "waiting": max(0, answers.under_way - len(pools) * _POOL_SIZE),
        "usage": {**asdict(usage), "parts": {**usage.parts, "recall library": used}},
    }


def _percentile(times: Sequence[float], percent: float) -> float | None:
    return round(float(np.percentile(times, percent)), 2) if times else None


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_measure(LoadParameters(**json.loads(sys.argv[1]))))))
