"""The `current` driver, which uses the cluster of the present kubeconfig. It starts and ends no cluster."""

import os
from collections.abc import Sequence
from pathlib import Path

from devcluster import kubeconfig, preflight
from devcluster.building import versions
from devcluster.building.programs import Programs
from devcluster.cluster import Cluster
from devcluster.drivers.base import ClusterState, Driver
from devcluster.errors import DevclusterError, UnsupportedError
from devcluster.preflight import Problem
from devcluster.progress import Reporter
from devcluster.settings import DriverName


class CurrentCluster(Cluster):
    """The cluster of the present kubeconfig, which devcluster neither starts nor ends."""

    driver = DriverName.CURRENT
    postgres_image = versions.PUBLIC_POSTGRES_IMAGE

    def load(self, archive: Path) -> None:
        """Raise an error, because this driver cannot reach the nodes."""
        raise UnsupportedError(
            f"{archive.name} cannot be loaded into the cluster of context {self.name}",
            remedy="push the image to a registry that the cluster pulls from, and set the chart's image values",
        )

    def exec_command(self, argv: Sequence[str]) -> list[str]:
        """Raise an error, because this driver cannot reach the cluster's network."""
        raise UnsupportedError(
            f"{argv[0]} cannot run inside the network of {self.name}", remedy="use kubectl port-forward"
        )


class CurrentDriver(Driver):
    """The driver that uses the cluster of the kubeconfig's current context."""

    name = DriverName.CURRENT
    title = "the cluster of the present kubeconfig"

    def __init__(self, programs: Programs) -> None:
        self._programs = programs

    def problems(self) -> tuple[Problem, ...]:
        """Return what is missing on this machine: kubectl, helm or a kubeconfig."""
        problems = list(
            preflight.client_problems(self._programs.available("kubectl"), self._programs.available("helm"))
        )
        if not self._path().exists():
            problems.append(
                Problem(f"there is no kubeconfig at {self._path()}", "set KUBECONFIG to your cluster's file")
            )
        return tuple(problems)

    def prepare(self, reporter: Reporter) -> None:
        """Do nothing: this driver needs no builds."""

    def up(self, name: str, reporter: Reporter, *, attached: bool) -> Cluster:  # noqa: ARG002 - the context names it
        """Check that the cluster's API server answers, and return the cluster."""
        preflight.check(self.problems(), "the current driver")
        cluster = self._cluster()
        with reporter.step(f"Reach the cluster of context {cluster.name}"):
            cluster.kubectl("version", "--request-timeout=15s")
        return cluster

    def find(self, name: str) -> Cluster | None:  # noqa: ARG002 - there is only one
        """Return the cluster of the present kubeconfig, whatever `name` is.

        The result is None if kubectl, helm or the kubeconfig is missing.
        """
        return self._cluster() if not self.problems() else None

    def down(self, name: str) -> bool:
        """Raise an error: devcluster did not start this cluster."""
        raise UnsupportedError(
            f"{name} was not started by devcluster and is left running",
            remedy="remove what you installed with helm uninstall",
        )

    def states(self) -> list[ClusterState]:
        """Return the cluster of the present kubeconfig, or an empty list if there is no kubeconfig."""
        try:
            context = kubeconfig.current_context(self._path())
        except DevclusterError:
            return []
        return [ClusterState(context, self.name, "configured", f"KUBECONFIG={self._path()}")]

    def _cluster(self) -> CurrentCluster:
        path = self._path()
        return CurrentCluster(
            kubeconfig.current_context(path),
            path,
            kubectl=self._programs.find("kubectl"),
            helm=self._programs.find("helm"),
        )

    @staticmethod
    def _path() -> Path:
        configured = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
        return Path(configured) if configured else Path.home() / ".kube" / "config"
