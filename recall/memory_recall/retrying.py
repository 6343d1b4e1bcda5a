"""Retries failed calls with growing, jittered delays.

Every retry of the package goes through `retry`, so the growth of the delays, their jitter and the deadline are defined
once. The package `stamina` runs the attempts; its own log events and metrics are switched off in `memory_recall.logs`,
because a caller reports an outage once and not once per attempt.
"""

import math
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeVar

import stamina

from memory_recall.errors import MemoryIndexError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Backoff:
    """The delays between attempts, in seconds.

    The delay after the first attempt is `first`, and each further delay is `factor` times as long. Up to `jitter` is
    added to each, and no delay is longer than `longest`.
    """

    first: float = 0.1
    longest: float = 3.0
    jitter: float = 0.1
    factor: float = 2.0


DEFAULT_BACKOFF = Backoff()
TABLE_LOCK_BACKOFF = Backoff(first=0.05, longest=0.5, jitter=0.45, factor=1)  # lets the other sessions pass in between


async def retry(
    work: Callable[[], Awaitable[T]],
    *,
    on: Callable[[BaseException], bool | float],
    give_up_after: float | None,
    attempts: int | None = None,
    backoff: Backoff = DEFAULT_BACKOFF,
    on_retry: Callable[[BaseException], None] | None = None,
) -> T:
    """Await `work()` until it succeeds, and return its result.

    Args:
        work: the call; every attempt makes it anew, so it must be safe to repeat.
        on: decides about an error. False raises the error, True repeats the call after the backoff's delay, and a
            number repeats the call after that many seconds, lengthened by up to a fifth.
        give_up_after: seconds since the first failure after which errors are raised and no longer retried; None means
            no limit.
        attempts: how many times `work` is called at most; None means no limit.
        backoff: the delays after errors for which `on` returns True.
        on_retry: called with each error that `on` would retry, even if the deadline has passed.

    Raises:
        Exception: the last error of `work`, unchanged.
    """
    first_failure: float | None = None

    def decide(error: BaseException) -> bool | float:
        nonlocal first_failure
        verdict = on(error)
        if verdict is False:
            return False
        now = time.monotonic()
        first_failure = now if first_failure is None else first_failure
        if on_retry is not None:
            on_retry(error)
        if give_up_after is not None and now - first_failure > give_up_after:
            return False
        return verdict if verdict is True else verdict * random.uniform(1.0, 1.2)  # noqa: S311  (jitter, not a secret)

    caller = stamina.AsyncRetryingCaller(
        attempts=attempts,
        timeout=None,
        wait_initial=backoff.first,
        wait_max=backoff.longest,
        wait_jitter=backoff.jitter,
        wait_exp_base=backoff.factor,
    )
    return await caller(decide, work)


def caused_by(*kinds: type[BaseException]) -> Callable[[BaseException], bool]:
    """Return a function for `retry`'s parameter `on` that retries errors of these classes and raises all others."""
    return lambda error: isinstance(error, kinds)


class Awaited(StrEnum):
    """What a worker can wait for and report as unavailable, with its label `what` in the metric of outages."""

    DATABASE = "database"
    DISK = "disk"
    EMBEDDER = "embedder"
    LEASE = "lease"
    NEXT_MODEL = "next model"
    CONCEPT_GRAPH = "concept graph"
    RECORDED_HASHES = "recorded hashes"


class Retrying(Protocol):
    """Awaits a call, and repeats it for as long as what it needs is away."""

    async def __call__(self, work: Callable[[], Awaitable[T]], /) -> T:
        """Return the result of `work`, or raise its last error."""
        ...


class OutageListener(Protocol):
    """A listener that is told when something that a worker waits for is unavailable, and when it no longer is."""

    def outage_began(self, what: Awaited, error: MemoryIndexError) -> None:
        """Report an outage at its first error, at each error with a new reason, and where wanted again at intervals."""
        ...

    def outage_ended(self, what: Awaited, seconds: float) -> None:
        """Report that an outage has ended, and how many seconds it lasted."""
        ...

    def attempt_failed(self, what: Awaited, error: MemoryIndexError, wait: object) -> None:
        """Report each attempt that failed, whether or not the outage is reported with it.

        Several parts of a worker may wait for the same at a time. `wait` tells their waits apart.
        """
        ...

    def wait_ended(self, wait: object) -> None:
        """Report the end of a wait in which attempts failed, also where an error or a cancellation ends it."""
        ...


async def retry_outage(
    work: Callable[[], Awaitable[T]],
    what: Awaited,
    listener: OutageListener,
    *,
    on: Callable[[BaseException], bool | float],
    give_up_after: float | None,
    backoff: Backoff,
    reported_after: float = 0.0,
    reminded_after: float = math.inf,
) -> T:
    """Retry `work` while the database, the embedder or a lease is unavailable, and report the outage to the listener.

    `what` names which of them is unavailable. An outage of less than `reported_after` seconds is not reported, and one
    that lasts is reported again every `reminded_after` seconds. The listener is told of every attempt that fails, and
    of the end of the wait.

    Raises:
        Exception: the outage lasted longer than `give_up_after` seconds, or `on` returned False for the error.
    """
    began: float | None = None
    reported, reported_at = "", -math.inf
    wait = object()

    def report(error: BaseException) -> None:
        nonlocal began, reported, reported_at
        now = time.monotonic()
        began = now if began is None else began
        if not isinstance(error, MemoryIndexError):
            return
        listener.attempt_failed(what, error, wait)
        if now - began < reported_after:
            return
        if error.reason != reported or now - reported_at >= reminded_after:
            reported, reported_at = error.reason, now
            listener.outage_began(what, error)

    try:
        result = await retry(work, on=on, give_up_after=give_up_after, backoff=backoff, on_retry=report)
    finally:
        if began is not None:
            listener.wait_ended(wait)
    if began is not None and reported:
        listener.outage_ended(what, time.monotonic() - began)
    return result
