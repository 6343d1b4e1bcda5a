"""Explains why an index is not ready: conditions, pods, and the last log lines of unhealthy pods.

Our programs never log memory text, so all of their log lines may be shown.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from devcluster.cluster import Cluster
from devcluster.demo import follow
from devcluster.errors import CommandError

LOG_LINES = "8"
OPERATOR_NAMESPACE = "memory-index-system"


def describe_index(cluster: Cluster, namespace: str, index: Mapping[str, Any]) -> str:
    """Describe the conditions of a MemoryIndex, the pods of its namespace, and the last log lines of the operator."""
    seen = follow.view(index)
    conditions = ((kind, seen.condition(kind)) for kind in (*follow.CONDITIONS, "Stalled"))
    described = [f"  {kind}={now.status} {now.reason} {now.message}".rstrip() for kind, now in conditions]
    operator = _kubectl(cluster, "-n", OPERATOR_NAMESPACE, "logs", "deploy/memory-operator", "--tail", LOG_LINES)
    return "\n".join(
        ["Conditions:", *described, describe_pods(cluster, namespace), "Last lines of the operator:", operator]
    )


def describe_pods(cluster: Cluster, namespace: str) -> str:
    """Describe the pods of a namespace, with the last log lines of the unhealthy pods."""
    return "\n".join(_pods(cluster, namespace))


def _pods(cluster: Cluster, namespace: str) -> Iterator[str]:
    yield f"Pods of {namespace}:"
    yield _kubectl(cluster, "-n", namespace, "get", "pods", "-o", "wide")
    pods = orjson.loads(_kubectl(cluster, "-n", namespace, "get", "pods", "-o", "json"))
    for name in unhealthy_pods(pods):
        yield f"Last events of {name}:"
        yield _kubectl(cluster, "-n", namespace, "events", "--for", f"pod/{name}", "--types=Warning")
        for option in ("--previous=false", "--previous"):
            yield f"Last lines of {name} ({option}):"
            yield _kubectl(cluster, "-n", namespace, "logs", name, "--all-containers", "--tail", LOG_LINES, option)


def unhealthy_pods(pods: Mapping[str, Any]) -> list[str]:
    """Return the names of the pods that are neither ready nor completed."""
    return [pod["metadata"]["name"] for pod in pods.get("items", ()) if not _is_well(pod.get("status") or {})]


def _is_well(status: Mapping[str, Any]) -> bool:
    if status.get("phase") == "Succeeded":
        return True
    containers = status.get("containerStatuses") or ()
    return bool(containers) and all(container.get("ready") for container in containers)


def _kubectl(cluster: Cluster, *arguments: str) -> str:
    try:
        return cluster.kubectl(*arguments).rstrip()
    except CommandError as error:
        return "{}" if "json" in arguments else f"  ({error.message})"
