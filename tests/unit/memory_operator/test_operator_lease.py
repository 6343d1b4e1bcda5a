"""The Lease by which one of several replicas is elected; the tests set the time and hold the one Lease."""

import asyncio
import copy
from typing import Any

import pytest

from memory_operator.clients.kube import KubeError
from memory_operator.clients.lease import LEASE_SECONDS, RENEW_SECONDS, RETRY_SECONDS, LeaderElection

UNREACHABLE = KubeError("reading Lease", 0, "the API server cannot be reached")
HAND_OVER_SECONDS = 30


class Leases:
    """An API server that holds Leases, each with its version, and the time of all replicas."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.seconds = 1000.0
        self.cut_off: set[str] = set()

    def replica(self, name: str) -> LeaderElection:
        return LeaderElection(
            Client(self, name), "system", "memory-operator", identity=name, clock=lambda: self.seconds, sleep=self.sleep  # type: ignore[arg-type]
        )  # fmt: skip

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        await asyncio.sleep(0)

    @property
    def holder(self) -> str | None:
        return self.lease["spec"]["holderIdentity"] if self.lease else None


class Client:
    """What one replica sees of it."""

    def __init__(self, leases: Leases, name: str) -> None:
        self.leases, self.name = leases, name

    def _reach(self) -> None:
        if self.name in self.leases.cut_off:
            raise UNREACHABLE

    async def get(self, _kind: str, _namespace: str, _name: str) -> Any:
        self._reach()
        return copy.deepcopy(self.leases.lease)

    async def create(self, manifest: dict[str, Any]) -> None:
        self._reach()
        if self.leases.lease is None:
            self._store(manifest)

    async def replace(self, manifest: dict[str, Any]) -> None:
        self._reach()
        live = self.leases.lease
        if live is None or live["metadata"]["resourceVersion"] != manifest["metadata"]["resourceVersion"]:
            raise KubeError("replacing Lease", 409, "the object has been modified")
        self._store(manifest)

    def _store(self, manifest: dict[str, Any]) -> None:
        self.leases.version += 1
        meta = {**manifest["metadata"], "resourceVersion": str(self.leases.version)}
        self.leases.lease = {**copy.deepcopy(manifest), "metadata": meta}


@pytest.fixture
def leases() -> Leases:
    return Leases()


@pytest.mark.finding("D19")
async def test_the_first_replica_leads_and_the_second_waits(leases: Leases) -> None:
    first, second = leases.replica("first"), leases.replica("second")
    await first.acquire()
    assert not await second._renew()
    assert leases.holder == "first"


async def test_a_leader_that_renews_is_never_replaced(leases: Leases) -> None:
    first, second = leases.replica("first"), leases.replica("second")
    await first.acquire()
    for _ in range(50):
        await leases.sleep(RETRY_SECONDS)
        assert await first._renew()
        assert not await second._renew()


async def test_another_replica_leads_within_half_a_minute_after_the_leader_has_died(leases: Leases) -> None:
    first, second = leases.replica("first"), leases.replica("second")
    await first.acquire()
    died = leases.seconds
    await second.acquire()
    assert leases.holder == "second"
    assert LEASE_SECONDS < leases.seconds - died <= HAND_OVER_SECONDS
    assert leases.lease is not None
    assert leases.lease["spec"]["leaseTransitions"] == 1


@pytest.mark.finding("D19")
async def test_a_leader_that_cannot_renew_stops_before_another_begins(leases: Leases) -> None:
    first, second = leases.replica("first"), leases.replica("second")
    await first.acquire()
    began = leases.seconds
    leases.cut_off.add("first")
    await first.hold()
    assert leases.seconds - began <= RENEW_SECONDS + RETRY_SECONDS
    assert leases.seconds - began < LEASE_SECONDS
    assert not await second._renew(), "the Lease has not expired yet"


async def test_a_leader_that_cannot_renew_for_a_moment_goes_on(leases: Leases) -> None:
    first = leases.replica("first")
    await first.acquire()
    holding = asyncio.create_task(first.hold())
    leases.cut_off.add("first")
    await leases.sleep(RENEW_SECONDS / 2)
    await asyncio.sleep(0)
    leases.cut_off.clear()
    before = leases.version
    async with asyncio.timeout(20):
        while leases.version < before + 3:
            await asyncio.sleep(0)
            assert not holding.done()
    holding.cancel()


async def test_a_leader_whose_lease_another_one_has_taken_stops(leases: Leases) -> None:
    first = leases.replica("first")
    await first.acquire()
    assert leases.lease is not None
    leases.lease["spec"]["holderIdentity"] = "second"
    leases.lease["metadata"]["resourceVersion"] = "99"
    began = leases.seconds
    await first.hold()
    assert leases.seconds - began == RETRY_SECONDS
    assert leases.holder == "second"


async def test_of_two_candidates_for_an_expired_lease_one_succeeds(leases: Leases) -> None:
    await leases.replica("dead").acquire()
    first, second = leases.replica("first"), leases.replica("second")
    for one in (first, second):
        assert not await one._renew()
    await leases.sleep(LEASE_SECONDS + 1)
    assert sum(await asyncio.gather(first._renew(), second._renew())) == 1


async def test_a_leader_that_is_started_again_goes_on_at_once(leases: Leases) -> None:
    await leases.replica("first").acquire()
    assert await leases.replica("first")._renew()


async def test_a_leader_that_ends_hands_over_at_once(leases: Leases) -> None:
    first, second = leases.replica("first"), leases.replica("second")
    await first.acquire()
    await first.release()
    assert await second._renew()
    await first.release()
    assert leases.holder == "second", "only one's own Lease is given back"
