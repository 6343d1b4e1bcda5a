"""The scheduler of the lanes (queues): it chooses each next batch and refuses excess requests.

There are three lanes: queries and documents, which are embedded, and pairs of a query and a text, which are reranked.

A worker is a thread that computes batches. The scheduler is pure: it holds no thread, no lock and no clock (times are
passed in), so that its guarantees are tested in virtual time.

* A free worker takes queries first. One worker, the express worker, computes only queries, so a single query starts at
  once even while every other worker computes documents. While the express worker waits for work, the other workers
  leave queries to it, since it has more threads and runs at a higher priority.
* Documents are never starved: after `query_streak` query batches in a row, a general worker takes a document batch if
  one waits.
* Queries are never starved: a general worker takes them first in all other cases, and a document batch is short.
* No caller holds up another one: in every lane callers take turns by tokens, and each may fill its share of the lane,
  whatever the others have there. Callers without an API key count as one.
* No request holds up the queries of another request of the same caller: its requests in the query lane take turns, one
  text at a time, and a single request may fill only a part of the lane. Its documents are computed in the order of its
  requests, so that the oldest request is finished first.
* Pairs are computed by workers of their own, which have the reranker, so no other lane ever waits for them. Requests of
  pairs take turns as those of queries do.
* A batch is filled up to a token budget: a batch that has begun cannot be interrupted, and attention over a whole batch
  costs more than attention over its texts one by one. A text longer than the budget is a batch of its own.
* Each lane holds a limited number of tokens. A request that does not fit is refused, and the refusal says when there
  will be room, estimated from the measured rate.
"""

import math
from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from memory_embedder.errors import EmbedderError, ErrorKind
from memory_embedder.telemetry.metrics import QueueReading


class Lane(StrEnum):
    """The purpose of a text, which decides the queue that the text waits in."""

    QUERY = "query"
    DOCUMENT = "document"
    RERANK = "rerank"


class Role(StrEnum):
    """The kind of a worker: `EXPRESS` computes queries only, `GENERAL` queries and documents, `RERANK` pairs only."""

    EXPRESS = "express"
    GENERAL = "general"
    RERANK = "rerank"


@dataclass(frozen=True, slots=True)
class Item:
    """One text of a request: the request's number, the text's position in the request, its lane and its token count."""

    request: int
    index: int
    lane: Lane
    tokens: int


@dataclass(frozen=True, slots=True)
class Batch:
    """The texts that one worker computes at once."""

    lane: Lane
    items: tuple[Item, ...]

    @property
    def tokens(self) -> int:
        """Number of tokens in the batch."""
        return sum(item.tokens for item in self.items)


@dataclass(frozen=True, slots=True)
class LaneLimits:
    """Limits of the scheduler: tokens and texts of a batch, tokens that wait in each lane, and tokens of one request.

    After `query_streak` query batches in a row, a waiting document batch is computed.
    """

    batch_tokens: int
    batch_sequences: int
    queued_tokens: dict[Lane, int]
    request_tokens: dict[Lane, int]
    query_streak: int = 8


@dataclass(slots=True)
class _Line:
    """The requests of one caller that wait. `turn` counts its tokens that were taken; the least has the next turn."""

    turn: int
    waiting: OrderedDict[int, deque[Item]] = field(default_factory=OrderedDict)  # by request
    queued: int = 0


@dataclass(slots=True)
class _LaneState:
    lines: dict[bytes | None, _Line] = field(default_factory=dict)  # by caller
    queued: int = 0
    inflight: int = 0


