"""What the operator remembers of an object between two looks. Losing it at a restart costs accuracy, never
correctness.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import SystemRandom

from memory_operator.reconcile.observed import Recommendation

RATE_WINDOW_SECONDS = 60.0
FIRST_BACKOFF_SECONDS = 1.0
LONGEST_BACKOFF_SECONDS = 60.0


class RateTracker:
    """Embedded rows per second, measured over the last minute of observations."""

    def __init__(self, window_seconds: float = RATE_WINDOW_SECONDS) -> None:
        self._window = window_seconds
        self._points: deque[tuple[float, int]] = deque()

    def observe(self, at: float, embedded: int) -> float | None:
        """Add an observation; the rate, or None before there are two of them that differ in time."""
        if self._points and embedded < self._points[-1][1]:
            self._points.clear()  # rows lost their vectors: a new beginning
        self._points.append((at, embedded))
        while len(self._points) > 2 and self._points[1][0] <= at - self._window:
            self._points.popleft()
        begin, first = self._points[0]
        return (embedded - first) / (at - begin) if at > begin else None

    def reset(self) -> None:
        """Begin anew: no backfill runs."""
        self._points.clear()


@dataclass
class Backoff:
    """Delays that double, with jitter so that objects that failed together do not return together."""

    random: Callable[[], float] = SystemRandom().random
    failures: int = 0

    def fail(self) -> float:
        """Seconds to wait after one more failure."""
        longest = min(LONGEST_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2.0 ** min(self.failures, 10))
        self.failures += 1
        return longest * (0.5 + self.random() / 2)

    def succeed(self) -> None:
        """The next failure is the first again."""
        self.failures = 0


@dataclass
class ObjectMemory:
    """Everything remembered of one object."""

    rate: RateTracker = field(default_factory=RateTracker)
    backoff: Backoff = field(default_factory=Backoff)
    recommendations: deque[Recommendation] = field(default_factory=deque)

    def recommend(self, recommendation: Recommendation, *, keep_seconds: float) -> None:
        """Remember how many pods were needed, one older than the window included, which proves its length."""
        self.recommendations.append(recommendation)
        since = recommendation.at - timedelta(seconds=keep_seconds)
        while len(self.recommendations) > 1 and self.recommendations[1].at <= since:
            self.recommendations.popleft()


def utc_now() -> datetime:
    """The wall clock in whole seconds, as the API writes times."""
    return datetime.now(UTC).replace(microsecond=0)
