"""Paths of the files of one cluster, from outside and from inside its namespaces.

Only the standard library is imported here: keeper and init are to be small and to start at once.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

INSIDE = Path("/run/devcluster")
NODE_NAME = "node1"
NODE_ADDRESS = "10.244.0.1"
POD_SUBNET = "10.244.0.0/24"
CLUSTER_CIDR = "10.244.0.0/16"
FIRST_POD_ADDRESS = "10.244.0.10"
SERVICE_CIDR = "10.96.0.0/16"
API_SERVICE_ADDRESS = "10.96.0.1"
DNS_SERVICE_ADDRESS = "10.96.0.10"
API_PORT = 6443
CONTAINERD_SOCKET = Path("/run/containerd.sock")


@dataclass(frozen=True)
class Layout:
    """Paths below one root: the state directory outside, `INSIDE` inside."""

    root: Path

    @property
    def data(self) -> Path:
        """Directory that is removed with the cluster."""
        return self.root / "data"

    @property
    def logs(self) -> Path:
        """Directory that is kept after the end."""
        return self.root / "logs"

    @property
    def audit_log(self) -> Path:
        """Path of the API server's audit log."""
        return self.logs / "audit.log"

    @property
    def events(self) -> Path:
        """Path of the start's events, which init writes, one JSON object per line."""
        return self.logs / "events.jsonl"

    @property
    def lock(self) -> Path:
        """Path of the lock that is held while anything of the cluster is left."""
        return self.root / "lock"

    @property
    def plan(self) -> Path:
        """Path of the plan for keeper and init."""
        return self.data / "plan.json"

    @property
    def record(self) -> Path:
        """Path of the keeper's record of process ids and the port."""
        return self.data / "record.json"

    @property
    def kubeconfig(self) -> Path:
        """Path of the kubeconfig for the host."""
        return self.root / "kubeconfig"

    @property
    def pki(self) -> Path:
        """Directory of keys and certificates."""
        return self.data / "pki"

    @property
    def config(self) -> Path:
        """Directory of the components' configuration files."""
        return self.data / "config"

    def internal_kubeconfig(self, who: str) -> Path:
        """Return the path of a user's kubeconfig for use inside the namespaces."""
        return self.config / f"{who}.kubeconfig"

    @property
    def volumes(self) -> Path:
        """Directory of the prepared persistent volumes."""
        return self.data / "volumes"


@dataclass(frozen=True)
class Plan:
    """Properties of a cluster, which keeper and init read as JSON."""

    name: str
    root: str
    programs: dict[str, str]
    images: dict[str, str]
    volumes: int
    pause_image: str
    ready_seconds: float
    parent_descriptor: int | None
    lock_descriptor: int
    listener_descriptor: int

    @property
    def cgroup(self) -> str:
        """Name of the node's own control group, so that clusters do not share one."""
        return self.cgroup_of(self.name)

    @staticmethod
    def cgroup_of(name: str) -> str:
        """Return the control group of a node."""
        return f"memory-index-{name}"

    def write(self, path: Path) -> None:
        """Save the plan for keeper and init."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "Plan":
        """Load a plan that `write` saved."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))
