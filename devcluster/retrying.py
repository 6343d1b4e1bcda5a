"""Waits until a condition holds, at most until a deadline."""

import time
from collections.abc import Callable

from devcluster.errors import DevclusterError


def until(what: str, condition: Callable[[], bool], *, seconds: float, every: float = 0.3, remedy: str = "") -> None:
    """Call `condition` every `every` seconds until it returns True; `what` describes the condition.

    Raises:
        DevclusterError: `condition` has not returned True within `seconds`; the message contains `what`.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise DevclusterError(f"waited {seconds:.0f} s in vain until {what}", remedy=remedy)
        time.sleep(every)
