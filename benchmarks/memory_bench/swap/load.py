"""A load of recalls and writes that start at fixed times, even while earlier recalls and writes still run.

The load records every recall, write and error.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import asyncpg

from memory_recall import EVERYONE, HybridRecall, RecallQuery


@dataclass(frozen=True, slots=True)
class Recalled:
    """One recall: its text, when it ended, how long it took, and why it was degraded (None if it was not).

    `at` is the time of its end and `seconds` its duration. `scores` holds the content and the cosine of each memory
    that the dense leg has found.
    """

    text: str
    at: float
    seconds: float
    reason: str | None
    scores: tuple[tuple[str, float], ...]


@dataclass
class Record:
    """All recalls, writes and errors of a load.

    A write is a pair of numbers: the time of its end, and its duration in seconds.
    """

    recalls: list[Recalled] = field(default_factory=list)
    writes: list[tuple[float, float]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


class Load:
    """A load on one table; all times are counted from `began`, a value of `time.monotonic`.

    `ask` returns the text of a recall. `written` holds the ids of the rows that are written to, with their texts.
    """

    def __init__(
        self,
        recall: HybridRecall,
        pool: "asyncpg.Pool[asyncpg.Record]",
        ask: Callable[[random.Random], str],
        written: Mapping[int, str],
        *,
        began: float,
    ) -> None:
        self._recall = recall
        self._pool = pool
        self._ask = ask
        self._ids, self._texts = list(written), list(written.values())
        self._began = began
        self._generator = random.Random(9)  # noqa: S311  (a benchmark's data)
        self._running: set[asyncio.Task[None]] = set()
        self.record = Record()

    async def run(self, *, recalls: float, writes: float, stop: asyncio.Event) -> None:
        """Start recalls and writes at fixed rates until `stop` is set, then wait until all have ended.

        `recalls` and `writes` are numbers per second.
        """
        await asyncio.gather(self._pace(self._recall_one, recalls, stop), self._pace(self._write, writes, stop))
        await asyncio.gather(*self._running)

    async def recall_once(self) -> None:
        """Run a single recall of the load immediately, to warm up connections and caches."""
        await self._recall_one()

    async def _pace(self, act: Callable[[], Awaitable[None]], rate: float, stop: asyncio.Event) -> None:
        due = time.monotonic()
        while not stop.is_set():
            task = asyncio.ensure_future(self._guarded(act))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
            due += 1 / rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def _guarded(self, act: Callable[[], Awaitable[None]]) -> None:
        try:
            await act()
        except Exception as error:  # noqa: BLE001  (whatever it is, it counts as an error)
            self.record.errors.append(f"{act.__name__.strip('_')}: {type(error).__name__}")

    async def _recall_one(self) -> None:
        started = time.monotonic()
        text = self._ask(self._generator)
        result = await self._recall.recall(RecallQuery(text, user_id=EVERYONE, limit=10))
        ended = time.monotonic()
        scores = tuple(
            (memory.content, memory.evidence.dense_score)
            for memory in result.memories
            if memory.evidence.dense_score is not None
        )
        self.record.recalls.append(Recalled(text, ended - self._began, ended - started, result.reason, scores))

    async def _write(self) -> None:
        key, text = self._generator.choice(self._ids), self._generator.choice(self._texts)
        statement = self._generator.choice(
            (
                "UPDATE memories SET content = $2 || ' edited', updated_at = now() WHERE id = $1",
                "UPDATE memories SET importance = random(), expanded_keywords = left($2, 0) WHERE id = $1",
                "UPDATE memories SET is_sensitive = NOT is_sensitive, tags = left($2, 0) WHERE id = $1",
                "INSERT INTO memories (content) SELECT $2 || ' new' WHERE $1::bigint IS NOT NULL",
                "DELETE FROM memories WHERE id = $1 AND $2::text IS NOT NULL AND id % 5 = 0",
            )
        )
        began = time.monotonic()
        await self._pool.execute(statement, key, text)
        self.record.writes.append((time.monotonic() - self._began, time.monotonic() - began))


async def forbidden_vectors(dsn: str, *, active_sign: int) -> dict[str, int]:
    """Count the vectors that must not exist.

    Returns three counts: `active`, the vectors in the active column that were not made by the active model; `standby`,
    the vectors in the standby column that were made by the active model; and `private`, the vectors of sensitive or
    deleted rows.
    """
    connection = await asyncpg.connect(dsn)
    try:
        row = await connection.fetchrow(
            "SELECT count(*) FILTER (WHERE sign((embedding::real[])[1]) <> $1) AS active,"
            " count(*) FILTER (WHERE sign((embedding_standby::real[])[1]) = $1) AS standby,"
            " count(*) FILTER (WHERE (is_sensitive OR deleted_at IS NOT NULL)"
            "   AND (embedding IS NOT NULL OR embedding_standby IS NOT NULL)) AS private FROM memories",
            float(active_sign),
        )
    finally:
        await connection.close()
    return dict(row or {})
