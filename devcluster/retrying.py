"""Waits for a named condition of the outside world, with a deadline."""

import time
from collections.abc import Callable

from devcluster.errors import DevclusterError


def until(what: str, condition: Callable[[], bool], *, seconds: float, every: float = 0.3, remedy: str = "") -> None:
    """Wait until the condition holds.

    Raises:
        DevclusterError: it does not hold at the deadline; the message names it.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise DevclusterError(f"waited {seconds:.0f} s in vain until {what}", remedy=remedy)
        time.sleep(every)
