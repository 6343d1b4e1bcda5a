"""Computes the batches that the scheduler chooses, on one thread per llama.cpp context, and answers the callers.

A lock guards the scheduler; the lock is held for microseconds and never during computation. If a context fails, the
requests of its batch get an error, other requests are not affected, and a new context replaces the failed one.
"""

import asyncio
import itertools
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import stamina
import structlog

from memory_embedder.engine.protocol import Computer, TokenIds, Vectors
from memory_embedder.errors import EmbedderError, ErrorKind, draining
from memory_embedder.scheduling.lanes import Batch, Item, Lane, Lanes, Role
from memory_embedder.scheduling.plan import WorkerPlan
from memory_embedder.telemetry.metrics import Metrics, QueueReading

_BULK_NICENESS = 19  # the least priority, so that queries and the HTTP loop go first; at 5 they had to share
_LONGEST_RETRY_DELAY = 10.0


@dataclass(slots=True)
class Ticket:
    """An admitted request: its token ids, the array for the vectors, and the future that the caller awaits."""

    number: int
    lane: Lane
    sequences: Sequence[TokenIds]
    vectors: Vectors
    future: asyncio.Future[Vectors]
    loop: asyncio.AbstractEventLoop
    admitted: float
    remaining: int
    started: bool = False
    abandoned: bool = False


_Wanted = list[tuple[Item, Ticket]]  # the items of a batch whose callers still wait


@dataclass(slots=True)
class _Worker:
    role: Role
    threads: int
    failed: bool = False  # until a new context is made
    busy_since: float | None = None
    threads_used: int = 1
    thread: threading.Thread | None = field(default=None, repr=False)


