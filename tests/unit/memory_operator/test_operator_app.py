"""The life of a replica: what it does while it waits, while it leads, and when it loses its Lease."""

import asyncio
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from memory_operator import app
from memory_operator.controller.loop_pauses import LoopPauses
from memory_operator.controller.metrics import Metrics


class Election:
    """An election whose course the test sets."""

    def __init__(self) -> None:
        self.elected, self.lost = asyncio.Event(), asyncio.Event()
        self.released = False

    async def acquire(self) -> None:
        await self.elected.wait()

    async def hold(self) -> None:
        await self.lost.wait()

    async def release(self) -> None:
        self.released = True


class Replica:
    """One process, with workers that only wait, and a watch that the test ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.election, self.watched, self.metrics = Election(), asyncio.Event(), Metrics()
        self.working, self.stubborn = 0, False
        process = SimpleNamespace(
            settings=SimpleNamespace(lease="system/memory-operator"),
            kube=None,
            controller=self,
            observer=SimpleNamespace(objects=self),
            metrics=self.metrics,
            pauses=LoopPauses(),
        )
        monkeypatch.setattr(app, "LeaderElection", lambda *_, **__: self.election)
        monkeypatch.setattr(app, "_watches", self._watches)
        self.running = asyncio.create_task(app._run(process))  # type: ignore[arg-type]  # only what is needed here

    async def work(self) -> None:
        self.working += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.working -= 1

    async def compare(self) -> None:
        await asyncio.Event().wait()

    async def _watches(self, _process: Any, kopf_ends: asyncio.Event) -> list[Any]:
        self.kopf_ends = kopf_ends
        return [self._watch()]

    async def _watch(self) -> None:
        while True:
            try:
                await self.watched.wait()
            except asyncio.CancelledError:
                if not self.stubborn:
                    raise
            else:
                return

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    @property
    def leads(self) -> float | None:
        return self.metrics.registry.get_sample_value("memory_operator_leader")


@pytest.fixture
async def replica(monkeypatch: pytest.MonkeyPatch) -> Replica:
    found = Replica(monkeypatch)
    await found.settle()
    return found


@pytest.mark.finding("D19")
async def test_a_replica_that_waits_does_no_work_and_ends_with_its_watches(replica: Replica) -> None:
    assert (replica.working, replica.leads) == (0, 0)
    replica.watched.set()
    assert await replica.running is True
    assert not replica.election.released


async def test_a_replica_that_loses_its_lease_stops_its_work_and_ends(replica: Replica) -> None:
    replica.election.elected.set()
    await replica.settle()
    assert (replica.working, replica.leads) == (app.WORKERS, 1)
    replica.election.lost.set()
    assert await replica.running is False
    assert (replica.working, replica.leads) == (0, 0)


async def test_a_leader_that_is_told_to_end_gives_its_lease_back_after_its_work(replica: Replica) -> None:
    replica.election.elected.set()
    await replica.settle()
    replica.watched.set()
    assert await replica.running is True
    assert replica.working == 0
    assert replica.election.released


async def test_a_process_whose_kopf_ends_but_does_not_return_gives_its_lease_back_and_fails(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kopf's tasks can wait for each other for ever after a watch has failed; nothing would be watched any more."""
    monkeypatch.setattr(app, "END_SECONDS", 0.05)
    replica.election.elected.set()
    await replica.settle()
    replica.stubborn = True
    replica.kopf_ends.set()
    with pytest.raises(app.KopfDidNotEndError):
        await replica.running
    assert replica.working == 0
    assert replica.election.released
    replica.watched.set()


_STUBBORN = """
import asyncio
from memory_operator import app

async def wait_for_ever():
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

async def serve():
    app._end_process_within(0.2)
    asyncio.create_task(wait_for_ever())
    await asyncio.sleep(0)

asyncio.run(serve())
"""


def test_the_process_ends_although_a_task_ignores_its_cancellation() -> None:
    ended = subprocess.run([sys.executable, "-c", _STUBBORN], timeout=60, check=False)
    assert ended.returncode == 1
