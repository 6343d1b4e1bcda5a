"""Finds the processes of a cluster on this machine: those of its pods by the pods' control groups, and its components.

The list of pods is kept from the last time that the API server answered, since it is needed while that does not.
"""

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devcluster.drivers.node import NodeCluster
from devcluster.errors import DevclusterError
from devcluster.node import launch

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Pod:
    """A pod that runs: its namespace, name, uid, address and labels."""

    namespace: str
    name: str
    uid: str
    address: str
    labels: dict[str, str]

    @property
    def component(self) -> str:
        """What the pod is of: `operator`, `embedder`, `sync` and so on, or an empty text."""
        return self.labels.get("app.kubernetes.io/component", "")


@dataclass(frozen=True)
class Usage:
    """What a process holds: memory in MiB, open files, and threads."""

    memory: float
    files: int
    threads: int


class Processes:
    """The processes of one cluster of the `node` driver."""

    def __init__(self, cluster: NodeCluster) -> None:
        self._cluster = cluster
        self._init = launch.process_ids_of(cluster.layout)["init"]
        self._pods: list[Pod] = []

    def pods(self) -> list[Pod]:
        """Return the pods that run, or those that ran when the API server last answered."""
        with suppress(DevclusterError):
            listed: list[dict[str, Any]] = self._cluster.read("/api/v1/pods")["items"]
            self._pods = [
                Pod(
                    item["metadata"]["namespace"],
                    item["metadata"]["name"],
                    item["metadata"]["uid"],
                    item["status"].get("podIP", ""),
                    item["metadata"].get("labels") or {},
                )
                for item in listed
                if item["status"].get("phase") == "Running"
            ]
        return self._pods

    def component(self, name: str) -> list[int]:
        """Return the process of a component of the node, by the name of its program."""
        return [pid for pid in _all() if _parent(pid) == self._init and _arguments(pid)[0].endswith(f"/{name}")]

    def of(self, pod: Pod) -> list[int]:
        """Return the processes of a pod, without the one that only keeps its network."""
        return [pid for pid in _all() if pod.uid in _group(pid) and not _arguments(pid)[0].endswith("/pause")]

    def memory_groups(self, pod: Pod) -> list[Path]:
        """Return the directories of a pod's control group that limit its memory."""
        lines = {line for pid in self.of(pod) for line in _group(pid).splitlines()}
        found = set()
        for line in lines:
            _, controllers, path = line.split(":", 2)
            if "memory" in controllers.split(",") or not controllers:
                root = _CGROUPS / "memory" if controllers else _CGROUPS
                found.add((root / path.strip("/")).parent)
        return [directory for directory in found if directory.is_dir()]

    def usage(self, pod: Pod) -> Usage | None:
        """Return what the processes of a pod hold together, or None if there are none."""
        memory, files, threads = 0, 0, 0
        processes = self.of(pod)
        for pid in processes:
            with suppress(OSError):
                lines = dict(
                    line.split(":", 1) for line in (_PROC / str(pid) / "status").read_text().splitlines() if ":" in line
                )
                memory += int(lines.get("VmRSS", "0 kB").split()[0])
                threads += int(lines["Threads"])
                files += sum(1 for _ in (_PROC / str(pid) / "fd").iterdir())
        return Usage(memory / 1024, files, threads) if processes else None


def send(pids: Sequence[int], number: signal.Signals) -> None:
    """Send a signal to processes; those that have ended are left out."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _all() -> Iterator[int]:
    return (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit())


def _group(pid: int) -> str:
    with suppress(OSError):
        return (_PROC / str(pid) / "cgroup").read_text(encoding="ascii")
    return ""


def _parent(pid: int) -> int:
    with suppress(OSError, IndexError, ValueError):
        return int((_PROC / str(pid) / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
    return 0


def _arguments(pid: int) -> list[str]:
    with suppress(OSError):
        return (_PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
    return [""]