class Dispatcher:
    """The scheduler together with the threads that compute its batches."""

    def __init__(
        self,
        lanes: Lanes,
        plan: WorkerPlan,
        make_computer: Callable[[Role, int], Computer],
        dimensions: int,
        *,
        metrics: Metrics,
        free_cores: Callable[[int, int | None], int],
    ) -> None:
        """Prepare the threads of the plan without starting them; `free_cores` counts cores as `FreeCores` does."""
        self._lanes = lanes
        self._make_computer = make_computer
        self._dimensions = dimensions
        self._metrics = metrics
        self._free_cores = free_cores
        self._loop_thread: int | None = None
        self._lock = threading.Lock()
        self._work = {role: threading.Condition(self._lock) for role in Role}
        self._drained = threading.Condition(self._lock)
        self._express_free = True  # its thread looks for work when it starts
        self._tickets: dict[int, Ticket] = {}
        self._numbers = itertools.count(1)
        self._stopping = False
        self._given_up = 0  # requests
        self._workers = [_Worker(Role.EXPRESS, plan.express_threads)]
        self._workers += [_Worker(Role.GENERAL, plan.threads) for _ in range(plan.general)]
        self._workers += [_Worker(Role.RERANK, plan.threads) for _ in range(plan.rerank)]
        self._logger = structlog.get_logger("memory_embedder.scheduling.dispatcher")

    def start(self, tokens_per_second: Callable[[], float]) -> None:
        """Make the contexts, then start one thread for each context.

        `tokens_per_second` is called once the contexts exist, and returns a first estimate of their rate.

        Raises:
            EmbedderError: a context cannot be made; then no thread is started.
        """
        for number, worker in enumerate(self._workers):
            computer = self._make_computer(worker.role, worker.threads)
            name = f"{worker.role}-{number}"
            worker.thread = threading.Thread(target=self._run, args=(worker, computer), name=name, daemon=True)
            self._metrics.contexts.labels(role=worker.role.value).inc()
        self._lanes.seed_rate(tokens_per_second())
        for worker in self._workers:
            if worker.thread:
                worker.thread.start()

    def submit(self, lane: Lane, sequences: Sequence[TokenIds], caller: bytes | None = None) -> Ticket:
        """Admit a caller's request with one sequence of token ids per text. Only the event loop may call this method.

        Raises:
            EmbedderError: `DRAINING` during a shutdown, or an error of `Lanes.admit`; then no text of the request is
                queued.
        """
        loop = asyncio.get_running_loop()
        number = next(self._numbers)
        items = [Item(number, index, lane, len(tokens)) for index, tokens in enumerate(sequences)]
        width = 1 if lane is Lane.RERANK else self._dimensions
        vectors = np.empty((len(items), width), dtype=np.float32)
        ticket = Ticket(number, lane, sequences, vectors, loop.create_future(), loop, time.monotonic(), len(items))
        with self._lock:
            self._loop_thread = threading.get_native_id()
            if self._stopping:
                raise draining()
            self._lanes.admit(lane, items, caller)
            self._tickets[number] = ticket
            self._lanes.start(now=time.monotonic())
            # One is enough: a worker that takes a batch and leaves something behind wakes the next.
            express = lane is Lane.QUERY and self._express_free
            role = Role.RERANK if lane is Lane.RERANK else Role.EXPRESS if express else Role.GENERAL
            self._work[role].notify()
        return ticket

    def require_room(self, lane: Lane, tokens: int, caller: bytes | None) -> None:
        """Check that a request of so many tokens could be admitted now.

        Raises:
            EmbedderError: as of `Lanes.admit`.
        """
        with self._lock:
            self._lanes.require_room(lane, tokens, caller)

    def abandon(self, ticket: Ticket) -> None:
        """Drop the request of a caller who disconnected, except texts whose computation has begun."""
        with self._lock:
            ticket.abandoned = True
            dropped = self._lanes.drop(ticket.number)
            self._remove(ticket)
        self._metrics.lanes[ticket.lane].dropped.inc(dropped)

    def reading(self) -> QueueReading:
        """Return how many tokens wait and how many are being computed in each lane, and the measured rate."""
        with self._lock:
            return self._lanes.reading()

    def longest_batch_seconds(self) -> float:
        """Return for how many seconds the oldest unfinished batch has been computing, or 0 if there is none."""
        now = time.monotonic()
        return max((now - since for worker in self._workers if (since := worker.busy_since) is not None), default=0.0)

    def has_context(self, *, reranks: bool) -> bool:
        """Return whether at least one context of the reranker works, or else of the model that embeds."""
        return any(not worker.failed for worker in self._workers if (worker.role is Role.RERANK) is reranks)

    def give_up(self) -> None:
        """Stop admission, and answer all requests that wait or are being computed with `DRAINING`."""
        with self._lock:
            self._stopping = True
            left = list(self._tickets.values())
            self._given_up += len(left)
        for ticket in left:
            with suppress(RuntimeError):  # the loop is closed: nobody awaits the future
                ticket.loop.call_soon_threadsafe(_resolve, ticket, draining())

    def drain(self, timeout: float) -> bool:
        """Stop admission, and wait up to `timeout` seconds for admitted requests; not at all after `give_up`.

        Return whether all requests were answered with what they asked for.
        """
        with self._lock:
            deadline = time.monotonic() + (0 if self._given_up else timeout)
            self._stopping = True
            self._wake_if_drained()
            while self._tickets and (left := deadline - time.monotonic()) > 0:
                self._drained.wait(left)
            finished = not (self._tickets or self._given_up)
        for worker in self._workers:
            if worker.thread and worker.thread.is_alive():
                worker.thread.join(timeout=max(0.1, deadline - time.monotonic()))
        return finished

    @property
    def computing(self) -> bool:
        """Whether a thread that computes batches is still alive, so that it may be using its context."""
        return any(worker.thread is not None and worker.thread.is_alive() for worker in self._workers)

    def _run(self, worker: _Worker, computer: Computer) -> None:
        if worker.role is not Role.EXPRESS:
            with suppress(OSError):  # some sandboxes refuse; the lanes work without it
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _BULK_NICENESS)
        while (batch := self._next_batch(worker)) is not None:
            if not self._compute(worker, computer, batch):
                computer = self._replace(worker, computer)
        computer.close()

    def _next_batch(self, worker: _Worker) -> Batch | None:
        express = worker.role is Role.EXPRESS
        with self._lock:
            while True:
                batch = self._lanes.take(worker.role, express_free=self._express_free)
                if batch is not None:
                    self._express_free &= not express
                    worker.threads_used = self._idle_threads(worker) if express else worker.threads
                    worker.busy_since = time.monotonic()
                    if self._lanes.waiting:
                        self._work[Role.RERANK if batch.lane is Lane.RERANK else Role.GENERAL].notify()
                    return batch
                if self._stopping and not self._tickets:
                    return None
                self._express_free |= express
                self._work[worker.role].wait()

    def _idle_threads(self, worker: _Worker) -> int:
        """Return the number of a worker's threads that find a free core, at least one.

        A thread that shares its core with another process or context would slow down the batch, because all threads of
        a context wait at every operation for the slowest thread. The worker's own thread asks, not the event loop's,
        since the caller may be counted until the event loop sleeps (see `FreeCores`).
        """
        computing = sum(
            other.threads for other in self._workers if other is not worker and other.busy_since is not None
        )
        free = self._free_cores(1 + computing, self._loop_thread)
        return max(1, min(worker.threads, free) - computing)

    def _compute(self, worker: _Worker, computer: Computer, batch: Batch) -> bool:
        started = time.monotonic()
        tickets = [self._tickets.get(item.request) for item in batch.items]
        wanted = [
            (item, ticket) for item, ticket in zip(batch.items, tickets, strict=True) if ticket and not ticket.abandoned
        ]
        failure: EmbedderError | None = None
        vectors: Vectors | None = None
        try:
            if wanted:
                if worker.role is Role.EXPRESS:
                    computer.use_threads(worker.threads_used)
                vectors = computer.embed([ticket.sequences[item.index] for item, ticket in wanted])
        except EmbedderError as error:
            failure = error
        except Exception as error:  # noqa: BLE001 -- a worker must outlive whatever one batch does to it
            self._logger.error("A batch failed unexpectedly", error_class=type(error).__name__)  # noqa: TRY400 -- a traceback may hold text
            failure = EmbedderError(ErrorKind.ENGINE, "The engine failed on a batch; send the request again.")
        seconds = time.monotonic() - started
        worker.busy_since = None
        self._complete(worker, batch, wanted, vectors, failure)
        # Last, since the callers wait for all the rest.
        self._measure(batch, wanted, started, seconds, computed=vectors is not None)
        return failure is None

    def _complete(
        self, worker: _Worker, batch: Batch, wanted: _Wanted, vectors: Vectors | None, failure: EmbedderError | None
    ) -> None:
        done: list[Ticket] = []
        computed = 0 if vectors is None else sum(item.tokens for item, _ in wanted)
        with self._lock:
            self._lanes.finish(batch, computed=computed, now=time.monotonic())
            worker.failed = failure is not None
            # Marked free before the caller is answered, so that the caller's next query is left to this worker.
            self._express_free |= worker.role is Role.EXPRESS and failure is None
            for row, (item, ticket) in enumerate(wanted):
                if vectors is not None:
                    ticket.vectors[item.index] = vectors[row]
                ticket.remaining -= 1
                if ticket.remaining == 0 or failure is not None:
                    done.append(ticket)
            for ticket in done:
                self._lanes.drop(ticket.number)
                self._remove(ticket)
        for ticket in done:
            with suppress(RuntimeError):  # the loop is closed: nobody awaits the future
                ticket.loop.call_soon_threadsafe(_resolve, ticket, failure)

    def _remove(self, ticket: Ticket) -> None:
        self._tickets.pop(ticket.number, None)
        self._wake_if_drained()

    def _wake_if_drained(self) -> None:
        if self._stopping and not self._tickets:
            self._drained.notify_all()
            for workers in self._work.values():
                workers.notify_all()

    def _measure(self, batch: Batch, wanted: _Wanted, started: float, seconds: float, *, computed: bool) -> None:
        series = self._metrics.lanes[batch.lane]
        self._metrics.busy_seconds.inc(seconds)
        if computed:
            series.record_batch(texts=len(wanted), tokens=sum(item.tokens for item, _ in wanted), seconds=seconds)
        for _, ticket in wanted:
            if not ticket.started:
                ticket.started = True
                series.wait_seconds.observe(started - ticket.admitted)

    def _replace(self, worker: _Worker, computer: Computer) -> Computer:
        self._metrics.engine_failures.inc()
        computer.close()
        worker.busy_since = time.monotonic()  # liveness notices a worker that gets no new context
        for attempt in stamina.retry_context(
            on=EmbedderError, attempts=None, timeout=None, wait_max=_LONGEST_RETRY_DELAY
        ):
            with attempt:
                computer = self._make_computer(worker.role, worker.threads)
        worker.busy_since, worker.failed = None, False
        return computer


def _resolve(ticket: Ticket, failure: EmbedderError | None) -> None:
    if ticket.future.done():
        return
    if failure is None:
        ticket.future.set_result(ticket.vectors)
    else:
        ticket.future.set_exception(failure)
