"""Measures the operator with a growing number of MemoryIndex objects about which nothing is left to do.

Measured are edits, requests, memory, a restart, and two pods of the operator at once.
"""

import asyncio
import re
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from statistics import median
from typing import Any

from devcluster.errors import DevclusterError
from devcluster.install import OPERATOR_NAMESPACE
from devcluster.node.configs import OPERATOR_USER
from memory_bench.operator.scale.hollow_node import HollowNode, hollow_node
from memory_bench.operator.scale.population import Member, Population
from tests.support.cluster.api import INDEXES, Api, ApiError
from tests.support.cluster.audit import AuditTail
from tests.support.cluster.platform import Platform

SIZES = (10, 100, 500)
EDITS = 21
_QUIET_SECONDS = 15.0  # without a write, after which the population counts as settled
_SETTLING_SECONDS = 240.0
_MEASURED_SECONDS = 60.0
_EDIT_SECONDS = 120.0
_PAUSE_SECONDS = 0.7  # between two edits
_RESTART_SECONDS = 300.0
_MEMORY = "import re; print(re.search(r'VmRSS:\\s+(\\d+)', open('/proc/1/status').read())[1])"
_PODS = f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/pods"

Say = Callable[[str], None]


@dataclass(frozen=True)
class Measured:
    """The figures for one number of MemoryIndex objects.

    `created_s` are the seconds from the moment at which the new objects are no longer suspended until all are Ready.
    """

    objects: int
    created_s: float
    edit_p50_s: float
    edit_longest_s: float
    reads_per_min: float
    writes_per_min: float
    rss_mb: float


@dataclass(frozen=True)
class ScaleResult:
    """The figures for each number of objects, for a restart of the operator, and for two pods of the operator at once.

    The restart and the two pods are measured with the largest number of objects.
    """

    sizes: tuple[Measured, ...]
    restart_to_all_seen_s: float
    leaders: int
    hand_over_s: float

    def figures(self) -> dict[str, Any]:
        """Return the headline figures that this part of the benchmark measures."""
        first, last = self.sizes[0], self.sizes[-1]
        return {
            "edit_latency_500_vs_10": round(last.edit_p50_s / first.edit_p50_s, 2),
            "reads_per_min_settled_500": round(last.reads_per_min),
            "writes_per_min_settled": round(max(one.writes_per_min for one in self.sizes)),
            "rss_mb": round(last.rss_mb),
            "restart_to_all_seen_s": round(self.restart_to_all_seen_s, 1),
            "leaders": self.leaders,
        }


async def measure_scale(platform: Platform, api: Api, say: Say, sizes: tuple[int, ...] = SIZES) -> ScaleResult:
    """Create objects up to each of the sizes, and measure the operator at each size; delete the objects afterwards."""
    population = Population(platform, api)
    await asyncio.to_thread(population.prepare)
    async with hollow_node(api, platform.cluster.nodes()) as node:
        measured = []
        await node.open()
        for size in sizes:
            say(f"{size} objects: creating them")
            created = await population.grow(size)
            measured.append(await _measure_size(population, size, created, say))
            say(str(measured[-1]))
        await node.close()
        say(f"{sizes[-1]} objects: the operator is killed")
        restart = await _restart(population)
        say("two operators at once")
        leaders, hand_over = await _two_operators(population, node)
        await node.close()
        await asyncio.to_thread(population.remove)
    return ScaleResult(tuple(measured), restart, leaders, hand_over)


