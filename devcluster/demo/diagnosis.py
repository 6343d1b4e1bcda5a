"""Why it is not ready: conditions, pods, and the last words of whatever failed.

Our programs never log memory text, so their logs may be shown whole.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from devcluster.cluster import Cluster
from devcluster.demo import follow
from devcluster.errors import CommandError

LOG_LINES = "8"
OPERATOR_NAMESPACE = "memory-index-system"


def diagnose(cluster: Cluster, namespace: str, index: Mapping[str, Any]) -> str:
    """Everything a person would look up first, in that order."""
    return "\n".join(_sections(cluster, namespace, index))


def _sections(cluster: Cluster, namespace: str, index: Mapping[str, Any]) -> Iterator[str]:
    seen = follow.view(index)
    yield "Conditions:"
    for kind in (*follow.CONDITIONS, "Stalled"):
        now = seen.condition(kind)
        yield f"  {kind}={now.status} {now.reason} {now.message}".rstrip()
    for where in (namespace, OPERATOR_NAMESPACE):
        yield f"Pods of {where}:"
        yield _ask(cluster, "-n", where, "get", "pods", "-o", "wide")
    pods = orjson.loads(_ask(cluster, "-n", namespace, "get", "pods", "-o", "json") or '{"items": []}')
    for name in troubled(pods):
        yield f"Last lines of {name}:"
        yield _ask(cluster, "-n", namespace, "logs", name, "--all-containers", "--tail", LOG_LINES)
    yield "Last lines of the operator:"
    yield _ask(cluster, "-n", OPERATOR_NAMESPACE, "logs", "deploy/memory-operator", "--tail", LOG_LINES)


def troubled(pods: Mapping[str, Any]) -> list[str]:
    """The pods that neither run well nor have done their work."""
    return [pod["metadata"]["name"] for pod in pods["items"] if not _is_well(pod.get("status") or {})]


def _is_well(status: Mapping[str, Any]) -> bool:
    if status.get("phase") == "Succeeded":
        return True
    containers = status.get("containerStatuses") or ()
    return bool(containers) and all(container.get("ready") for container in containers)


def _ask(cluster: Cluster, *arguments: str) -> str:
    try:
        return cluster.kubectl(*arguments).rstrip()
    except CommandError as error:
        return f"  ({error.message})"
