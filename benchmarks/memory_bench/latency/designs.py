"""The designs that are compared: our recall in its forms, and the plain design (see `plain_design`).

Each has sessions of its own, which are opened for one measurement and closed after it, because the server is restarted
between measurements.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import asyncpg

from memory_bench.latency import plain_design
from memory_bench.latency.store import MODEL
from memory_recall import (
    EVERYONE,
    EmbeddedQuery,
    EmbedderClient,
    Everyone,
    HybridRecall,
    Mode,
    RecallOptions,
    RecallQuery,
)

TIME_BUDGET = 60.0  # seconds; a slow recall is to be timed, not refused
PAGE = 10
OURS, PLAIN = "ours", "plain"
LEXICAL_ONLY, DENSE_ONLY, EMBEDDER_STOPPED = "ours, lexical only", "ours, dense only", "ours, embedder stopped"
ONE_CONNECTION = "ours, one connection"
WITH_GRAPH, WITH_GRAPH_ALONE = "ours, with the graph", "ours, with the graph, one connection"
_CLOSED_PORT = "http://127.0.0.1:9"  # the discard port


@dataclass(frozen=True, slots=True)
class Question:
    """The text of a question and its vector, as a caller gives them to a recall."""

    text: str
    vector: EmbeddedQuery


@dataclass(frozen=True, slots=True)
class Opened:
    """A design that is ready: what answers one question, and the pool of sessions (asyncpg's) that it uses."""

    answer: Callable[[Question], Awaitable[object]]
    pool: Any


class Design(Protocol):
    """What is measured; `name` is its name in results."""

    @property
    def name(self) -> str:
        """The name in results."""

    def open(self, dsn: str) -> AbstractAsyncContextManager[Opened]:
        """Open sessions at the database `dsn` for the duration of the block."""


@dataclass(frozen=True, slots=True)
class Ours:
    """Our recall in one form: whose memories, which legs, with the graph or not, by two connections or one."""

    name: str
    mode: Mode = "hybrid"
    user: str | Everyone = EVERYONE
    graph: bool = False
    parallel_legs: bool = True
    embedder_stopped: bool = False

    @asynccontextmanager
    async def open(self, dsn: str) -> AsyncIterator[Opened]:
        """Open two sessions and yield what recalls by them.

        Raises:
            RuntimeError: a recall was degraded although its embedder was not stopped, or was not although it was, or
                no recall with the graph reached a memory by it: the times would not be those of this form.
        """
        async with AsyncExitStack() as stack:
            pool: Any = await stack.enter_async_context(asyncpg.create_pool(dsn, min_size=2, max_size=2))
            embedder = None
            if self.embedder_stopped:
                embedder = await stack.enter_async_context(EmbedderClient(_CLOSED_PORT, MODEL))
            recall = HybridRecall(
                pool,
                embedder,
                RecallOptions(concept_graph=self.graph, parallel_legs=self.parallel_legs, time_budget=TIME_BUDGET),
            )
            stack.push_async_callback(recall.close)
            reached = 0

            async def answer(question: Question) -> object:
                nonlocal reached
                vector = None if self.embedder_stopped else question.vector
                result = await recall.recall(
                    RecallQuery(question.text, limit=PAGE, mode=self.mode, vector=vector, user_id=self.user)
                )
                if (result.reason is not None) != self.embedder_stopped:
                    raise RuntimeError(f"{self.name}: degraded by {result.reason}; its time would not be its own")
                reached += sum(memory.evidence.graph_score is not None for memory in result.memories)
                return result

            yield Opened(answer, pool)
            if self.graph and not reached:
                raise RuntimeError(f"{self.name}: the graph reached no memory; its time would not be its own")


@dataclass(frozen=True, slots=True)
class Plain:
    """The plain design of two queries and fusion in Python."""

    name: str = PLAIN

    @asynccontextmanager
    async def open(self, dsn: str) -> AsyncIterator[Opened]:
        """Open one session and yield what recalls by it."""
        # By its estimates Postgres would scan all 5,000 rows for the plain design; our statement prevents that itself.
        settings = {"enable_seqscan": "off"}
        async with asyncpg.create_pool(dsn, min_size=1, max_size=1, server_settings=settings) as pool:

            async def answer(question: Question) -> object:
                return await plain_design.recall(pool, question.text, question.vector.vector, PAGE)

            yield Opened(answer, pool)


def designs(*, graph: bool) -> list[Design]:
    """Return all designs that are compared, those with the graph leg only with `graph` True."""
    return [
        Ours(OURS),
        Plain(),
        Ours(LEXICAL_ONLY, "lexical"),
        Ours(EMBEDDER_STOPPED, embedder_stopped=True),
        Ours(DENSE_ONLY, "dense"),
        Ours(ONE_CONNECTION, parallel_legs=False),
        Ours("ours, one user of ten", user="user3"),
        *([Ours(WITH_GRAPH, graph=True), Ours(WITH_GRAPH_ALONE, graph=True, parallel_legs=False)] if graph else []),
    ]
