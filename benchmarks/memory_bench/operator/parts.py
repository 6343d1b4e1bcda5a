"""The parts of the operator's benchmark in the order in which they run, and the figures that each part measures."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from devcluster.errors import DevclusterError
from memory_bench.operator.scale.measure import measure_scale
from tests.support.cluster.api import Api
from tests.support.cluster.consent.withdrawals import run_withdrawals
from tests.support.cluster.deletions import CASES, NAMESPACES, delete_cases
from tests.support.cluster.environment.admission import MUTATIONS, run_admission
from tests.support.cluster.environment.copies import SITUATIONS, run_copies
from tests.support.cluster.environment.tls import measure_tls
from tests.support.cluster.faults.run import run_fault_points, run_recoveries
from tests.support.cluster.hostile.objects import HOSTILE, TakenOverError, opened_scene, refuse
from tests.support.cluster.hostile.tenants import measure_harm
from tests.support.cluster.platform import Platform
from tests.support.cluster.situations.run import run_situations

KEYS = (
    "takeovers",
    "hostile",
    "namespaces_deleted",
    "lies",
    "situations",
    "fault_points",
    "fault_points_converged",
    "edit_latency_500_vs_10",
    "reads_per_min_settled_500",
    "writes_per_min_settled",
    "rss_mb",
    "restart_to_all_seen_s",
    "recovery_s",
    "leaders",
    "withdrawals",
    "hostile_tenants",
    "tls",
    "admission",
    "copies",
)


@dataclass(frozen=True)
class Surroundings:
    """What each part of the benchmark receives.

    `api` is a client of the platform's API server. `say` shows what the part does at the moment. `sample` is the
    fraction of the fault points to try, above 0 and at most 1. A fault point is one call of the operator that fails in
    one way.
    """

    platform: Platform
    api: Api
    sample: float
    say: Callable[[str], None]


@dataclass(frozen=True)
class PartResult:
    """The figures that a part of the benchmark has measured, and details for `summary.json`."""

    figures: dict[str, Any]
    details: Any = field(default=None)


async def _scale(given: Surroundings) -> PartResult:
    result = await measure_scale(given.platform, given.api, given.say)
    return PartResult(result.figures(), asdict(result))


async def _hostile(given: Surroundings) -> PartResult:
    found = await asyncio.to_thread(_refuse_all, given)
    takeovers = sum(said.startswith(TakenOverError.__name__) for said in found.values())
    return PartResult({"takeovers": takeovers, "hostile": sum(not said for said in found.values())}, found)


def _refuse_all(given: Surroundings) -> dict[str, str]:
    """Try all hostile objects; return by name what went wrong, or an empty text if the object was refused."""
    found: dict[str, str] = {}
    given.say("preparing the victim")
    with opened_scene(given.platform) as scene:
        for name in HOSTILE:
            given.say(name)
            try:
                refuse(scene, name)
            except (AssertionError, DevclusterError) as error:
                found[name] = f"{type(error).__name__}: {error}"
            else:
                found[name] = ""
    return found


async def _deletions(given: Surroundings) -> PartResult:
    given.say(f"{len(CASES)} cases side by side")
    found = await asyncio.to_thread(delete_cases, given.platform, CASES)
    gone = sum(outcome.gone for case, outcome in found.items() if case in NAMESPACES)
    details = {str(case): asdict(outcome) for case, outcome in found.items()}
    return PartResult({"namespaces_deleted": f"{gone}/{len(NAMESPACES)}"}, details)


async def _situations(given: Surroundings) -> PartResult:
    found = await run_situations(given.platform, given.api, given.say)
    return PartResult({"lies": found["lies"], "situations": found["situations"]}, found)


async def _faults(given: Surroundings) -> PartResult:
    found = await asyncio.to_thread(run_fault_points, given.platform, given.sample, given.say)
    return PartResult({"fault_points": found["points"], "fault_points_converged": found["converged"]}, found)


async def _recovery(given: Surroundings) -> PartResult:
    found = await asyncio.to_thread(run_recoveries, given.platform, given.say)
    return PartResult({"recovery_s": max(found.values())}, found)


async def _withdrawals(given: Surroundings) -> PartResult:
    found = await asyncio.to_thread(run_withdrawals, given.platform, given.say)
    figures = {
        "tried": len(found),
        "longest_s": max(outcome.seconds for outcome in found.values()),
        "texts_after": sum(outcome.texts_after for outcome in found.values()),
    }
    return PartResult({"withdrawals": figures}, {name: asdict(outcome) for name, outcome in found.items()})


async def _hostile_tenants(given: Surroundings) -> PartResult:
    harm, longest_edits = await measure_harm(given.platform, given.api, given.say)
    return PartResult({"hostile_tenants": asdict(harm)}, longest_edits)


async def _tls(given: Surroundings) -> PartResult:
    found = asdict(await asyncio.to_thread(measure_tls, given.platform, given.say))
    details = {"recalls": found.pop("recalls")}
    return PartResult({"tls": found}, details)


async def _admission(given: Surroundings) -> PartResult:
    found = await asyncio.to_thread(run_admission, given.platform, given.say)
    ready = len(MUTATIONS) - len(found["failed"])
    figures = {
        "mutations": len(MUTATIONS),
        "ready": "all" if ready == len(MUTATIONS) else f"{ready}/{len(MUTATIONS)}",
        "applies_per_min_settled": max(found["settled"], found["restarted"]),
    }
    return PartResult({"admission": figures}, found)


async def _copies(given: Surroundings) -> PartResult:
    found = await asyncio.to_thread(run_copies, given.platform, given.say)
    figures = {"situations": len(SITUATIONS) - len(found["failed"]), "wrong_database_touched": found["touched"]}
    return PartResult({"copies": figures}, found)


@dataclass(frozen=True)
class Part:
    """A part of the benchmark, and the minutes that it takes on two cores.

    The display computes from these minutes how much time is left.
    """

    run: Callable[[Surroundings], Awaitable[PartResult]]
    minutes: int


PARTS = {
    "hostile": Part(_hostile, 2),
    "deletions": Part(_deletions, 3),
    "situations": Part(_situations, 6),
    "faults": Part(_faults, 23),
    "recovery": Part(_recovery, 7),
    "scale": Part(_scale, 13),
    "withdrawals": Part(_withdrawals, 6),
    "hostile_tenants": Part(_hostile_tenants, 7),
    "tls": Part(_tls, 6),
    "admission": Part(_admission, 8),
    "copies": Part(_copies, 6),
}
