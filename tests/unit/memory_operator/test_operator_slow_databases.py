"""Many databases that do not answer: for how long the others wait, what is read meanwhile, and who hears of it."""

import asyncio
import heapq
from collections import defaultdict
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from memory_operator.api.reasons import Reason
from memory_operator.app import WORKERS
from memory_operator.clients.database import CONNECT_SECONDS
from memory_operator.controller.controller import LATE_SECONDS
from memory_operator.controller.handlers import EventRouter
from memory_operator.controller.queue import (
    NAMESPACE_LIMIT,
    NAMESPACE_SLOW_LIMIT,
    SLOW_LIMIT,
    SLOW_SECONDS,
    Key,
    WorkQueue,
)
from memory_operator.reconcile.core import LONGEST_REQUEUE_SECONDS, outage_delay
from memory_operator.reconcile.facts import Problem
from tests.unit.memory_operator.conftest import FULL, START, World
from tests.unit.memory_operator.test_operator_controller import KEY, Bench, bench

__all__ = ["bench"]  # the fixture
RUN_SECONDS, HEALTHY_SECONDS, RESYNC_SECONDS = 900.0, 0.2, 30.0
HEALTHY = ("healthy", "mine")
UNREACHABLE = Problem(Reason.DATABASE_UNREACHABLE, "no answer.")


@dataclass
class Simulation:
    """The real queue with twelve workers, in simulated time. A healthy object comes after those that do not answer."""

    unanswering: list[Key]
    hold_seconds: float
    healthy: Key = HEALTHY
    answered_before: bool = False  # as its status says after a restart
    now: float = 0.0
    begins: dict[Key, list[float]] = field(default_factory=lambda: defaultdict(list))

    def run(self) -> None:
        queue = WorkQueue(lambda: self.now)
        for key in self.unanswering:
            queue.schedule(key)
        occupied: list[tuple[float, Key]] = []
        scheduled = False
        while self.now < RUN_SECONDS:
            if self.now >= 5.0 and not scheduled:
                queue.schedule(self.healthy, quick=self.answered_before)
                scheduled = True
            while occupied and occupied[0][0] <= self.now:
                _, key = heapq.heappop(occupied)
                queue.schedule(key, self.requeue_after(key))
                queue.done(key)
            while len(occupied) < WORKERS and (key := queue.take_now()):
                self.begins[key].append(self.now)
                heapq.heappush(occupied, (self.now + self.seconds(key), key))
            self.now = round(self.now + 0.1, 1)

    def seconds(self, key: Key) -> float:
        return HEALTHY_SECONDS if key == self.healthy else self.hold_seconds

    def requeue_after(self, key: Key) -> float:
        if key == self.healthy:
            return RESYNC_SECONDS
        since = START + timedelta(seconds=self.begins[key][0])
        return max(3.0, outage_delay(since, START + timedelta(seconds=self.now)))

    def longest_gap(self, key: Key) -> float:
        return max(b - a for a, b in pairwise([5.0, *self.begins[key], RUN_SECONDS]))


def spread(number: int, namespaces: int) -> list[Key]:
    return [(f"bad{each % namespaces}", f"x{each}") for each in range(number)]


@pytest.mark.promise("silent-server-delays-itself")
@pytest.mark.parametrize("number", [40, 200])
@pytest.mark.parametrize("seconds", [CONNECT_SECONDS, 23.0])
def test_a_healthy_object_is_late_by_one_turn_at_most_beside_databases_that_do_not_answer(
    number: int, seconds: float
) -> None:
    simulation = Simulation(spread(number, 4), seconds)
    simulation.run()
    assert simulation.longest_gap(HEALTHY) <= RESYNC_SECONDS + 1.0
    assert simulation.begins[HEALTHY][0] <= 5.0 + seconds, "the first time it waits for a turn of one that is slow"


def test_a_healthy_object_is_not_late_beside_the_same_namespaces_databases_that_do_not_answer() -> None:
    mine = ("team", "mine")
    simulation = Simulation([("team", f"x{each}") for each in range(200)], CONNECT_SECONDS, healthy=mine)
    simulation.run()
    assert max(b - a for a, b in pairwise(simulation.begins[mine])) <= RESYNC_SECONDS + 1.0
    assert simulation.begins[mine][0] <= 160.0, "once, since a new object is not known to answer"


def test_after_a_restart_an_object_whose_status_says_that_its_database_answered_is_not_late() -> None:
    mine = ("team", "mine")
    slow = [("team", f"x{each}") for each in range(200)]
    simulation = Simulation(slow, CONNECT_SECONDS, healthy=mine, answered_before=True)
    simulation.run()
    assert simulation.longest_gap(mine) <= RESYNC_SECONDS + 1.0
    assert simulation.begins[mine][0] <= 6.0


@pytest.mark.parametrize(("status", "quick"), [("True", True), ("False", False), ("Unknown", False)])
def test_the_first_list_tells_which_databases_answered_before(status: str, quick: bool) -> None:
    queue = WorkQueue(lambda: 0.0)
    condition = {"type": "DatabaseReachable", "status": status}
    body = {**World().manifest(), "status": {"conditions": [condition]}}
    EventRouter(queue).event("MemoryIndex", None, body)
    assert (KEY in queue._quick) is quick


