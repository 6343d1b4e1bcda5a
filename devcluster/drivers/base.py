"""The interface of a driver, which starts and ends clusters of one kind, and the choice of a driver."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from devcluster.cluster import Cluster
from devcluster.errors import DevclusterError
from devcluster.preflight import Problem
from devcluster.progress import Reporter
from devcluster.settings import DriverName


@dataclass(frozen=True)
class ClusterState:
    """The state of one cluster, which the command `status` shows."""

    name: str
    driver: DriverName
    state: str
    detail: str = ""


class Driver(ABC):
    """The interface of a driver, which starts, finds and ends clusters of one kind."""

    name: DriverName
    title: str

    @abstractmethod
    def problems(self) -> tuple[Problem, ...]:
        """Return what prevents this driver from running on this machine; empty if it can run."""

    @abstractmethod
    def prepare(self, reporter: Reporter) -> None:
        """Build the programs and images that a start needs and that are missing, so that a start takes seconds."""

    @abstractmethod
    def up(self, name: str, reporter: Reporter, *, attached: bool) -> Cluster:
        """Start a cluster; with `attached`, closing the returned cluster ends it."""

    @abstractmethod
    def find(self, name: str) -> Cluster | None:
        """Return the running cluster of this name, or None if there is none."""

    @abstractmethod
    def down(self, name: str) -> bool:
        """End the cluster of this name and remove what it leaves behind; return False if there was none."""

    @abstractmethod
    def states(self) -> list[ClusterState]:
        """Return the states of all clusters of this driver."""


@dataclass(frozen=True)
class Choice:
    """A driver and the reason why it was chosen."""

    driver: Driver
    reason: str


def choose(drivers: Sequence[Driver], wanted: DriverName | None) -> Choice:
    """Return the wanted driver, or by default the first one that can run on this machine.

    The driver `current` is chosen only if it is wanted, because the kubeconfig may point to a cluster that must not be
    changed.
    """
    if wanted is not None:
        return Choice(next(driver for driver in drivers if driver.name == wanted), "asked for")
    refusals: list[str] = []
    for driver in drivers:
        if driver.name == DriverName.CURRENT:
            continue
        problems = driver.problems()
        if not problems:
            why = f"; not {refusals[0]}" if refusals else ""
            return Choice(driver, f"{driver.title}{why}")
        refusals.append(f"{driver.name}: {', '.join(problem.what for problem in problems)}")
    raise DevclusterError(
        "no driver can run a cluster on this machine",
        detail="\n".join(f"  - {refusal}" for refusal in refusals),
        remedy="see `python -m devcluster preflight`, or use your own cluster with DEVCLUSTER_DRIVER=current",
    )
