"""The work queue, the history between reconciles, and the objects that an event concerns; the tests set the time."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from memory_operator.app import WORKERS
from memory_operator.controller.handlers import EventRouter
from memory_operator.controller.history import ObjectHistory, RateTracker
from memory_operator.controller.queue import NAMESPACE_LIMIT, URGENT_RUN, Key, WorkQueue
from memory_operator.reconcile.facts import Recommendation

A, B = ("team", "a"), ("team", "b")


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(clock: Clock) -> WorkQueue:
    return WorkQueue(clock)


async def test_several_schedules_of_one_key_count_as_the_earliest(queue: WorkQueue) -> None:
    queue.schedule(A, 50)
    queue.schedule(A)
    queue.schedule(A, 99)
    assert await queue.take() == A
    assert len(queue) == 0


async def test_the_key_that_is_due_for_longest_comes_first(queue: WorkQueue, clock: Clock) -> None:
    queue.schedule(B, 5)
    queue.schedule(A, 9)
    clock.seconds += 10
    assert [await queue.take(), await queue.take()] == [B, A]


async def take(queue: WorkQueue) -> Any:
    """Take a key and give it back at once."""
    key = await queue.take()
    queue.done(key)
    return key


@pytest.mark.finding("D20")
async def test_an_urgent_key_comes_before_all_that_are_repeated(queue: WorkQueue, clock: Clock) -> None:
    for number in range(100):
        queue.schedule(("other", str(number)))
    clock.seconds += 10
    queue.schedule(A, urgent=True)
    assert await take(queue) == A


async def test_a_key_that_waits_becomes_urgent_and_is_so_once(queue: WorkQueue, clock: Clock) -> None:
    queue.schedule(B)
    clock.seconds += 1
    queue.schedule(A)
    queue.schedule(A, 60, urgent=True)
    assert await take(queue) == A, "the earliest time and the more urgent class count"
    queue.schedule(A)
    assert await take(queue) == B


async def test_an_urgent_key_waits_for_its_time(queue: WorkQueue) -> None:
    queue.schedule(A, 5, urgent=True)
    queue.schedule(B)
    assert await take(queue) == B


async def test_urgent_keys_do_not_keep_the_others_waiting_for_ever(queue: WorkQueue, clock: Clock) -> None:
    queue.schedule(B)
    clock.seconds += 1
    taken = []
    for number in range(2 * URGENT_RUN):
        queue.schedule(("other", str(number)), urgent=True)
        queue.schedule(("other", str(number + 100)), urgent=True)
        taken.append(await take(queue))
    assert taken.index(B) == URGENT_RUN


def make_quick(queue: WorkQueue, key: Key) -> None:
    """Let a reconcile of the key end at once, after which it is due in five seconds."""
    queue.schedule(key)
    assert queue.take_now() == key
    queue.schedule(key, 5)
    queue.done(key)


@pytest.mark.promise("operator-shared-fairly")
@pytest.mark.finding("H6")
async def test_objects_of_one_namespace_leave_a_worker_for_the_others(queue: WorkQueue, clock: Clock) -> None:
    for number in range(2 * NAMESPACE_LIMIT):
        make_quick(queue, ("hostile", str(number)))
    clock.seconds += 10
    queue.schedule(A)
    taken = [await queue.take() for _ in range(NAMESPACE_LIMIT + 1)]
    assert NAMESPACE_LIMIT < WORKERS
    assert taken[1] == A, "its namespace has no worker yet, and the other one has"
    assert {namespace for namespace, _ in taken if namespace != A[0]} == {"hostile"}
    waiting = asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.done(taken[0])
    assert (await waiting)[0] == "hostile"


async def test_a_taken_key_is_taken_again_only_after_it_was_returned(queue: WorkQueue) -> None:
    queue.schedule(A)
    assert await queue.take() == A
    queue.schedule(A)
    second = asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not second.done()
    queue.done(A)
    assert await second == A


async def test_two_keys_can_be_taken_at_the_same_time(queue: WorkQueue) -> None:
    queue.schedule(A)
    queue.schedule(B)
    assert {await queue.take(), await queue.take()} == {A, B}


async def test_a_waiting_worker_gets_a_newly_scheduled_key(queue: WorkQueue) -> None:
    waiting = asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    queue.schedule(B)
    assert await waiting == B


@pytest.mark.finding("D21")
async def test_a_key_that_is_scheduled_while_it_is_taken_stays_due(queue: WorkQueue) -> None:
    queue.schedule(A)
    assert await queue.take() == A
    queue.schedule(A)
    queue.done(A)
    assert len(queue) == 1


def test_the_rate_is_measured_over_the_window() -> None:
    tracker = RateTracker(window_seconds=60)
    assert tracker.observe(0, 0) is None
    assert tracker.observe(10, 100) == 10
    assert tracker.observe(20, 400) == 20
    assert tracker.observe(100, 1200) == 10, "points before the window no longer count"


def test_rows_that_lost_their_vectors_restart_the_measurement() -> None:
    tracker = RateTracker()
    tracker.observe(0, 0)
    tracker.observe(10, 500)
    assert tracker.observe(20, 3) is None
    assert tracker.observe(30, 13) == 1


def test_two_observations_at_the_same_time_give_no_rate() -> None:
    tracker = RateTracker()
    tracker.observe(5, 0)
    assert tracker.observe(5, 10) is None


def test_back_off_doubles_with_jitter_up_to_a_limit() -> None:
    longest, at = ObjectHistory(random=lambda: 1.0), datetime(2026, 1, 1, tzinfo=UTC)
    assert [longest.fail(at) for _ in range(9)] == [1, 2, 4, 8, 16, 30, 30, 30, 30]
    longest.succeed()
    assert longest.fail(at) == 1
    assert ObjectHistory(random=lambda: 0.0).fail(at) == 0.5


def test_recommendations_are_kept_for_the_window_and_one_before_it() -> None:
    memory, start = ObjectHistory(), datetime(2026, 1, 1, tzinfo=UTC)
    for second in range(0, 100, 10):
        memory.record_recommendation(Recommendation(start + timedelta(seconds=second), 1), keep_seconds=30)
    assert [int((r.at - start).total_seconds()) for r in memory.recommendations] == [60, 70, 80, 90]


def test_of_recommendations_over_a_long_delay_a_limited_number_is_kept_and_the_highest_among_them() -> None:
    """An author may choose a day, in which there are tens of thousands."""
    memory, start, day = ObjectHistory(), datetime(2026, 1, 1, tzinfo=UTC), 86_400
    for second in range(0, 2 * day, 10):
        replicas = 9 if second == 3 * day // 2 else second % 3
        memory.record_recommendation(Recommendation(start + timedelta(seconds=second), replicas), keep_seconds=day)
    assert len(memory.recommendations) <= 203
    assert memory.recommendations[0].at <= start + timedelta(seconds=day), "the whole delay is covered"
    assert max(memory.recommendations, key=lambda one: one.replicas).replicas == 9


def body(name: str = "a", generation: int = 1, cluster: str | None = "pg", **metadata: Any) -> dict[str, Any]:
    reference = {"cluster": {"name": cluster, "namespace": "dbaas"}} if cluster else {}
    return {
        "metadata": {"namespace": "team", "name": name, "uid": "u", "generation": generation, **metadata},
        "spec": {"database": reference},
    }


def due_keys(queue: WorkQueue, clock: Clock) -> list[Any]:
    clock.seconds += 1
    found = []
    while len(queue):
        task = queue.take()
        try:
            task.send(None)
        except StopIteration as stop:
            found.append(stop.value)
            queue.done(stop.value)
    return sorted(found)


def test_a_changed_object_is_scheduled_and_our_own_status_writes_are_ignored(queue: WorkQueue, clock: Clock) -> None:
    router = EventRouter(queue)
    router.index_event("ADDED", body())
    assert due_keys(queue, clock) == [A]
    router.index_event("MODIFIED", {**body(), "status": {"conditions": []}})
    assert due_keys(queue, clock) == []
    router.index_event("MODIFIED", body(generation=2))
    assert due_keys(queue, clock) == [A]
    router.index_event("MODIFIED", body(generation=2, deletionTimestamp="2026-01-01T00:00:00Z"))
    assert due_keys(queue, clock) == [A]
    router.index_event("DELETED", body(generation=2))
    assert due_keys(queue, clock) == [A]


@pytest.mark.parametrize("spec", [None, ["x"], {"database": ["x"]}, {"database": {"cluster": "pg"}}])
def test_an_object_that_no_definition_of_ours_allows_is_scheduled(queue: WorkQueue, clock: Clock, spec: Any) -> None:
    router = EventRouter(queue)
    router.event("MemoryIndex", "ADDED", {**body(), "spec": spec})
    assert due_keys(queue, clock) == [A]


def test_a_new_value_of_the_annotation_means_now(queue: WorkQueue, clock: Clock) -> None:
    router = EventRouter(queue)
    router.index_event("ADDED", body())
    due_keys(queue, clock)
    for value in ("1", "2"):
        router.index_event("MODIFIED", body(annotations={"memory-index.dev/reconcile-at": value}))
        assert len(queue) == 1, "at once, before other events are waited for"
        assert due_keys(queue, clock) == [A]
    router.index_event("MODIFIED", body(annotations={"memory-index.dev/reconcile-at": "2", "other": "x"}))
    assert due_keys(queue, clock) == [], "the same value again is no request"


@pytest.mark.promise("operator-shared-fairly")
@pytest.mark.parametrize("name", ["allowed-namespaces", "reconcile-at"])
def test_an_annotation_of_any_length_takes_no_memory_in_the_router(queue: WorkQueue, clock: Clock, name: str) -> None:
    router = EventRouter(queue)
    filled = {f"memory-index.dev/{name}": "x" * (1 << 18)}
    router.index_event("ADDED", body(annotations=filled))
    assert len(repr(router._versions)) < 1000
    assert due_keys(queue, clock) == [A]
    router.index_event("MODIFIED", body(annotations={f"memory-index.dev/{name}": "y" * (1 << 18)}))
    assert due_keys(queue, clock) == [A]


def test_an_edit_and_a_changed_child_are_urgent_and_the_first_list_is_not(queue: WorkQueue) -> None:
    router = EventRouter(queue)
    router.event("MemoryIndex", None, body("a"))
    router.event("MemoryIndex", None, body("b"))
    assert queue._urgent == set()
    router.event("MemoryIndex", "MODIFIED", body("a", generation=2))
    labels = {"app.kubernetes.io/instance": "b"}
    router.event("Job", "MODIFIED", {"metadata": {"namespace": "team", "name": "b-migrate", "labels": labels}})
    assert queue._urgent == {A, B}


def test_an_event_of_cloudnativepg_schedules_the_objects_of_its_cluster(queue: WorkQueue, clock: Clock) -> None:
    router = EventRouter(queue)
    router.event("MemoryIndex", None, body("a"))
    due_keys(queue, clock)
    router.event("Cluster", "MODIFIED", {"metadata": {"namespace": "dbaas", "name": "pg"}})
    assert due_keys(queue, clock) == [A]
    meta, named = {"namespace": "dbaas", "name": "x"}, {"cluster": {"name": "pg"}}
    router.event("Database", "MODIFIED", {"metadata": meta, "spec": named})
    assert due_keys(queue, clock) == [A]


def test_an_event_of_a_child_schedules_its_index_only(queue: WorkQueue, clock: Clock) -> None:
    router = EventRouter(queue)
    router.index_event("ADDED", body("a"))
    router.index_event("ADDED", body("b"))
    due_keys(queue, clock)
    labels = {"app.kubernetes.io/instance": "b"}
    router.child_event({"metadata": {"namespace": "team", "name": "b-embedder", "labels": labels}})
    assert due_keys(queue, clock) == [B]


def test_an_event_of_a_child_without_an_index_schedules_nothing(queue: WorkQueue, clock: Clock) -> None:
    router = EventRouter(queue)
    router.child_event(
        {"metadata": {"namespace": "team", "name": "x", "labels": {"app.kubernetes.io/instance": "gone"}}}
    )
    router.child_event({"metadata": {"namespace": "team", "name": "x"}})
    assert due_keys(queue, clock) == []


def test_an_event_of_a_cluster_schedules_every_index_that_names_it(queue: WorkQueue, clock: Clock) -> None:
    router = EventRouter(queue)
    router.index_event("ADDED", body("a"))
    router.index_event("ADDED", body("b", cluster="other"))
    due_keys(queue, clock)
    router.cluster_event("dbaas", "pg")
    assert due_keys(queue, clock) == [A]
    router.cluster_event("elsewhere", "pg")
    assert due_keys(queue, clock) == []
