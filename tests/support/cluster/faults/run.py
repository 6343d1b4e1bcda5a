"""Measures how the operator copes with failing calls and with outages, each in a slot.

A slot is a namespace with a Postgres cluster and an operator of its own. All slots run in one process inside the
cluster's network, the rig.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from devcluster.demo import objects
from devcluster.errors import DevclusterError
from devcluster.postgres import create_postgres
from tests.support.cluster.faults.recovery import SCENARIOS
from tests.support.cluster.faults.slots import DATABASE, KEY, NAME, SECRET, Programs, SlotPlace
from tests.support.cluster.manifests import API_VERSION
from tests.support.cluster.platform import Platform

DATABASE_NAMESPACE = "faults-db"
SLOTS = 8
# No multiples of the operator's intervals, so that nothing comes back at the very moment of a reconcile.
DURATIONS = {"blackhole_s": 61.0, "outage_s": 301.0, "stalled_s": 21.0}
LOGS = Path(__file__).parents[4] / "build" / "bench-operator"

Say = Callable[[str], None]


def run_fault_points(platform: Platform, share: float, say: Say, slots: int = SLOTS) -> dict[str, Any]:
    """Create and delete a MemoryIndex once for each fault point, and return how many of these tries converged.

    A fault point is one call of the operator that fails in one way. Only the fraction `share` of all fault points is
    tried, above 0 and at most 1. The result also lists the fault points that did not converge or were not reached.
    """
    say(f"preparing {slots} Postgres clusters")
    found: list[dict[str, Any]] = []
    plan: dict[str, Any] = {}
    with _opened_slots(platform, slots) as places:
        for entry in _rig(platform, places, share=share):
            if "error" in entry:
                raise DevclusterError(entry["error"])
            if "points" in entry:
                plan = entry
            else:
                found.append(entry)
            failed = sum(bool(one["problem"]) for one in found)
            say(f"{len(found)} of {plan.get('points', '?')} fault points, {failed} did not converge")
    reached = [one for one in found if one["hit"] or one["problem"]]
    return {
        **plan,
        "points": len(reached),
        "converged": sum(not one["problem"] for one in reached),
        "not_converged": [one for one in found if one["problem"]],
        "not_reached": [one["point"] for one in found if not one["hit"] and not one["problem"]],
        "longest_ready_s": max((one["ready_s"] for one in found), default=0.0),
        "longest_gone_s": max((one["gone_s"] for one in found), default=0.0),
    }


def run_recoveries(platform: Platform, say: Say) -> dict[str, Any]:
    """Cause each kind of outage, and return for each the seconds from its end until the MemoryIndex is Ready."""
    found: dict[str, Any] = {}
    say(f"{len(SCENARIOS)} scenarios side by side, one of which lasts {DURATIONS['outage_s']:.0f} s")
    with _opened_slots(platform, len(SCENARIOS)) as places:
        for entry in _rig(platform, places, share=0.0):
            if entry["seconds"] is None:
                raise DevclusterError(f"{entry['scenario']}: {entry['problem']}")
            found[entry["scenario"]] = entry["seconds"]
            say(f"{entry['scenario']}: {entry['seconds']} s")
    return found


def _prepare_all(platform: Platform, count: int) -> list[SlotPlace]:
    """Create a namespace and a Postgres cluster for each slot."""
    places = [SlotPlace(n, f"faults-{n}", DATABASE_NAMESPACE, f"pg-{n}") for n in range(count)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda place: _prepare(platform, place), places))
    return places


def _prepare(platform: Platform, place: SlotPlace) -> None:
    cluster = platform.cluster
    postgres = create_postgres(
        cluster, namespace=place.database_namespace, name=place.cluster, storage="1Gi", cpu="50m"
    )
    postgres.allow(place.namespace)
    dsn = postgres.application_dsn()
    if f"/{DATABASE}" not in dsn:
        raise DevclusterError(f"{place.cluster} was not created with database {DATABASE}")
    cluster.apply(objects.namespace(place.namespace), objects.dsn_secret(place.namespace, SECRET, KEY, dsn))


@contextmanager
def _opened_slots(platform: Platform, count: int) -> Iterator[list[SlotPlace]]:
    """Create the slots for the block, and delete them afterwards.

    The operator that the chart installed is stopped meanwhile, because each slot has an operator of its own.
    """
    platform.scale_operator(0)
    try:
        yield _prepare_all(platform, count)
    finally:
        platform.scale_operator(1)
        _remove(platform, count)


def _remove(platform: Platform, count: int) -> None:
    """Delete the MemoryIndex objects of all slots, then the Database objects, and then everything else.

    CloudNativePG can delete a Database object only while its Postgres cluster runs.
    """
    kubectl = platform.cluster.kubectl
    resource = f"memoryindexes.{API_VERSION.partition('/')[0]}"
    for number in range(count):
        kubectl("-n", f"faults-{number}", "delete", resource, NAME, "--ignore-not-found", "--wait", "--timeout=240s")
    where = ("-n", DATABASE_NAMESPACE, "delete")
    kubectl(*where, "databases.postgresql.cnpg.io", "--all", "--wait", "--timeout=240s")
    kubectl(*where, "clusters.postgresql.cnpg.io", "--all", "--wait", "--timeout=240s")
    # Postgres would wait for three minutes for connections that were cut.
    kubectl(*where, "pods", "--all", "--grace-period=0", "--force", "--wait=false")
    namespaces = [DATABASE_NAMESPACE, *(f"faults-{number}" for number in range(count))]
    kubectl("delete", "namespace", *namespaces, "--wait", "--timeout=180s")


def _rig(platform: Platform, places: list[SlotPlace], *, share: float) -> Iterator[dict[str, Any]]:
    """Run the program `rig` inside the cluster's network, and yield each line of JSON that it prints, parsed."""
    LOGS.mkdir(parents=True, exist_ok=True)
    kubectl, *_ = platform.cluster.kubectl_command()
    order = {
        "slots": [asdict(place) for place in places],
        "programs": asdict(Programs(kubectl, platform.image, platform.embedder_image)),
        "logs": str(LOGS),
        "share": share,
        "settings": DURATIONS,
    }
    command = [sys.executable, "-m", "tests.support.cluster.faults.rig"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with (LOGS / "rig.log").open("wb") as log:
        rig = platform.cluster.popen_in_network(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
        try:
            threading.Thread(target=_send, args=(rig, json.dumps(order)), daemon=True).start()
            for line in rig.stdout or ():
                yield json.loads(line)
        finally:
            rig.terminate()
            rig.wait()
    if rig.returncode:
        raise DevclusterError("the rig failed", detail=(LOGS / "rig.log").read_text(encoding="utf-8")[-3000:])


def _send(rig: "subprocess.Popen[str]", order: str) -> None:
    if rig.stdin:
        rig.stdin.write(order)
        rig.stdin.close()
