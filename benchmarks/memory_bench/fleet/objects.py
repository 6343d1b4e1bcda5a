"""Measures many MemoryIndex objects of which some change at once, on a real cluster."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import closing
from typing import TypeAlias

import psutil

from devcluster.node.configs import OPERATOR_USER
from memory_bench.fleet.results import ChangeResult
from memory_bench.fleet.store import Say
from memory_bench.fleet.usage import between, snapshot
from memory_bench.operator.scale.hollow_node import hollow_node
from memory_bench.operator.scale.measure import settle
from memory_bench.operator.scale.population import Member, Population
from tests.support.cluster.api import INDEXES, Api, api_of
from tests.support.cluster.audit import AuditTail
from tests.support.cluster.platform import running_platform

Generation: TypeAlias = tuple[str, str, int]
"""The namespace, the name and a generation of an object."""

_CHANGED_SECONDS = 300.0
_PARTS = {  # by the program, which is the first word of a command line, or the second after an interpreter
    "operator": "memory-operator",
    "API server": "kube-apiserver",
    "etcd": "etcd",
    "controllers": "kube-controller-manager",
    "scheduler": "kube-scheduler",
    "kubelet": "kubelet",
    "Postgres": "postgres",
}


async def measure_objects(objects: int, changed: int, say: Say) -> ChangeResult:
    """Create `objects` MemoryIndex objects, change `changed` of them at once, and return how long that took.

    A change edits the spec in a way that leaves nothing to do in the database. The pods of the objects are scheduled to
    a node without a machine, which only reports them as running, since two processors could not run hundreds.
    """
    with running_platform() as platform:
        async with api_of(platform.cluster) as api:
            population = Population(platform, api)
            await asyncio.to_thread(population.prepare)
            async with hollow_node(api, platform.cluster.nodes()) as node:
                await node.open()
                say(f"creating {objects} objects")
                await population.grow(objects)
                say("waiting until the operator has nothing left to do")
                with closing(AuditTail(platform.cluster.audit_log, OPERATOR_USER)) as tail:
                    await settle(tail)
                say(f"changing {changed} objects at once")
                return await _change(population, changed)


async def _change(population: Population, changed: int) -> ChangeResult:
    members = population.members
    chosen = members[:: max(1, len(members) // changed)][:changed]
    parts = _processes()
    observed: dict[Generation, float] = {}
    watching = asyncio.create_task(_observe(population.api, observed))
    before = snapshot(parts)
    try:
        async with asyncio.timeout(_CHANGED_SECONDS):
            edits = await asyncio.gather(*(_edit(population, member) for member in chosen))
            while not all(edit in observed for edit, _ in edits):
                if watching.done():
                    watching.result()
                await asyncio.sleep(0.01)
    finally:
        watching.cancel()
    seconds = tuple(max(0.0, observed[edit] - at) for edit, at in edits)
    return ChangeResult(len(members), seconds, between(before, snapshot(parts)))


async def _edit(population: Population, member: Member) -> tuple[Generation, float]:
    """Change an object; return its new generation, and the time at which the API server had accepted it."""
    spec = {"database": {"extension": {"minimumVersion": f"0.7.{next(population.edits)}"}}}
    edited = await population.api.patch(member.path, {"spec": spec})
    return (member.namespace, member.name, edited["metadata"]["generation"]), time.monotonic()


async def _observe(api: Api, observed: dict[Generation, float]) -> None:
    """Note when the status of each object first names each generation."""
    while True:  # the server ends a watch now and then
        async for _, item in api.watch(f"{INDEXES}/memoryindexes"):
            generation = (item.get("status") or {}).get("observedGeneration", -1)
            of = (item["metadata"]["namespace"], item["metadata"]["name"], generation)
            observed.setdefault(of, time.monotonic())


def _processes() -> dict[str, int]:
    """Return the process ids of the cluster's parts; a part that runs on another machine is left out."""
    found: dict[str, int] = {}
    for process in psutil.process_iter(["cmdline"]):
        for part, ending in _PARTS.items():
            if part not in found and _runs(process.info["cmdline"] or (), ending):
                found[part] = process.pid
    return found


def _runs(arguments: Sequence[str], ending: str) -> bool:
    return any(argument.rpartition("/")[2] == ending for argument in arguments[:2])
