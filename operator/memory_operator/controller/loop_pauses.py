"""Measure for how long the event loop stands still, during which no object is reconciled and no probe is answered.

A task wakes up at short intervals. How late it wakes up is the time for which the event loop stood still. Either
something in this process kept the loop, which takes processor time of the loop's thread, or the node gave the process
no processor, which takes none. Both are measured, since they have different remedies.

The longest pause is read by the thread that serves the metrics. Therefore a pause that has not ended yet counts, too.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic, thread_time

WINDOW_SECONDS = 300.0
_INTERVAL_SECONDS = 0.05
_STANDSTILL_SECONDS = 10.0  # after which the kubelet is told; it ends the process if this lasts for three probes


class LoopPauses:
    """Keeps the pauses of the event loop within the last five minutes, and the processor time that the loop took."""

    def __init__(
        self, clock: Callable[[], float] = monotonic, processor_clock: Callable[[], float] = thread_time
    ) -> None:
        self._clock = clock
        self._processor_clock = processor_clock
        self._woke_up: float | None = None
        self._processor_seconds = 0.0
        self._pauses = _Longest()
        self._busy = _Longest()

    async def measure(self) -> None:
        """Measure pauses until cancelled, in the thread of the event loop."""
        while True:
            self.wake_up()
            await asyncio.sleep(_INTERVAL_SECONDS)

    def wake_up(self) -> None:
        """Record that the event loop runs now; its own thread calls this."""
        now, used = self._clock(), self._processor_clock()
        self._pauses.add(now, self._since_last(now))
        self._busy.add(now, 0.0 if self._woke_up is None else used - self._processor_seconds)
        self._woke_up, self._processor_seconds = now, used

    def longest(self) -> float:
        """Return the seconds of the longest pause. Any thread may call this."""
        return max(self._since_last(self._clock()), self._pauses.value())

    def runs(self) -> bool:
        """Return whether the event loop has begun and has not stood still for long now. Any thread may call this."""
        return self._woke_up is not None and self._since_last(self._clock()) < _STANDSTILL_SECONDS

    def busiest(self) -> float:
        """Return the most seconds of processor time between two wake-ups of the loop. Any thread may call this."""
        return self._busy.value()

    def _since_last(self, now: float) -> float:
        return 0.0 if self._woke_up is None else max(0.0, now - self._woke_up - _INTERVAL_SECONDS)


class _Longest:
    """The longest of the durations that were added within the last five minutes."""

    def __init__(self) -> None:
        self._kept: deque[tuple[float, float]] = deque()  # the time of each, and the seconds, which fall over time

    def add(self, now: float, seconds: float) -> None:
        while self._kept and self._kept[-1][1] <= seconds:
            self._kept.pop()
        self._kept.append((now, seconds))
        while self._kept[0][0] < now - WINDOW_SECONDS:
            self._kept.popleft()

    def value(self) -> float:
        return max((seconds for _, seconds in tuple(self._kept)), default=0.0)
