"""The paths of one cluster's files, seen from outside and from inside its namespaces.

Only the standard library is imported, so that the keeper and init processes are small and start at once.
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
# As this client the API server hands requests on to API servers of others, such as those with an autoscaler's metrics,
# and names who sent them. No other client of that authority may.
FRONT_PROXY = "front-proxy-client"


@dataclass(frozen=True)
class Layout:
    """The paths below `root`, which is the state directory outside the namespaces and `INSIDE` inside them."""

    root: Path

    @property
    def data(self) -> Path:
        """Directory of everything that is removed when the cluster ends."""
        return self.root / "data"

    @property
    def logs(self) -> Path:
        """Directory of logs, which are kept when the cluster ends."""
        return self.root / "logs"

    @property
    def audit_log(self) -> Path:
        """Path of the Kubernetes API server's audit log."""
        return self.logs / "audit.log"

    @property
    def events(self) -> Path:
        """Path of the events of the node's start, one JSON object per line."""
        return self.logs / "events.jsonl"

    @property
    def lock(self) -> Path:
        """Path of the lock file, whose lock is held as long as any process of the cluster lives."""
        return self.root / "lock"

    @property
    def plan(self) -> Path:
        """Path of the cluster's `Plan` as JSON."""
        return self.data / "plan.json"

    @property
    def record(self) -> Path:
        """Path of the JSON file with the process ids of the keeper and the init process."""
        return self.data / "record.json"

    @property
    def kubeconfig(self) -> Path:
        """Path of the kubeconfig for use on the host."""
        return self.root / "kubeconfig"

    @property
    def pki(self) -> Path:
        """Directory of the cluster's keys and certificates."""
        return self.data / "pki"

    @property
    def config(self) -> Path:
        """Directory of the components' configuration files."""
        return self.data / "config"

    @property
    def registries(self) -> Path:
        """Directory in which containerd looks, at each pull, how to reach a registry, by the registry's host."""
        return self.config / "registries"

    def internal_kubeconfig(self, who: str) -> Path:
        """Return the path of the kubeconfig that the component `who` uses inside the node's network namespace."""
        return self.config / f"{who}.kubeconfig"

    @property
    def volumes(self) -> Path:
        """Directory that contains a directory for each PersistentVolume."""
        return self.data / "volumes"


@dataclass(frozen=True)
class Plan:
    """The parameters of a cluster, which the keeper and init processes read from a JSON file."""

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
        """Name of the cluster's control group, which no other cluster uses."""
        return self.cgroup_of(self.name)

    @staticmethod
    def cgroup_of(name: str) -> str:
        """Return the name of the control group of the cluster `name`."""
        return f"memory-index-{name}"

    def write(self, path: Path) -> None:
        """Write the plan to a JSON file."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "Plan":
        """Read a plan from a JSON file that `write` wrote."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))
