"""Two lanes, queries and documents: who computes next, and who is refused.

A pure object: it holds no thread, no lock and no clock (times are passed in), so its promises are tested with virtual
time.

* A worker that is free takes queries first. One worker, the express worker, takes nothing but queries, so a query
  that arrives alone starts at once even while every other worker computes documents; while it waits for work, the
  others leave queries to it, as it has more threads and goes first where cores are contended.
* Documents are never starved: after `query_streak` query batches in a row, a general worker takes a document batch if
  one waits.
* Queries are never starved: they are first otherwise, and a document batch is short.
* Admission is by tokens, per lane: what waits is bounded, and a refusal tells when there will be room, from the rate
  that was measured.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from memory_embedder.scheduling.batching import BatchBudget, take_batch


class Lane(StrEnum):
    """What a text is for."""

    QUERY = "query"
    DOCUMENT = "document"


class Role(StrEnum):
    """What a worker may take."""

    EXPRESS = "express"
    GENERAL = "general"


@dataclass(frozen=True, slots=True)
class Item:
    """One text of one request."""

    request: int
    index: int
    lane: Lane
    tokens: int


@dataclass(frozen=True, slots=True)
class Batch:
    """What one worker computes at once."""

    lane: Lane
    items: tuple[Item, ...]

    @property
    def tokens(self) -> int:
        """Tokens of the batch."""
        return sum(item.tokens for item in self.items)


@dataclass(frozen=True, slots=True)
class Refusal:
    """No room now."""

    retry_after_seconds: int


@dataclass(frozen=True, slots=True)
class TooLarge:
    """No room ever: the request is larger than its lane."""

    limit: int


@dataclass(frozen=True, slots=True)
class LaneLimits:
    """The scheduler's bounds."""

    budget: BatchBudget
    queued_tokens: dict[Lane, int]
    query_streak: int = 8


@dataclass(slots=True)
class _LaneState:
    waiting: deque[Item] = field(default_factory=deque)
    queued: int = 0
    inflight: int = 0


class Lanes:
    """The scheduler."""

    def __init__(self, limits: LaneLimits, *, tokens_per_second: float = 1000.0) -> None:
        self._limits = limits
        self._lanes = {lane: _LaneState() for lane in Lane}
        self._streak = 0
        self._rate = Rate(tokens_per_second)

    @property
    def tokens_per_second(self) -> float:
        """The measured rate of all workers together."""
        return self._rate.value

    def seed_rate(self, tokens_per_second: float) -> None:
        """Takes the rate that the warm-up measured."""
        self._rate = Rate(tokens_per_second)

    def queued_tokens(self, lane: Lane) -> int:
        """Tokens that wait."""
        return self._lanes[lane].queued

    def inflight_tokens(self, lane: Lane) -> int:
        """Tokens being computed."""
        return self._lanes[lane].inflight

    def admit(self, lane: Lane, items: Iterable[Item]) -> Refusal | TooLarge | None:
        """Queues all items of a request, or none."""
        offered = tuple(items)
        tokens = sum(item.tokens for item in offered)
        limit = self._limits.queued_tokens[lane]
        state = self._lanes[lane]
        if tokens > limit:
            return TooLarge(limit)
        if state.queued + tokens > limit:
            return Refusal(self._seconds_until(state.queued + tokens - limit))
        state.waiting.extend(offered)
        state.queued += tokens
        return None

    @property
    def waiting(self) -> bool:
        """Whether anything waits."""
        return any(state.waiting for state in self._lanes.values())

    def take(self, role: Role, *, express_free: bool) -> Batch | None:
        """The next batch for a free worker; `express_free` = the express worker computes nothing and will look here."""
        queries, documents = self._lanes[Lane.QUERY], self._lanes[Lane.DOCUMENT]
        if role is Role.EXPRESS:
            return self._take(Lane.QUERY) if queries.waiting else None
        due = bool(documents.waiting) and self._streak >= self._limits.query_streak
        if queries.waiting and not due and not express_free:
            self._streak += 1
            return self._take(Lane.QUERY)
        if documents.waiting:
            self._streak = 0
            return self._take(Lane.DOCUMENT)
        return None

    def finish(self, batch: Batch, *, now: float) -> None:
        """Notes a computed batch, successful or not."""
        self._lanes[batch.lane].inflight -= batch.tokens
        idle = not any(state.queued or state.inflight for state in self._lanes.values())
        self._rate.note(batch.tokens, now, idle=idle)

    def started(self, *, now: float) -> None:
        """Notes that work begins after an idle time, which must not count as slowness."""
        self._rate.resume(now)

    def drop(self, request: int) -> int:
        """Forgets what still waits of a request whose caller left; tells how many tokens that was."""
        dropped = 0
        for state in self._lanes.values():
            gone = sum(item.tokens for item in state.waiting if item.request == request)
            if gone:
                state.waiting = deque(item for item in state.waiting if item.request != request)
                state.queued -= gone
                dropped += gone
        return dropped

    def _take(self, lane: Lane) -> Batch:
        state = self._lanes[lane]
        batch = Batch(lane, tuple(take_batch(state.waiting, self._limits.budget)))
        state.queued -= batch.tokens
        state.inflight += batch.tokens
        return batch

    def _seconds_until(self, tokens: int) -> int:
        return max(1, math.ceil(tokens / self._rate.value))


class Rate:
    """Tokens per second over busy time, as a moving average over about ten seconds of work."""

    _SPAN = 10.0
    _SLICE = 0.25  # shorter slices would measure the rhythm of single batches

    def __init__(self, initial: float) -> None:
        self.value = max(1.0, initial)
        self._since: float | None = None
        self._tokens = 0

    def resume(self, now: float) -> None:
        """Work begins."""
        if self._since is None:
            self._since, self._tokens = now, 0

    def note(self, tokens: int, now: float, *, idle: bool) -> None:
        """Work was done."""
        self._tokens += tokens
        if self._since is None:
            self._since = now
            return
        elapsed = now - self._since
        if elapsed >= self._SLICE:
            weight = 1 - math.exp(-elapsed / self._SPAN)
            self.value = max(1.0, self.value + weight * (self._tokens / elapsed - self.value))
            self._since, self._tokens = now, 0
        if idle:
            self._since = None
