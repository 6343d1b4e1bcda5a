"""The `kind` driver, which runs Kubernetes in Docker or Podman containers with the program kind."""

from collections.abc import Sequence
from pathlib import Path

from devcluster import preflight, processes
from devcluster.building import versions
from devcluster.building.programs import Programs
from devcluster.cluster import Cluster
from devcluster.drivers.base import ClusterState, Driver
from devcluster.errors import CommandError, UnsupportedError
from devcluster.preflight import Problem
from devcluster.progress import Reporter
from devcluster.settings import DriverName, Settings

CONFIGURATION = Path(__file__).resolve().parents[1] / "kind.yaml"


class KindCluster(Cluster):
    """A cluster that the program kind created."""

    driver = DriverName.KIND
    postgres_image = versions.PUBLIC_POSTGRES_IMAGE

    def __init__(
        self, name: str, kubeconfig: Path, *, kubectl: str, helm: str, owner: "KindDriver | None" = None
    ) -> None:
        super().__init__(name, kubeconfig, kubectl=kubectl, helm=helm)
        self._owner = owner

    def load(self, archive: Path) -> None:
        """Import all images of an image archive into the nodes."""
        processes.run(["kind", "load", "image-archive", archive, "--name", self.name])

    def exec_command(self, argv: Sequence[str]) -> list[str]:
        """Raise an error, because kind's nodes are containers that lack this machine's programs."""
        raise UnsupportedError(
            f"{argv[0]} cannot run inside the network of a kind cluster",
            remedy="use kubectl port-forward, or the node driver (DEVCLUSTER_DRIVER=node)",
        )

    def close(self) -> None:
        """Delete the cluster if it was started for this process only."""
        if self._owner is not None:
            self._owner.down(self.name)
            self._owner = None


class KindDriver(Driver):
    """The driver that creates clusters with the program kind."""

    name = DriverName.KIND
    title = "kind, with a container engine that answers"

    def __init__(self, settings: Settings, programs: Programs) -> None:
        self._settings = settings
        self._programs = programs

    def problems(self) -> tuple[Problem, ...]:
        """Return what is missing on this machine: kind, a container engine, kubectl or helm."""
        return preflight.kind_problems(
            has_kind=processes.exists("kind"),
            engine_answers=any(map(preflight.engine_answers, preflight.ENGINES)),
            clients=preflight.client_problems(self._programs.available("kubectl"), self._programs.available("helm")),
        )

    def prepare(self, reporter: Reporter) -> None:
        """Do nothing: this driver needs no builds."""

    def up(self, name: str, reporter: Reporter, *, attached: bool) -> Cluster:
        """Create a cluster; with `attached`, closing the returned cluster deletes it."""
        preflight.check(self.problems(), "the kind driver")
        kubeconfig = self._kubeconfig(name)
        kubeconfig.parent.mkdir(parents=True, exist_ok=True)
        command = [
            "kind",
            "create",
            "cluster",
            "--name",
            name,
            "--config",
            CONFIGURATION,
            "--kubeconfig",
            kubeconfig,
            "--wait",
            "120s",
        ]
        with reporter.step(f"Create kind cluster {name}") as step:
            processes.stream(command, step.note)
        return self._cluster(name, owner=self if attached else None)

    def find(self, name: str) -> Cluster | None:
        """Return the cluster of this name, or None if there is none."""
        return self._cluster(name, owner=None) if name in self._names() else None

    def down(self, name: str) -> bool:
        """Delete the cluster of this name; return False if there was none."""
        if name not in self._names():
            return False
        processes.run(["kind", "delete", "cluster", "--name", name, "--kubeconfig", self._kubeconfig(name)])
        self._kubeconfig(name).unlink(missing_ok=True)
        return True

    def states(self) -> list[ClusterState]:
        """Return the states of all clusters that kind knows."""
        return [
            ClusterState(name, self.name, "running", f"KUBECONFIG={self._kubeconfig(name)}") for name in self._names()
        ]

    def _names(self) -> list[str]:
        if not processes.exists("kind"):
            return []
        try:
            return processes.run(["kind", "get", "clusters"]).split()
        except CommandError:
            # Without an engine that answers there is no cluster to be seen.
            return []

    def _cluster(self, name: str, owner: "KindDriver | None") -> KindCluster:
        kubectl, helm = self._programs.find("kubectl"), self._programs.find("helm")
        return KindCluster(name, self._kubeconfig(name), kubectl=kubectl, helm=helm, owner=owner)

    def _kubeconfig(self, name: str) -> Path:
        return self._settings.state_dir.parent / "kind" / name / "kubeconfig"