async def _measure_size(population: Population, size: int, created: float, say: Say) -> Measured:
    with closing(AuditTail(population.platform.cluster.audit_log, OPERATOR_USER)) as tail:
        say(f"{size} objects: settling")
        await settle(tail)
        say(f"{size} objects: counting requests for {_MEASURED_SECONDS:.0f} s")
        tail.read()
        began = time.monotonic()
        await asyncio.sleep(_MEASURED_SECONDS)
        requests, minutes = tail.read(), (time.monotonic() - began) / 60
    say(f"{size} objects: {EDITS} edits")
    step = max(1, size // EDITS)
    edits = []
    for number in range(EDITS):
        member = population.members[number * step % size]
        edits.append(await edit_seconds(population, member))
        await asyncio.sleep(_PAUSE_SECONDS)
    return Measured(
        objects=size,
        created_s=round(created, 1),
        edit_p50_s=round(median(edits), 3),
        edit_longest_s=round(max(edits), 3),
        reads_per_min=round(sum(one.reads for one in requests) / minutes, 1),
        writes_per_min=round(sum(one.writes for one in requests) / minutes, 1),
        rss_mb=await asyncio.to_thread(_resident_megabytes, population.platform),
    )


async def settle(tail: AuditTail) -> None:
    """Wait until the operator has written nothing for 15 seconds, but no longer than four minutes."""
    began = quiet_since = time.monotonic()
    while time.monotonic() - quiet_since < _QUIET_SECONDS and time.monotonic() - began < _SETTLING_SECONDS:
        await asyncio.sleep(1)
        if any(request.writes for request in tail.read()):
            quiet_since = time.monotonic()


async def edit_seconds(population: Population, member: Member) -> float:
    """Edit an object, and return the seconds until its status reports the new generation as observed.

    The edit only changes the minimum version of pgvector, always to a version older than the installed one.
    """
    spec = {"database": {"extension": {"minimumVersion": f"0.7.{next(population.edits)}"}}}
    edited = await population.api.patch(member.path, {"spec": spec})
    began = time.monotonic()
    await _observed(population.api, member, edited["metadata"]["generation"])
    return time.monotonic() - began


async def _observed(api: Api, member: Member, generation: int) -> None:
    selector = f"fieldSelector=metadata.name%3D{member.name}"
    async with asyncio.timeout(_EDIT_SECONDS):
        while True:  # the server ends a watch now and then
            async for _, item in api.watch(f"{INDEXES}/namespaces/{member.namespace}/memoryindexes?{selector}"):
                if (item.get("status") or {}).get("observedGeneration", -1) >= generation:
                    return


def _resident_megabytes(platform: Platform) -> float:
    (pod,) = platform.operator_pods()
    kilobytes = platform.cluster.kubectl("-n", OPERATOR_NAMESPACE, "exec", pod, "--", "python", "-c", _MEMORY)
    return round(int(kilobytes) / 1024, 1)


async def _restart(population: Population) -> float:
    """Kill the operator's pod, and return the seconds until the next pod has reconciled every object."""
    api, platform = population.api, population.platform
    (former,) = await asyncio.to_thread(platform.operator_pods)
    began = time.monotonic()
    await api.delete(f"{_PODS}/{former}", grace_seconds=0)
    while (seen := await _objects_seen(api, platform, former)) < len(population.members):
        if time.monotonic() - began > _RESTART_SECONDS:
            raise DevclusterError(f"{seen} of {len(population.members)} objects were seen after the restart")
        await asyncio.sleep(0.5)
    return time.monotonic() - began


async def _objects_seen(api: Api, platform: Platform, former: str) -> int:
    """Return how many objects the pod that replaces the pod `former` has reconciled; 0 if there is no such pod yet."""
    pods = [name for name in await asyncio.to_thread(platform.operator_pods) if name != former]
    if not pods:
        return 0
    try:
        page = await api.text(f"{_PODS}/{pods[0]}:9090/proxy/metrics")
    except ApiError:
        return 0
    lines = re.findall(r"^memory_operator_object_condition\{(.*)\}", page, re.MULTILINE)
    return sum('type="Ready"' in labels for labels in lines)


async def _two_operators(population: Population, node: HollowNode) -> tuple[int, float]:
    """Run two pods of the operator; return how many of them write, and the seconds that a change of leader takes.

    To measure the change, the pod that writes is killed and an object is edited; the time ends when the edit is
    observed.
    """
    api, platform = population.api, population.platform
    await asyncio.to_thread(platform.scale_operator, 2)
    await node.open()
    await asyncio.sleep(_QUIET_SECONDS)
    with closing(AuditTail(platform.cluster.audit_log, OPERATOR_USER)) as tail:
        for member in population.members[: 2 * EDITS]:
            await edit_seconds(population, member)
        writers = {request.pod for request in tail.read() if request.writes}
    await node.close()
    pods = await asyncio.to_thread(platform.operator_pods)
    for pod in writers & set(pods):
        await api.delete(f"{_PODS}/{pod}", grace_seconds=0)
    hand_over = await edit_seconds(population, population.members[-1])
    await asyncio.to_thread(platform.scale_operator, 1)
    return len(writers), round(hand_over, 1)
