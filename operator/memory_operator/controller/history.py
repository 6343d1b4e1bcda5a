"""Keep measurements and failures of each object between reconciles, in the memory of the process.

A restart loses them; rates and retry delays are then less accurate for a while.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import SystemRandom
from typing import Self

from memory_operator.controller.writes import Writes
from memory_operator.reconcile.delays import doubled
from memory_operator.reconcile.facts import JobFacts, JobState, Observed, Recommendation
from memory_operator.reconcile.pod_start import lacks_pod

RATE_WINDOW_SECONDS = 60.0
FIRST_BACKOFF_SECONDS = 1.0
LONGEST_BACKOFF_SECONDS = 30.0
FAILURES_TO_REPORT = 3
FAILING_TO_REPORT = timedelta(seconds=30)
MOST_RECOMMENDATIONS = 200
EVENT_LIFETIME = timedelta(hours=1)  # the default of the API server; the last failed migration is kept much longer


class RateTracker:
    """Measures how many rows are embedded per second, over the last minute of observations."""

    def __init__(self, window_seconds: float = RATE_WINDOW_SECONDS) -> None:
        self._window = window_seconds
        self._points: deque[tuple[float, int]] = deque()

    def observe(self, at: float, embedded: int) -> float | None:
        """Add the number of embedded rows at the time `at`, in seconds, and return the rows embedded per second.

        The answer is None until there are two observations at different times.
        """
        if self._points and embedded < self._points[-1][1]:
            self._points.clear()  # rows lost their vectors: the measurement restarts
        self._points.append((at, embedded))
        while len(self._points) > 2 and self._points[1][0] <= at - self._window:
            self._points.popleft()
        begin, first = self._points[0]
        return (embedded - first) / (at - begin) if at > begin else None

    def reset(self) -> None:
        """Forget all observations, because no backfill runs."""
        self._points.clear()


class IdleTracker:
    """Tracks the time since which work has been pending and none of it has been done."""

    def __init__(self) -> None:
        self._last: tuple[int, int] | None = None
        self._since: datetime | None = None

    def observe(self, at: datetime, *, pending: int, done: int) -> datetime | None:
        """Add an observation, and return the time since which there has been no progress.

        `pending` counts what is to be done, and `done` grows with what has been done. Progress means that `done` has
        grown, or that less is pending. The answer is None if nothing is pending.
        """
        last, self._last = self._last, (pending, done)
        progress = last is not None and (pending < last[0] or done > last[1])
        if pending == 0:
            self._since = None
        elif self._since is None or progress:
            self._since = at
        return self._since


@dataclass
class ObjectHistory:
    """The measurements and failures of one MemoryIndex that are kept between reconciles.

    It holds no objects, so it takes some 10 KiB, and 40 KiB where many recommendations are kept. That counts towards no
    limit of the cache, and is freed by the reconcile that finds the object gone.
    """

    random: Callable[[], float] = SystemRandom().random
    uid: str = ""
    rate: RateTracker = field(default_factory=RateTracker)
    idle: IdleTracker = field(default_factory=IdleTracker)
    graph_idle: IdleTracker = field(default_factory=IdleTracker)
    writes: Writes = field(default_factory=Writes)
    recommendations: deque[Recommendation] = field(default_factory=deque)
    failed_jobs: frozenset[str] = frozenset()
    jobs_without_pod: dict[str, datetime] = field(default_factory=dict)
    unreachable_since: datetime | None = None
    undoing_since: datetime | None = None
    failing_since: datetime | None = None
    failures: int = 0

    def for_object(self, uid: str) -> Self:
        """Return this history if it is that of the object with this uid, and otherwise a new one.

        An object may have been deleted and created anew under the same name since the last reconcile.
        """
        if self.uid not in {"", uid}:
            return type(self)(uid=uid)
        self.uid = uid
        return self

    def succeed(self) -> None:
        """Record a reconcile that succeeded."""
        self.failing_since, self.failures = None, 0

    def fail(self, at: datetime) -> float:
        """Record a reconcile that failed; return the seconds until the next attempt.

        The delay doubles with each failure. Its jitter has objects that failed together retried at different times.
        """
        self.failing_since = self.failing_since or at
        longest = doubled(FIRST_BACKOFF_SECONDS, LONGEST_BACKOFF_SECONDS, self.failures)
        self.failures += 1
        return longest * (0.5 + self.random() / 2)

    def failure_lasts(self, at: datetime) -> bool:
        """Return whether reconciles have failed for so long, or so many times in a row, that the status must say so."""
        long = self.failing_since is not None and at - self.failing_since >= FAILING_TO_REPORT
        return long or self.failures >= FAILURES_TO_REPORT

    def record_recommendation(self, recommendation: Recommendation, *, keep_seconds: float) -> None:
        """Add a recommended number of replicas, and forget recommendations that are older than `keep_seconds`.

        The latest of the older recommendations is kept, because it still applied at the beginning of this period. Of
        those within a 200th of the period, the highest is kept, so that no more than some 200 are.
        """
        apart = timedelta(seconds=keep_seconds / MOST_RECOMMENDATIONS)
        if self.recommendations and recommendation.at - self.recommendations[-1].at < apart:
            recommendation = max(self.recommendations.pop(), recommendation, key=lambda one: one.replicas)
        self.recommendations.append(recommendation)
        since = recommendation.at - timedelta(seconds=keep_seconds)
        while len(self.recommendations) > 1 and self.recommendations[1].at <= since:
            self.recommendations.popleft()

    def record_times(self, observed: Observed, at: datetime) -> Observed:
        """Record since when a Job has had no pod, or the database has not answered; return the observation with it."""
        without = [job.name for job in observed.jobs if lacks_pod(job, observed)]
        self.jobs_without_pod = {name: self.jobs_without_pod.get(name, at) for name in without}
        jobs = tuple(replace(job, without_pod_since=self.jobs_without_pod.get(job.name)) for job in observed.jobs)
        self.unreachable_since = (self.unreachable_since or at) if observed.is_unreachable else None
        return replace(observed, jobs=jobs, unreachable_since=self.unreachable_since)

    def record_undoing(self, at: datetime, *, waits: bool) -> datetime | None:
        """Record and return when the deletion first could undo something; None while it `waits` for others."""
        self.undoing_since = None if waits else (self.undoing_since or at)
        return self.undoing_since

    def record_failed_jobs(self, jobs: Iterable[JobFacts], at: datetime) -> list[JobFacts]:
        """Record which Jobs have failed, and return those that had not failed at the last call.

        A Job that failed longer ago than Events are kept is left out: an earlier process has reported it.
        """
        failed = {job.name: job for job in jobs if job.state is JobState.FAILED}
        unrecorded = [job for name, job in failed.items() if name not in self.failed_jobs]
        new = [job for job in unrecorded if at - (job.finished_at or at) < EVENT_LIFETIME]
        self.failed_jobs = frozenset(failed)
        return new
