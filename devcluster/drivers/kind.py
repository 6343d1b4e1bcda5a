"""The `kind` driver: Kubernetes in Docker or Podman containers, by the program of that name."""

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
    """A cluster made by kind."""

    driver = DriverName.KIND
    postgres_image = versions.PUBLIC_POSTGRES_IMAGE

    def __init__(
        self, name: str, kubeconfig: Path, *, kubectl: str, helm: str, owner: "KindDriver | None" = None
    ) -> None:
        super().__init__(name, kubeconfig, kubectl=kubectl, helm=helm)
        self._owner = owner

    def load(self, archive: Path) -> None:
        """Import the images of an archive into the nodes."""
        processes.run(["kind", "load", "image-archive", archive, "--name", self.name])

    def exec_command(self, argv: Sequence[str]) -> list[str]:
        """Refuse: the nodes are containers that lack this machine's programs."""
        raise UnsupportedError(
            f"{argv[0]} cannot run inside the network of a kind cluster",
            remedy="use kubectl port-forward, or the node driver (DEVCLUSTER_DRIVER=node)",
        )

    def close(self) -> None:
        """Delete the cluster if it is bound to this process."""
        if self._owner is not None:
            self._owner.down(self.name)
            self._owner = None


class KindDriver(Driver):
    """The driver that runs kind."""

    name = DriverName.KIND
    title = "kind, with a container engine that answers"

    def __init__(self, settings: Settings, programs: Programs) -> None:
        self._settings = settings
        self._programs = programs

    def problems(self) -> tuple[Problem, ...]:
        """List what is missing on this machine."""
        return preflight.kind_problems(
            has_kind=processes.exists("kind"),
            engine_answers=any(map(preflight.engine_answers, preflight.ENGINES)),
            clients=preflight.client_problems(self._programs.available("kubectl"), self._programs.available("helm")),
        )

    def prepare(self, reporter: Reporter) -> None:
        """Do nothing: nothing has to be built."""

    def up(self, name: str, reporter: Reporter, *, attached: bool) -> Cluster:
        """Create a cluster; one that is bound to this process is deleted at its ordinary end."""
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
        """Find the cluster of a name, if there is one."""
        return self._cluster(name, owner=None) if name in self._names() else None

    def down(self, name: str) -> bool:
        """Delete a cluster."""
        if name not in self._names():
            return False
        processes.run(["kind", "delete", "cluster", "--name", name, "--kubeconfig", self._kubeconfig(name)])
        self._kubeconfig(name).unlink(missing_ok=True)
        return True

    def states(self) -> list[ClusterState]:
        """List all clusters that kind knows."""
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
