"""Measure for how long the event loop stands still, during which no object is reconciled and no probe is answered.

A task wakes up at short intervals. How late it wakes up is the time for which something else kept the event loop. The
longest such time is read by the thread that serves the metrics. Therefore a pause that has not ended yet counts, too.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic

WINDOW_SECONDS = 300.0
_INTERVAL_SECONDS = 0.05


class LoopPauses:
    """Keeps the pauses of the event loop within the last five minutes."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._woke_up: float | None = None
        self._pauses: deque[tuple[float, float]] = deque()  # the time of each end, and the seconds that fall over time

    async def measure(self) -> None:
        """Measure pauses until cancelled."""
        while True:
            self.wake_up()
            await asyncio.sleep(_INTERVAL_SECONDS)

    def wake_up(self) -> None:
        """Record that the event loop runs now."""
        now = self._clock()
        seconds = self._since_last(now)
        while self._pauses and self._pauses[-1][1] <= seconds:
            self._pauses.pop()
        self._pauses.append((now, seconds))
        while self._pauses[0][0] < now - WINDOW_SECONDS:
            self._pauses.popleft()
        self._woke_up = now

    def longest(self) -> float:
        """Return the seconds of the longest pause. Any thread may call this."""
        return max([self._since_last(self._clock()), *(seconds for _, seconds in tuple(self._pauses))])

    def _since_last(self, now: float) -> float:
        return 0.0 if self._woke_up is None else max(0.0, now - self._woke_up - _INTERVAL_SECONDS)
