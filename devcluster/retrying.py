"""Waiting for a condition of the outside world, with a deadline and a name."""

import time
from collections.abc import Callable

from devcluster.errors import DevclusterError


def until(what: str, condition: Callable[[], bool], *, seconds: float, every: float = 0.3, remedy: str = "") -> None:
    """Return as soon as the condition holds; after the deadline, an error that says what did not come true."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise DevclusterError(f"waited {seconds:.0f} s in vain until {what}", remedy=remedy)
        time.sleep(every)
