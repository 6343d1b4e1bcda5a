"""Embeds queries within a time budget, or returns the reason why there is no vector. No error is raised.

Every prompt waits for its recall, so an unavailable embedder may delay only the recalls that ask it before it is known
to be, and by the budget at most. After the first failure the circuit breaker is open: recalls get no vector, without
waiting, while a background task probes the embedder again and again, each time a little later, until it answers within
the budget. After a query that was late it is probed at once: a very long query may be late by itself, and others need
not go without a vector for it. Meanwhile the reason of a lost or refused API key stays the reason of all recalls,
because a person has to correct the key.

An embedder that answers some queries in time and others not is asked more than it answers. Then the circuit stays
closed, and fewer queries are sent at a time: the others get no vector, without waiting. A query that nobody waits for
any more still counts, because the embedder computes it all the same.
"""

import asyncio
import time
from collections.abc import Iterable, Sequence
from itertools import chain, count
from typing import Protocol, TypeGuard, runtime_checkable

from memory_recall.background import BackgroundTasks
from memory_recall.embedding.direction import has_direction
from memory_recall.embedding.following import FollowingEmbedder
from memory_recall.embedding.wire import EmbeddedBatch
from memory_recall.errors import (
    DimensionMismatch,
    EmbedderBroken,
    EmbedderBusy,
    EmbedderRejected,
    EmbedderUnauthorized,
    ModelMismatch,
)
from memory_recall.schema.models_sql import RecordedModel
from memory_recall.search.concurrency_limit import Begun, ConcurrencyLimit
from memory_recall.search.query import EmbeddedQuery
from memory_recall.search.result import Degraded

EMBEDDING_SECONDS = 0.150
_PROBE_DELAYS = (0.5, 1.0, 2.0)  # the last repeats: recovery is seen within two seconds and a half
_ABANDONED_BUDGETS = 4.0  # after which a query is given up that nobody waits for
_FAILURES = frozenset(
    {Degraded.EMBEDDER_FAILED, Degraded.EMBEDDER_TIMEOUT, Degraded.EMBEDDER_UNAUTHORIZED, Degraded.CIRCUIT_OPEN}
)
_REASONS = (
    (ModelMismatch, Degraded.MODEL_MISMATCH),  # it serves another model by now
    (DimensionMismatch, Degraded.DIMENSION_MISMATCH),  # the same, of a client that knows the dimensions
    (EmbedderRejected, Degraded.EMBEDDER_REFUSED),  # the fault lies with this query; the next one may pass
    (EmbedderUnauthorized, Degraded.EMBEDDER_UNAUTHORIZED),
    (EmbedderBusy, Degraded.EMBEDDER_BUSY),
    (TimeoutError, Degraded.EMBEDDER_TIMEOUT),
)
_CURED_BY_FOLLOWING = _FAILURES | {Degraded.MODEL_MISMATCH, Degraded.DIMENSION_MISMATCH}


class QueryEmbedder(Protocol):
    """An embedder of queries, with two optional attributes.

    `model` (a text) is compared with the model of the table's vectors. `hosted` (a bool) says whether texts leave the
    cluster. If it is true, the embedder gets no query that is marked `sensitive`; without the attribute it gets all.
    """

    async def embed_query(self, text: str, /) -> Iterable[float]:
        """Embed one query."""
        ...


@runtime_checkable
class FileNamingEmbedder(Protocol):
    """An embedder that says with each vector which file of the model made it."""

    async def embed_query_batch(self, text: str, /) -> EmbeddedBatch:
        """Embed one query."""
        ...


