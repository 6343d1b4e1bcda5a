"""A node without a machine: pods that are scheduled to it are reported as running, although nothing runs.

Therefore a thousand pods can exist on two processors. The scheduler and the controllers of Deployments are those of
Kubernetes; this module only writes what a kubelet would report.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import aiohttp

from tests.support.cluster.api import Api, ApiError, Object

NAME = "hollow"
TAINT = "memory-bench/hollow"
_NODE = f"/api/v1/nodes/{NAME}"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_RENEWAL_SECONDS = 10.0
_CAPACITY = {"cpu": "10000", "memory": "10000Gi", "pods": "10000"}
_ADDRESS = "10.255.255.1"


class HollowNode:
    """A node without a machine, which gets all new pods while it is open and none while it is closed."""

    def __init__(self, api: Api, real_nodes: list[str]) -> None:
        self._api = api
        self._real_nodes = real_nodes

    async def open(self) -> None:
        """Let new pods be scheduled only to this node."""
        await self._api.patch(_NODE, {"spec": {"taints": None}})
        await self._cordon(cordoned=True)

    async def close(self) -> None:
        """Let new pods be scheduled only to the real nodes; pods that are on this node already stay."""
        taints = [{"key": TAINT, "effect": "NoSchedule"}]
        await self._api.patch(_NODE, {"spec": {"taints": taints}})
        await self._cordon(cordoned=False)

    async def _cordon(self, *, cordoned: bool) -> None:
        for name in self._real_nodes:
            await self._api.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": cordoned or None}})


@asynccontextmanager
async def hollow_node(api: Api, real_nodes: list[str]) -> AsyncIterator[HollowNode]:
    """Add a node without a machine for the block, and delete it with its pods afterwards.

    The node is closed at first, so that no pods are scheduled to it.
    """
    node = HollowNode(api, real_nodes)
    await api.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NAME}})
    tasks = [asyncio.create_task(_renew(api)), asyncio.create_task(_report(api))]
    try:
        await node.close()
        yield node
    finally:
        await node.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await api.delete(_NODE)


async def _renew(api: Api) -> None:
    """Report regularly that the node without a machine is alive, as a kubelet does."""
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": NAME}}
    with suppress(ApiError):
        await api.create(_LEASES, lease)
    await api.patch(f"{_NODE}/status", {"status": _node_status()})
    while True:
        spec = {"holderIdentity": NAME, "renewTime": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"}
        with suppress(ApiError, aiohttp.ClientError, TimeoutError):
            await api.patch(f"{_LEASES}/{NAME}", {"spec": {**spec, "leaseDurationSeconds": 40}})
        await asyncio.sleep(_RENEWAL_SECONDS)


async def _report(api: Api) -> None:
    """Report every pod of the node without a machine as ready, and remove deleted pods at once."""
    while True:
        with suppress(ApiError, aiohttp.ClientError, TimeoutError):
            async for kind, pod in api.watch(f"/api/v1/pods?fieldSelector=spec.nodeName={NAME}"):
                if kind in {"ADDED", "MODIFIED"}:
                    with suppress(ApiError):
                        await _report_pod(api, pod)
        await asyncio.sleep(0.2)


async def _report_pod(api: Api, pod: Object) -> None:
    meta = pod["metadata"]
    path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
    if "deletionTimestamp" in meta:
        await api.delete(path, grace_seconds=0)
    elif pod["status"].get("phase") == "Pending":
        await api.patch(f"{path}/status", {"status": _pod_status(pod)})


def _pod_status(pod: Object) -> Object:
    now = _now()
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": now}
        for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    containers = [
        {
            "name": container["name"],
            "image": container["image"],
            "imageID": container["image"],
            "ready": True,
            "started": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": now}},
        }
        for container in pod["spec"]["containers"]
    ]
    return {
        "phase": "Running",
        "startTime": now,
        "podIP": _ADDRESS,
        "podIPs": [{"ip": _ADDRESS}],
        "conditions": conditions,
        "containerStatuses": containers,
    }


def _node_status() -> Object:
    now = _now()
    healthy: dict[str, Any] = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    conditions = [
        {"type": "Ready", "status": "True", "reason": "KubeletReady", **healthy},
        *(
            {"type": kind, "status": "False", "reason": "KubeletHasNoPressure", **healthy}
            for kind in ("MemoryPressure", "DiskPressure", "PIDPressure")
        ),
    ]
    return {"capacity": _CAPACITY, "allocatable": _CAPACITY, "conditions": conditions}


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
