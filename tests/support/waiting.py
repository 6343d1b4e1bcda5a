"""Waits until an observation is as wanted, up to a deadline; the error at the deadline says what was observed last."""

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")
POLL_SECONDS = 0.5
LONGEST_SECONDS = 240.0  # far more than anything here takes on a busy machine, and less than the time limit of a test


def eventually(
    observe: Callable[[], Value],
    holds: Callable[[Value], bool],
    *,
    what: str,
    seconds: float = LONGEST_SECONDS,
    poll: float = POLL_SECONDS,
) -> Value:
    """Observe again and again, and return the first value for which `holds` is true.

    Raises:
        AssertionError: there was no such value within `seconds`.
    """
    deadline = time.monotonic() + seconds
    while True:
        value = observe()
        if holds(value):
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"after {seconds:.0f} s still not: {what}; last observed: {value}")
        time.sleep(poll)