class Lanes:
    """The scheduler of all lanes."""

    def __init__(self, limits: LaneLimits, *, tokens_per_second: float = 1000.0) -> None:
        self._limits = limits
        self._lanes = {lane: _LaneState() for lane in Lane}
        self._streak = 0
        self._rate = Rate(tokens_per_second)

    def reading(self) -> QueueReading:
        """Return how many tokens wait and how many are being computed in each lane, and the measured rate of all."""
        queued = {lane.value: state.queued for lane, state in self._lanes.items()}
        inflight = {lane.value: state.inflight for lane, state in self._lanes.items()}
        return QueueReading(queued, inflight, self._rate.value)

    def seed_rate(self, tokens_per_second: float) -> None:
        """Set the first estimate of the rate, in tokens per second."""
        self._rate = Rate(tokens_per_second)

    def require_room(self, lane: Lane, tokens: int, caller: bytes | None) -> None:
        """Check that a request of so many tokens could be queued now; `caller` is that of `admit`.

        Raises:
            EmbedderError: as of `admit`.
        """
        largest = self._limits.request_tokens[lane]
        limit = self._limits.queued_tokens[lane]
        state = self._lanes[lane]
        line = state.lines.get(caller)
        if tokens > largest:
            raise EmbedderError(
                ErrorKind.TOO_LARGE,
                f"The request holds more tokens than one may have ({largest}); split it into smaller requests.",
                param=None if lane is Lane.RERANK else "input",  # whose texts have either of two names
            )
        share = limit // (len(state.lines) + (line is None))
        if state.queued + tokens > limit and (line.queued if line else 0) + tokens > share:
            seconds = max(1, math.ceil((state.queued + tokens - limit) / self._rate.value))
            raise EmbedderError(
                ErrorKind.OVERLOADED,
                f"The queue is full; send the request again in {seconds} s.",
                retry_after_seconds=seconds,
            )

    def admit(self, lane: Lane, items: Iterable[Item], caller: bytes | None = None) -> None:
        """Queue all items of a request, or none; `caller` identifies who sends it, None if nobody is told apart.

        Raises:
            EmbedderError: `TOO_LARGE` if the request exceeds the limit of tokens of one request, or `OVERLOADED` if the
                lane has no room now; this error gives the seconds until there is room.
        """
        offered = tuple(items)
        tokens = sum(item.tokens for item in offered)
        self.require_room(lane, tokens, caller)
        if not offered:
            return
        state = self._lanes[lane]
        line = state.lines.get(caller)
        if line is None:
            line = state.lines[caller] = _Line(min((other.turn for other in state.lines.values()), default=0))
        for item in offered:
            line.waiting.setdefault(item.request, deque()).append(item)
        line.queued += tokens
        state.queued += tokens

    @property
    def waiting(self) -> bool:
        """Whether any text waits in a lane."""
        return any(state.lines for state in self._lanes.values())

    def take(self, role: Role, *, express_free: bool) -> Batch | None:
        """Remove and return the next batch for a free worker of the given role, or None if there is no batch for it.

        `express_free` says that the express worker is idle and will call this method in a moment; queries are left to
        it.
        """
        queries, documents = self._lanes[Lane.QUERY], self._lanes[Lane.DOCUMENT]
        if role is Role.EXPRESS:
            return self._take(Lane.QUERY) if queries.lines else None
        if role is Role.RERANK:
            return self._take(Lane.RERANK) if self._lanes[Lane.RERANK].lines else None
        due = bool(documents.lines) and self._streak >= self._limits.query_streak
        if queries.lines and not due and not express_free:
            self._streak += 1
            return self._take(Lane.QUERY)
        if documents.lines:
            self._streak = 0
            return self._take(Lane.DOCUMENT)
        return None

    def finish(self, batch: Batch, *, computed: int, now: float) -> None:
        """Record that the computation of a batch has ended, successfully or not.

        `computed` is the number of its tokens that were computed, which counts in the measured rate. `now` is a time in
        seconds of a monotonic clock.
        """
        self._lanes[batch.lane].inflight -= batch.tokens
        idle = not any(state.queued or state.inflight for state in self._lanes.values())
        self._rate.record(computed, now, idle=idle)

    def start(self, *, now: float) -> None:
        """Record that work begins, so that the idle time before it does not lower the measured rate."""
        self._rate.resume(now)

    def drop(self, request: int) -> int:
        """Remove the waiting items of a request and return how many tokens these items had."""
        dropped = 0
        for state in self._lanes.values():
            for caller, line in list(state.lines.items()):
                removed = sum(item.tokens for item in line.waiting.pop(request, ()))
                line.queued -= removed
                state.queued -= removed
                dropped += removed
                if not line.waiting:
                    del state.lines[caller]
        return dropped

    def _take(self, lane: Lane) -> Batch:
        state = self._lanes[lane]
        items: list[Item] = []
        used = 0
        while state.lines and len(items) < self._limits.batch_sequences:
            caller, line = min(state.lines.items(), key=lambda one: one[1].turn)
            request, texts = next(iter(line.waiting.items()))
            size = texts[0].tokens
            if items and used + size > self._limits.batch_tokens:
                break
            items.append(texts.popleft())
            used += size
            line.turn += size
            line.queued -= size
            if not texts:
                del line.waiting[request]
            elif lane is not Lane.DOCUMENT:
                line.waiting.move_to_end(request)
            if not line.waiting:
                del state.lines[caller]
        state.queued -= used
        state.inflight += used
        return Batch(lane, tuple(items))


class Rate:
    """Measured tokens per second of busy time: a moving average over about ten seconds of work."""

    _SPAN = 10.0
    _SLICE = 0.25  # shorter slices would measure the rhythm of single batches

    def __init__(self, initial: float) -> None:
        self.value = max(1.0, initial)
        self._since: float | None = None
        self._tokens = 0

    def resume(self, now: float) -> None:
        """Begin a period of measurement, unless one has begun."""
        if self._since is None:
            self._since, self._tokens = now, 0

    def record(self, tokens: int, now: float, *, idle: bool) -> None:
        """Count computed tokens. `idle` says that no work is left, so that the period of measurement ends."""
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
