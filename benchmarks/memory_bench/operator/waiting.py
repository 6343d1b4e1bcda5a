"""Waiting for something observable, with a deadline and a message that says what was observed instead."""

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")
POLL_SECONDS = 0.5


def eventually(
    observe: Callable[[], Value],
    holds: Callable[[Value], bool],
    *,
    what: str,
    seconds: float,
    poll: float = POLL_SECONDS,
) -> Value:
    """Return the first value for which the predicate holds."""
    deadline = time.monotonic() + seconds
    while True:
        value = observe()
        if holds(value):
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"after {seconds:.0f} s still not: {what}; last observed: {value}")
        time.sleep(poll)
