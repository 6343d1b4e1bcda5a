"""Which driver is taken, and what is said about it."""

import pytest

from devcluster.cluster import Cluster
from devcluster.drivers.base import ClusterState, Driver, choose
from devcluster.errors import DevclusterError
from devcluster.preflight import Problem
from devcluster.progress import Reporter
from devcluster.settings import DriverName


class Fake(Driver):
    def __init__(self, name: DriverName, *problems: str) -> None:
        self.name = name
        self.title = f"title of {name}"
        self._problems = tuple(Problem(what, f"remedy of {what}") for what in problems)

    def problems(self) -> tuple[Problem, ...]:
        return self._problems

    def prepare(self, reporter: Reporter) -> None:
        raise NotImplementedError

    def up(self, name: str, reporter: Reporter, *, attached: bool) -> Cluster:
        raise NotImplementedError

    def find(self, name: str) -> Cluster | None:  # noqa: ARG002 - as the interface has it
        return None

    def down(self, name: str) -> bool:  # noqa: ARG002 - as the interface has it
        return False

    def states(self) -> list[ClusterState]:
        return []


def test_the_first_driver_that_can_run_is_chosen() -> None:
    choice = choose([Fake(DriverName.KIND), Fake(DriverName.NODE)], None)
    assert choice.driver.name == "kind"


def test_the_reason_says_why_an_earlier_driver_was_not_chosen() -> None:
    choice = choose([Fake(DriverName.KIND, "no Docker"), Fake(DriverName.NODE)], None)
    assert choice.driver.name == "node"
    assert "title of node" in choice.reason
    assert "no Docker" in choice.reason


def test_a_requested_driver_is_chosen_even_with_problems() -> None:
    choice = choose([Fake(DriverName.KIND), Fake(DriverName.NODE, "no root")], DriverName.NODE)
    assert choice.driver.name == "node"
    assert choice.reason == "asked for"


def test_the_present_kubeconfig_is_used_only_on_request() -> None:
    drivers = [Fake(DriverName.KIND, "no Docker"), Fake(DriverName.NODE, "no root"), Fake(DriverName.CURRENT)]
    with pytest.raises(DevclusterError) as caught:
        choose(drivers, None)
    assert "no Docker" in str(caught.value)
    assert "no root" in str(caught.value)
    assert "DEVCLUSTER_DRIVER=current" in caught.value.remedy
    assert choose(drivers, DriverName.CURRENT).driver.name == "current"
