"""What a cluster of the `node` driver leaves on the machine, read from /proc and /sys."""

from dataclasses import dataclass
from pathlib import Path

from devcluster.node import cgroups, launch
from devcluster.node.layout import Layout, Plan
from devcluster.retrying import until
from devcluster.settings import Settings


@dataclass(frozen=True)
class Traces:
    """A running cluster's identity as the kernel knows it."""

    name: str
    layout: Layout
    keeper: int
    network: str

    def processes(self) -> list[int]:
        """Processes in the cluster's network namespace or with its state directory in their command line."""
        return [pid for pid in _pids() if _network(pid) == self.network or self._names_us(pid)]

    def mounts(self) -> list[str]:
        """Mounts of this process's namespace that lie in the state directory."""
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
        return [line for line in lines if f"{self.layout.root}/" in line]

    def left(self) -> dict[str, object]:
        """Return everything that is left after the end of the cluster."""
        everything: dict[str, object] = {
            "processes": self.processes(),
            "mounts": self.mounts(),
            "control groups": cgroups.existing(Plan.cgroup_of(self.name)),
            "files": [path for path in (self.layout.data, self.layout.kubeconfig) if path.exists()],
        }
        return {what: found for what, found in everything.items() if found}

    def wait_until_ended(self) -> None:
        """Wait until the lock that everything of the cluster holds is free."""
        until(f"{self.name} has ended", lambda: not launch.is_running(self.layout), seconds=120)

    def _names_us(self, pid: int) -> bool:
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        except OSError:
            return False
        return f"{self.layout.root}/" in command


def traces_of(name: str) -> Traces:
    """Collect the traces of a running cluster."""
    layout = Layout(Settings().state_dir / name)
    record = launch.process_ids_of(layout)
    return Traces(name, layout, record["keeper"], _network(record["init"]))


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _network(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/net").readlink())
    except OSError:
        return ""
