"""What is kept of a failed test: descriptions, events and logs of everything it touched."""

from pathlib import Path

from devcluster.cluster import Cluster
from devcluster.errors import DevclusterError

KINDS = "memoryindexes,pods,jobs,deployments,replicasets,services,networkpolicies,databases.postgresql.cnpg.io"


def save(cluster: Cluster, directory: Path, namespaces: tuple[str, ...]) -> None:
    """Write everything below `directory`; a part that cannot be read is left out."""
    directory.mkdir(parents=True, exist_ok=True)
    for namespace in namespaces:
        _write(cluster, directory / f"{namespace}-objects.yaml", "-n", namespace, "get", KINDS, "-o", "yaml")
        _write(cluster, directory / f"{namespace}-describe.txt", "-n", namespace, "describe", KINDS)
        _write(
            cluster, directory / f"{namespace}-events.txt", "-n", namespace, "get", "events", "--sort-by=.lastTimestamp"
        )
        for pod in _kubectl(cluster, "-n", namespace, "get", "pods", "-o", "name").split():
            name = pod.removeprefix("pod/")
            _write(cluster, directory / f"{namespace}-{name}.log", "-n", namespace, "logs", name, "--all-containers")
            previous = _kubectl(cluster, "-n", namespace, "logs", name, "--all-containers", "--previous")
            if previous:
                (directory / f"{namespace}-{name}-previous.log").write_text(previous)


def _write(cluster: Cluster, path: Path, *arguments: str) -> None:
    path.write_text(_kubectl(cluster, *arguments))


def _kubectl(cluster: Cluster, *arguments: str) -> str:
    try:
        return cluster.kubectl(*arguments)
    except DevclusterError:
        return ""
