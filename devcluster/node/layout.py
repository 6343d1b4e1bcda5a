"""Where the files of one cluster lie, seen from outside and from inside its namespaces.

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
        """Everything that ends with the cluster."""
        return self.root / "data"

    @property
    def logs(self) -> Path:
        """What is kept after the end."""
        return self.root / "logs"

    @property
    def audit_log(self) -> Path:
        """The API server's record of writes."""
        return self.logs / "audit.log"

    @property
    def events(self) -> Path:
        """Progress of the start, one JSON object a line, written by init."""
        return self.logs / "events.jsonl"

    @property
    def lock(self) -> Path:
        """Held for as long as anything of the cluster is left."""
        return self.root / "lock"

    @property
    def plan(self) -> Path:
        """What keeper and init have to do."""
        return self.data / "plan.json"

    @property
    def record(self) -> Path:
        """Process ids and the port, written by the keeper."""
        return self.data / "record.json"

    @property
    def kubeconfig(self) -> Path:
        """For the host."""
        return self.root / "kubeconfig"

    @property
    def pki(self) -> Path:
        """Keys and certificates."""
        return self.data / "pki"

    @property
    def config(self) -> Path:
        """Configuration files of the components."""
        return self.data / "config"

    def internal_kubeconfig(self, who: str) -> Path:
        """For a component or a person inside the namespaces."""
        return self.config / f"{who}.kubeconfig"

    @property
    def volumes(self) -> Path:
        """Directories of the prepared persistent volumes."""
        return self.data / "volumes"


@dataclass(frozen=True)
class Plan:
    """What a cluster is made of; travels to keeper and init as JSON."""

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
        """The control group of the node of that name."""
        return f"memory-index-{name}"

    def write(self, path: Path) -> None:
        """Save for keeper and init."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "Plan":
        """Load what `write` saved."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))
