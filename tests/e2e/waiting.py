"""Waiting for something observable, with a deadline and a message that tells what was seen instead."""

import time
from collections.abc import Callable
from typing import TypeVar

Seen = TypeVar("Seen")
POLL_SECONDS = 0.5


def eventually(
    look: Callable[[], Seen], holds: Callable[[Seen], bool], *, what: str, seconds: float, poll: float = POLL_SECONDS
) -> Seen:
    """Return the first value for which the predicate holds."""
    deadline = time.monotonic() + seconds
    while True:
        seen = look()
        if holds(seen):
            return seen
        if time.monotonic() > deadline:
            raise AssertionError(f"after {seconds:.0f} s still not: {what}; last seen: {seen}")
        time.sleep(poll)
