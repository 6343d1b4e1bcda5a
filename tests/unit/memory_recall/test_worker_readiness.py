"""What makes a sync worker count as ready, and what does not."""

import pytest

from memory_recall.errors import (
    DatabaseUnreachable,
    EmbedderBusy,
    EmbedderUnauthorized,
    EmbedderUnavailable,
    MemoryIndexError,
)
from memory_recall.indexing.progress import LogProgress, WorkerMetrics
from memory_recall.indexing.readiness import Readiness
from memory_recall.retrying import Awaited


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
        watched.outage_began(what, error)
        assert readiness.is_ready() is ready
        watched.outage_ended(what, 3.0)
        assert readiness.is_ready()


def test_the_end_of_one_sessions_outage_is_not_taken_for_that_of_another_one(progress: LogProgress) -> None:
    readiness = Readiness()
    reading, writing = readiness.watched(progress), readiness.watched(progress)
    with readiness.prepared():
        for session in (reading, writing):
            session.outage_began(Awaited.DATABASE, DatabaseUnreachable("It does not answer."))
        reading.outage_ended(Awaited.DATABASE, 3.0)
        assert not readiness.is_ready()


def test_what_a_watched_worker_waits_for_is_in_its_metrics(progress: LogProgress) -> None:
    metrics = WorkerMetrics()
    watched = Readiness().watched(LogProgress(metrics, worker="sync"))
    watched.outage_began(Awaited.EMBEDDER, EmbedderUnauthorized("It refused the key."))
    assert metrics.registry.get_sample_value("memory_worker_unauthorized") == 1
    watched.outage_ended(Awaited.EMBEDDER, 3.0)
    assert metrics.registry.get_sample_value("memory_worker_unauthorized") == 0


def test_a_wait_that_ended_with_an_error_counts_no_longer_than_an_attempt_may_take(
    progress: LogProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lease that was waited for over a connection that broke is had over the next one, without an end of its wait."""
    now = [1000.0]
    monkeypatch.setattr("memory_recall.indexing.readiness.time.monotonic", lambda: now[0])
    readiness, error = Readiness(), DatabaseUnreachable("It does not answer.")
    watched = readiness.watched(progress)
    with readiness.prepared():
        watched.outage_began(Awaited.LEASE, error)
        seen = []
        for failed in (True, True, False, False):
            now[0] += 70
            if failed:
                watched.attempt_failed(Awaited.LEASE, error)
            seen.append(readiness.is_ready())
    assert seen == [False, False, False, True]
