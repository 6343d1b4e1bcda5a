"""Repeat a failed call with growing, jittered delays.

Every retry of the package goes through `retry`, so the growth of the delays, their jitter and the deadline are defined
once. The package `stamina` runs the attempts; its own log events and metrics are switched off in
`memory_recall.logs`, because a caller reports an outage once and not once per attempt.
"""

import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import stamina

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds between attempts: `first`, multiplied by `factor` each time, plus up to `jitter`, at most `longest`."""

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
        on: decides about an error. False raises it, True waits for the backoff's delay, a number waits for that many
            seconds, lengthened by up to a fifth.
        give_up_after: seconds after the first failure, from which on an error is raised instead of retried; None is no
            limit.
        attempts: how many times `work` is called at most; None is no limit.
        backoff: the delays for errors for which `on` names none.
        on_retry: called with each error that `on` accepts, before the deadline is compared.

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
    """A decision for `retry` that accepts the errors of these classes."""
    return lambda error: isinstance(error, kinds)
