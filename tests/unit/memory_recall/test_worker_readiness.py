"""What makes a sync worker count as ready, and what does not."""

import asyncio
import time

import pytest

from memory_recall.errors import (
    DatabaseUnreachable,
    EmbedderBusy,
    EmbedderUnauthorized,
    EmbedderUnavailable,
    LockNotAvailable,
    MemoryIndexError,
)
from memory_recall.indexing.progress import LogProgress, WorkerMetrics
from memory_recall.indexing.readiness import Readiness
from memory_recall.retrying import Awaited, Backoff, caused_by, retry_outage

AT_ONCE = Backoff(first=0, longest=0, jitter=0)


@pytest.fixture
def progress() -> LogProgress:
    return LogProgress(WorkerMetrics(), worker="sync")


def test_a_worker_is_ready_only_while_it_is_prepared() -> None:
    readiness = Readiness()
    before = readiness.is_ready()
    with readiness.prepared():
        during = readiness.is_ready()
    assert (before, during, readiness.is_ready()) == (False, True, False)


@pytest.mark.parametrize(
    ("what", "error", "ready"),
    [
        (Awaited.EMBEDDER, EmbedderUnavailable("It does not answer."), False),
        (Awaited.EMBEDDER, EmbedderUnauthorized("It refused the key."), False),
        (Awaited.EMBEDDER, EmbedderBusy("It is busy."), True),
        (Awaited.DATABASE, DatabaseUnreachable("It does not answer."), False),
    ],
)
def test_a_wait_for_all_but_a_busy_embedder_takes_the_readiness_until_it_ends(
    progress: LogProgress, what: Awaited, error: MemoryIndexError, ready: bool
) -> None:
    readiness = Readiness()
    watched = readiness.watched(progress)
    with readiness.prepared():
        watched.attempt_failed(what, error, wait=1)
        assert readiness.is_ready() is ready
        watched.wait_ended(1)
        assert readiness.is_ready()


def test_the_end_of_one_sessions_wait_is_not_taken_for_that_of_another_one(progress: LogProgress) -> None:
    readiness = Readiness()
    watched = readiness.watched(progress)
    with readiness.prepared():
        for session in (1, 2):
            watched.attempt_failed(Awaited.DATABASE, DatabaseUnreachable("It does not answer."), wait=session)
        watched.wait_ended(1)
        assert not readiness.is_ready()


def test_what_a_watched_worker_waits_for_is_in_its_metrics() -> None:
    metrics = WorkerMetrics()
    watched = Readiness().watched(LogProgress(metrics, worker="sync"))

    def shown() -> list[float | None]:
        waiting = metrics.registry.get_sample_value("memory_worker_waiting", {"what": Awaited.EMBEDDER})
        return [metrics.registry.get_sample_value("memory_worker_unauthorized"), waiting]

    error = EmbedderUnauthorized("It refused the key.")
    watched.outage_began(Awaited.EMBEDDER, error)
    watched.attempt_failed(Awaited.EMBEDDER, error, wait=1)
    during = shown()
    watched.outage_ended(Awaited.EMBEDDER, 3.0)
    watched.wait_ended(1)
    assert (during, shown()) == ([1, 1], [0, 0])


async def test_a_worker_whose_embedder_hangs_is_not_ready_before_it_answers(
    progress: LogProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt and the pause before it take 130 seconds, and the kubelet asks at any time of them."""
    now, seen = 1000.0, []
    monkeypatch.setattr(time, "monotonic", lambda: now)
    readiness = Readiness()

    async def attempt() -> None:
        nonlocal now
        for _ in range(130):
            now += 1
            seen.append(readiness.is_ready())
        if len(seen) <= 520:
            raise EmbedderUnavailable("It does not answer.")

    with readiness.prepared():
        listener, kinds = readiness.watched(progress), caused_by(EmbedderUnavailable)
        await retry_outage(attempt, Awaited.EMBEDDER, listener, on=kinds, give_up_after=None, backoff=AT_ONCE)
        assert readiness.is_ready()
    assert not any(seen[130:]), "after the first failed attempt"


@pytest.mark.parametrize("ending", [asyncio.CancelledError(), DatabaseUnreachable("The connection is lost.")])
async def test_a_wait_that_an_error_or_a_cancellation_ends_keeps_no_worker_unready(
    progress: LogProgress, ending: BaseException
) -> None:
    """A lease that was waited for over a connection that broke is had over the next one."""
    readiness, answers = Readiness(), [LockNotAvailable("Another one holds the lease."), ending]

    async def attempt() -> None:
        raise answers.pop(0)

    with readiness.prepared():
        listener, kinds = readiness.watched(progress), caused_by(LockNotAvailable)
        with pytest.raises(type(ending)):
            await retry_outage(attempt, Awaited.LEASE, listener, on=kinds, give_up_after=None, backoff=AT_ONCE)
        assert readiness.is_ready()