class BudgetedQueryEmbedder:
    """Embeds queries for recalls, with a time budget in seconds, a circuit breaker and a limit on queries under way."""

    def __init__(
        self,
        embedder: QueryEmbedder | None,
        *,
        budget: float = EMBEDDING_SECONDS,
        probe_delays: Sequence[float] = _PROBE_DELAYS,
    ) -> None:
        self._embedder = embedder
        self._following = embedder if isinstance(embedder, FollowingEmbedder) else None
        self._budget = budget
        self._probe_delays = probe_delays
        self._limit = ConcurrencyLimit(budget)
        self._failed: list[QueryEmbedder | None] = []  # since any has answered
        self._tasks = BackgroundTasks()
        self._probe: asyncio.Task[None] | None = None
        self._reason_while_open = Degraded.CIRCUIT_OPEN

    @property
    def hosted(self) -> bool:
        """Whether queries are sent out of the cluster to be embedded."""
        return bool(getattr(self._embedder, "hosted", False))

    @property
    def circuit_open(self) -> bool:
        """Whether the embedder has failed and not recovered yet."""
        return self._probe is not None and not self._probe.done()

    @property
    def current(self) -> QueryEmbedder | None:
        """The embedder that the next query goes to."""
        return self._following.current if self._following else self._embedder

    async def embed(self, text: str) -> EmbeddedQuery | Degraded:
        """Embed a query, or return the reason why there is no vector."""
        if self._embedder is None:
            return Degraded.NO_EMBEDDER
        if self.circuit_open:
            return self._reason_while_open
        limit, embedder = self._limit, self.current
        begun = limit.begin()
        if begun is None:
            return Degraded.EMBEDDER_BUSY
        began = time.monotonic()
        call = self._tasks.start(self._call(embedder, text))
        call.add_done_callback(lambda _: limit.end())
        outcome = await self._within_budget(call)
        if not _is_failure(outcome):
            limit.answered(time.monotonic() - began)
            self._failed.clear()
        elif not _is_overload(outcome, limit, begun):
            if embedder not in self._failed:
                self._failed.append(embedder)
            if embedder is self.current and not self.circuit_open:  # else another recall has left it meanwhile
                self._note_failure(outcome)
                self._probe = self._tasks.start(self._recover(at_once=outcome is Degraded.EMBEDDER_TIMEOUT))
        return outcome

    def follow(self, active: RecordedModel, embedder: QueryEmbedder | None, reason: Degraded) -> bool:
        """Change to an embedder of the active model; return whether to embed the query again.

        `embedder` is the embedder that the query was sent to. It need not be the current one, because another recall
        may have changed the embedder meanwhile.
        """
        if self._following is None or reason not in _CURED_BY_FOLLOWING:
            return False
        moved = self._following.follow(active.name, active.embedder_url, embedder, failed=reason in _FAILURES)
        if not moved or self.current in self._failed:
            return False  # where all have failed, it is the probe that finds the one which recovers
        self._limit = ConcurrencyLimit(self._budget)
        if self._probe is not None:
            self._probe.cancel()  # it probes the embedder that we have left
            self._probe = None
        return True

    async def close(self) -> None:
        """Cancel the queries under way and the task that probes the embedder."""
        await self._tasks.close()

    async def _within_budget(self, call: asyncio.Task[EmbeddedQuery | Degraded]) -> EmbeddedQuery | Degraded:
        await asyncio.wait({call}, timeout=self._budget)
        if not call.done():
            return Degraded.EMBEDDER_TIMEOUT
        return Degraded.EMBEDDER_FAILED if call.cancelled() else call.result()

    async def _call(self, embedder: QueryEmbedder | None, text: str) -> EmbeddedQuery | Degraded:
        """Have a query embedded, within a time limit that is longer than its caller waits."""
        if embedder is None:
            return Degraded.NO_EMBEDDER
        try:
            async with asyncio.timeout(self._budget * _ABANDONED_BUDGETS):
                return await _embedded(embedder, text)
        except Exception as error:
            if _is_being_cancelled():  # the embedder has put an error of its own in the place of the cancellation
                raise asyncio.CancelledError from error
            return next((reason for kind, reason in _REASONS if isinstance(error, kind)), Degraded.EMBEDDER_FAILED)

    def _note_failure(self, outcome: Degraded) -> None:
        own_reason = outcome in {Degraded.EMBEDDER_UNAUTHORIZED, Degraded.EMBEDDER_BUSY}
        self._reason_while_open = outcome if own_reason else Degraded.CIRCUIT_OPEN

    async def _recover(self, *, at_once: bool) -> None:
        delays = chain((0.0,) if at_once else (), self._probe_delays)
        delay = next(delays)
        for number in count(1):
            await asyncio.sleep(delay)
            text = f"ping {number} {time.monotonic()}"  # the vector of a text that was asked before may be in a cache
            outcome = await self._within_budget(self._tasks.start(self._call(self.current, text)))
            if not _is_failure(outcome):
                self._failed.clear()
                self._limit = self._limit.anew()
                return
            self._note_failure(outcome)
            delay = next(delays, delay)


def _is_failure(outcome: EmbeddedQuery | Degraded) -> TypeGuard[Degraded]:
    """Return whether the embedder has not answered; an answer whose vector cannot be used is one."""
    return isinstance(outcome, Degraded) and outcome in _FAILURES | {Degraded.EMBEDDER_BUSY}


def _is_overload(outcome: Degraded, limit: ConcurrencyLimit, begun: Begun) -> bool:
    """Tell the limit that a query got no vector; return whether the embedder works, and was only asked too much."""
    if outcome is Degraded.EMBEDDER_TIMEOUT:
        return limit.late(begun)
    return outcome is Degraded.EMBEDDER_BUSY and limit.refused(begun)


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _embedded(embedder: QueryEmbedder, text: str) -> EmbeddedQuery:
    digest: str | None = None
    if isinstance(embedder, FileNamingEmbedder):
        batch = await embedder.embed_query_batch(text)
        vector, digest = batch.vectors[0].tolist(), batch.digest
    else:
        vector = [float(number) for number in await embedder.embed_query(text)]
        if not has_direction(vector):
            raise EmbedderBroken("The query's vector has the length zero.", "Check the embedder.")
    return EmbeddedQuery(vector, getattr(embedder, "model", None), digest)
