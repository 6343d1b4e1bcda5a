"""Measure what one hostile tenant costs another: delays of edits, pauses of the operator's event loop, restarts.

The honest tenant's object is edited again and again, before and while the hostile tenant gives its inputs. An edit
takes until the status has observed it. The delay is by how much longer nine of ten edits take at most beside the
hostile tenant; the longest edit of each group of inputs is in the details, since it also depends on the machine.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import quantiles

from devcluster.install import OPERATOR_NAMESPACE
from tests.support.cluster.api import INDEXES, Api
from tests.support.cluster.hostile.author import operator_starts, starts_between
from tests.support.cluster.hostile.inputs import GROUPS, Group, give, start_server
from tests.support.cluster.manifests import EMBEDDER_URL
from tests.support.cluster.memories import rows
from tests.support.cluster.platform import Platform
from tests.support.cluster.tenants import INDEX, Tenant

_EDITS_BEFORE = 15
_PAUSE_SECONDS = 0.7  # between two edits
_POLL_SECONDS = 0.02
_LONGEST_SECONDS = 60.0
_WHAT = ("pause", "busy")
_LOOP = "memory_operator_event_loop_{}_seconds "  # of each of them
_METRICS_PORT = 9090


@dataclass(frozen=True)
class Harm:
    """What a hostile tenant has done to others.

    The event loop pauses while something of the operator keeps it, which `longest_loop_busy_ms` counts as processor
    time, and while the pods that the inputs start have the processor.
    """

    inputs: int
    longest_loop_pause_ms: float
    longest_loop_busy_ms: float
    other_tenants_delay_s: float
    restarts: int


class Honest:
    """The tenant whose object is edited."""

    def __init__(self, api: Api, tenant: Tenant) -> None:
        self._api = api
        self._path = f"{INDEXES}/namespaces/{tenant.name}/memoryindexes/{INDEX}"
        self._edits = 0

    async def edit(self) -> float:
        """Edit the object; return the seconds until its status has observed the edit.

        The edit only changes the minimum version of pgvector, always to a version older than the installed one.
        """
        self._edits += 1
        began = time.monotonic()
        spec = {"database": {"extension": {"minimumVersion": f"0.7.{self._edits}"}}}
        wanted = (await self._api.patch(self._path, {"spec": spec}))["metadata"]["generation"]
        while time.monotonic() - began < _LONGEST_SECONDS:
            found = await self._api.get(self._path)
            if found.get("status", {}).get("observedGeneration", -1) >= wanted:
                break
            await asyncio.sleep(_POLL_SECONDS)
        return time.monotonic() - began

    async def several(self, edits: int) -> list[float]:
        """Edit the object so many times; return the seconds of each edit."""
        found = []
        for _ in range(edits):
            found.append(await self.edit())
            await asyncio.sleep(_PAUSE_SECONDS)
        return found


async def measure_harm(platform: Platform, api: Api, say: Callable[[str], None]) -> tuple[Harm, dict[str, float]]:
    """Let a hostile tenant give all its inputs beside an honest one, and return what that does to others.

    The second value has the longest edit without the hostile tenant and beside each group of its inputs, in seconds,
    and the longest pause and processor time of the event loop up to the end of each group, in milliseconds.
    """
    honest, hostile = (Tenant(platform.postgres, name, platform.image) for name in ("honest", "hostile-tenant"))
    with ExitStack() as stack:
        for tenant in (honest, hostile):
            stack.callback(tenant.remove)
            tenant.create()
        say("preparing both tenants")
        await asyncio.to_thread(prepare, honest)
        await asyncio.to_thread(prepare, hostile)
        await asyncio.to_thread(start_server, hostile)
        other, before = Honest(api, honest), operator_starts(platform.cluster)
        say("the honest tenant alone")
        edits = {"alone": await other.several(_EDITS_BEFORE)}
        loop: dict[tuple[str, str], float] = {}
        for name, group in GROUPS.items():
            say(name)
            edits[name] = []
            giving = asyncio.create_task(asyncio.to_thread(give_all, hostile, group))
            ends = time.monotonic() + group.seconds
            while not giving.done() or time.monotonic() < ends:
                edits[name].append(await other.edit())
                for what in _WHAT:
                    loop[name, what] = await longest_of_loop(what, platform, api)
                await asyncio.sleep(_PAUSE_SECONDS)
            await giving
        after = operator_starts(platform.cluster)
    alone = edits.pop("alone")
    beside = [one for found in edits.values() for one in found]
    longest = {what: max(round(1000 * loop[name, what], 1) for name in GROUPS) for what in _WHAT}
    harm = Harm(
        inputs=sum(len(group.inputs) for group in GROUPS.values()),
        longest_loop_pause_ms=longest["pause"],
        longest_loop_busy_ms=longest["busy"],
        other_tenants_delay_s=round(max(0.0, _of_nine_in_ten(beside) - _of_nine_in_ten(alone)), 2),
        restarts=starts_between(before, after),
    )
    details = {name: round(max(found), 2) for name, found in {"alone": alone, **edits}.items()}
    return harm, details | {f"{name} {what} ms": round(1000 * found, 1) for (name, what), found in loop.items()}


def prepare(tenant: Tenant) -> None:
    """Give the tenant a table and an object that is Ready."""
    tenant.store(rows(12))
    tenant.apply_index(embedder={"external": {"url": EMBEDDER_URL}})
    tenant.wait_ready()


def give_all(tenant: Tenant, group: Group) -> None:
    """Give all inputs of a group."""
    for write in group.inputs.values():
        give(tenant, write)


async def longest_of_loop(what: str, platform: Platform, api: Api) -> float:
    """Return the longest pause or processor time of the event loop, in seconds, that the operator's pods report."""
    longest, metric = 0.0, _LOOP.format(what)
    for pod in platform.operator_pods():
        page = await api.text(f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/pods/{pod}:{_METRICS_PORT}/proxy/metrics")
        lines = [line.removeprefix(metric) for line in page.splitlines() if line.startswith(metric)]
        longest = max([longest, *map(float, lines)])
    return longest


def _of_nine_in_ten(edits: list[float]) -> float:
    return quantiles(edits, n=10)[-1]
