"""The interface of a driver, and the choice between them."""

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
    """One cluster in the output of `status`."""

    name: str
    driver: DriverName
    state: str
    detail: str = ""


class Driver(ABC):
    """A driver: it makes, finds and ends clusters of one kind."""

    name: DriverName
    title: str

    @abstractmethod
    def problems(self) -> tuple[Problem, ...]:
        """List what keeps this driver from running here; empty if it can run."""

    @abstractmethod
    def prepare(self, reporter: Reporter) -> None:
        """Build what a start needs and does not find, so that starting takes seconds."""

    @abstractmethod
    def up(self, name: str, reporter: Reporter, *, attached: bool) -> Cluster:
        """Start a cluster; an attached one ends with this process."""

    @abstractmethod
    def find(self, name: str) -> Cluster | None:
        """Find the running cluster of a name, if there is one."""

    @abstractmethod
    def down(self, name: str) -> bool:
        """End a cluster and remove what it leaves; return False if there was none."""

    @abstractmethod
    def states(self) -> list[ClusterState]:
        """List the clusters of this kind."""


@dataclass(frozen=True)
class Choice:
    """A driver and the reason why it was chosen."""

    driver: Driver
    reason: str


def choose(drivers: Sequence[Driver], wanted: DriverName | None) -> Choice:
    """Choose the requested driver, else the first that can run here.

    `current` is never taken by itself: nobody wants a demo in whatever cluster their kubeconfig points to.
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