def test_an_edit_does_not_make_a_slow_object_quick() -> None:
    queue = WorkQueue(lambda: 0.0)
    condition = {"type": "DatabaseReachable", "status": "True"}
    body = {**World().manifest(), "status": {"conditions": [condition]}}
    EventRouter(queue).event("MemoryIndex", "MODIFIED", body)
    assert queue._quick == set()


def test_databases_that_come_back_are_noticed_although_many_do_not_answer() -> None:
    simulation = Simulation(spread(200, 4), CONNECT_SECONDS)
    simulation.run()
    assert max(b - a for key in simulation.unanswering for a, b in pairwise(simulation.begins[key])) <= 90.0
    taken = sum(len(times) for times in simulation.begins.values())
    assert taken / RUN_SECONDS <= 3.0, "Secrets that are read in a second"


@pytest.mark.promise("operator-shared-fairly")
@pytest.mark.finding("D9")
def test_some_workers_are_left_however_many_databases_do_not_answer() -> None:
    assert WORKERS - SLOW_LIMIT >= 4
    assert NAMESPACE_LIMIT - NAMESPACE_SLOW_LIMIT >= 2
    assert SLOW_SECONDS < CONNECT_SECONDS


async def test_nothing_is_read_for_an_object_that_has_no_worker() -> None:
    """Where slow objects have all the workers that they may have, another one waits in the queue."""
    queue = WorkQueue(lambda: 0.0)
    for key in spread(20, 4):
        queue.schedule(key)
    taken = [queue.take_now() for _ in range(WORKERS)]
    assert sum(key is not None for key in taken) == SLOW_LIMIT
    assert len(queue) == 20 - SLOW_LIMIT


async def test_an_object_that_was_deleted_is_forgotten() -> None:
    queue = WorkQueue(lambda: 0.0)
    queue.schedule(KEY)
    await queue.take()
    queue.schedule(KEY)
    queue.done(KEY)
    assert queue._quick == {KEY}
    await queue.take()
    queue.done(KEY)
    assert queue._quick == set()


async def test_a_database_is_connected_to_after_as_long_as_it_has_not_answered_up_to_a_limit(
    bench: Bench, world: World
) -> None:
    bench.database = UNREACHABLE
    waits = []
    for _ in range(8):
        await bench.reconcile()
        waits.append(bench.queue._due.pop(KEY))
        world.now += timedelta(seconds=waits[-1])
    assert waits == [
        3.0,
        3.0,
        6.0,
        12.0,
        24.0,
        LONGEST_REQUEUE_SECONDS,
        LONGEST_REQUEUE_SECONDS,
        LONGEST_REQUEUE_SECONDS,
    ]
    bench.database = FULL
    await bench.reconcile()
    bench.database = UNREACHABLE
    bench.queue._due.clear()
    await bench.reconcile()
    assert bench.queue._due[KEY] == 3.0, "another outage begins anew"


async def test_a_wrong_password_is_not_waited_for_as_for_a_database_that_does_not_answer(
    bench: Bench, world: World
) -> None:
    bench.database = replace(UNREACHABLE, reason=Reason.AUTHENTICATION_FAILED)
    for _ in range(3):
        await bench.reconcile()
        world.now += timedelta(minutes=5)
        wait = bench.queue._due.pop(KEY)
    assert wait <= 10.0, "a corrected Secret is noticed within ten seconds"


async def test_objects_that_wait_long_for_a_worker_are_counted_and_logged_once_a_minute(bench: Bench) -> None:
    moments = [0.0]
    bench.queue.now = lambda: moments[0]
    with capture_logs() as logs:
        for waits in (1.0, LATE_SECONDS, LATE_SECONDS):
            bench.queue.schedule(KEY)
            moments[0] += waits
            bench.controller._note_wait(await bench.queue.take(), since=0.0)
            bench.queue.done(KEY)
    late = [entry for entry in logs if entry["event"] == "reconciles are late"]
    assert [entry["waited_seconds"] for entry in late] == [LATE_SECONDS]
    assert bench.sample("memory_operator_queue_wait_seconds_count") == 3
    assert bench.sample("memory_operator_queue_wait_seconds_bucket", le="1.0") == 1


async def test_a_new_leader_does_not_count_the_time_before_it_led(bench: Bench) -> None:
    moments = [0.0]
    bench.queue.now = lambda: moments[0]
    bench.queue.schedule(KEY)
    moments[0] = 86400.0
    with capture_logs() as logs:
        bench.controller._note_wait(await bench.queue.take(), since=86399.0)
    assert logs == []
    assert bench.sample("memory_operator_queue_wait_seconds_sum") == 1


async def test_a_worker_counts_how_long_each_object_waited(bench: Bench) -> None:
    reconciled = asyncio.Event()

    async def reconcile(_: Key) -> None:
        reconciled.set()

    bench.controller.reconcile_object = reconcile  # type: ignore[method-assign]
    bench.queue.schedule(KEY)
    worker = asyncio.create_task(bench.controller.work())
    await asyncio.wait_for(reconciled.wait(), 10.0)  # after which this test fails instead of hanging
    worker.cancel()
    assert bench.sample("memory_operator_queue_wait_seconds_count") == 1
