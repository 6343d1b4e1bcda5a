"""Makes all situations, most of them side by side, and compares what the operator reports with what is expected."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

from devcluster.demo import objects
from devcluster.demo.environment import DIMENSIONS, MODEL
from devcluster.errors import DevclusterError
from devcluster.install import CNPG_NAMESPACE, install_cnpg
from devcluster.postgres import create_database, create_postgres, database_object
from tests.support.cluster.api import INDEXES, Api, ApiError, Object
from tests.support.cluster.conditions import condition, is_ready
from tests.support.cluster.filled_tables import fill
from tests.support.cluster.manifests import API_VERSION, EMBEDDER_URL
from tests.support.cluster.platform import Platform
from tests.support.cluster.situations import database_situations, operator_situations, working_situations
from tests.support.cluster.situations.later import observe_late_installation
from tests.support.cluster.situations.observation import Observation, observe
from tests.support.cluster.situations.situation import (
    DATABASE,
    KEY,
    NAME,
    SECRET,
    WRITTEN_CLUSTERS,
    Place,
    Situation,
    Stage,
)

SITUATIONS = (*database_situations.SITUATIONS, *working_situations.SITUATIONS)
_READY_SECONDS = 240.0
_POLL_SECONDS = 2.0
_TOOLBOX = "sit-toolbox"

Say = Callable[[str], None]


async def run_situations(platform: Platform, api: Api, say: Say) -> dict[str, Any]:
    """Make all situations; return how many expectations there were, how many were not met, and an entry for each."""
    say("preparing databases and namespaces")
    stage = await asyncio.to_thread(_prepare_stage, platform)
    real = [one for one in SITUATIONS if not one.written]
    later = asyncio.create_task(asyncio.to_thread(observe_late_installation))
    observed = await _make(stage, api, real, say)
    await asyncio.to_thread(_remove, stage, real)
    written = [one for one in SITUATIONS if one.written]
    with _cnpg_stopped(platform):
        observed += await _make(stage, api, written, say)
        await asyncio.to_thread(_remove, stage, written)
        platform.cluster.kubectl("delete", "namespace", WRITTEN_CLUSTERS, "--wait", "--timeout=240s")
    others = [*await operator_situations.run(stage, api, say), *await later]
    await asyncio.to_thread(_close, stage)
    entries = [
        {
            "situation": one.expected.name,
            "key": one.situation.key,
            "made": "status written" if one.situation.written else "real",
            "met": one.met,
            "seen": "" if one.met else one.seen,
        }
        for one in observed
    ] + others
    return {"situations": len(entries), "lies": sum(not one["met"] for one in entries), "entries": entries}


def _prepare_stage(platform: Platform) -> Stage:
    postgres = platform.postgres
    dsn = create_database(platform.cluster, postgres, DATABASE)
    platform.cluster.apply(database_object(postgres, DATABASE))
    other = create_postgres(platform.cluster, namespace=postgres.namespace, name="pg-other", storage="1Gi", cpu="100m")
    platform.cluster.apply(objects.namespace(_TOOLBOX), objects.dsn_secret(_TOOLBOX, SECRET, KEY, dsn))
    pod = objects.toolbox(_TOOLBOX, image=platform.image, secret=SECRET, key=KEY, embedder_url="")
    platform.cluster.apply(pod)
    platform.cluster.kubectl(
        "-n", _TOOLBOX, "wait", "--for=condition=Ready", f"pod/{objects.TOOLBOX}", "--timeout=240s"
    )
    return Stage(platform, dsn, other)


def _close(stage: Stage) -> None:
    kubectl, postgres = stage.cluster.kubectl, stage.platform.postgres
    kubectl("delete", "namespace", _TOOLBOX, "--wait=false")
    kubectl("-n", postgres.namespace, "delete", "databases.postgresql.cnpg.io", "--all", "--wait", "--timeout=240s")
    kubectl("-n", postgres.namespace, "delete", "clusters.postgresql.cnpg.io", stage.other.name)
    for name in postgres.psql(
        f"SELECT datname FROM pg_database WHERE datname IN ('{DATABASE}') OR datname LIKE 't\\_%'"
    ).split():
        postgres.psql(f"DROP DATABASE {name} WITH (FORCE)")


async def _make(stage: Stage, api: Api, situations: Sequence[Situation], say: Say) -> list[Observation]:
    """Make the situations side by side, and observe them until each expectation is met or its time is over."""
    places = {one.key: Place(stage, one.key) for one in situations}
    failed: dict[str, str] = {}
    say(f"preparing {len(situations)} situations")
    await asyncio.to_thread(_prepare_all, stage, situations, places, failed)
    filled = [one for one in situations if one.filled or one.settled]
    say(f"filling {len(filled)} tables")
    await _create(api, filled, places, failed, suspend=True)
    await asyncio.to_thread(_fill, stage, [one for one in filled if one.key not in failed], places)
    settled = [one for one in situations if one.settled]
    say(f"waiting for {len(settled)} of them to settle")
    for one in settled:
        if one.key not in failed:
            await api.patch(f"{places[one.key].collection}/{NAME}", {"spec": {"suspend": False}})
    failed |= await _unsettled(api, {one.key: places[one.key].namespace for one in settled if one.key not in failed})
    observed: list[Observation] = []
    made = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(observe(api, observed, made, say))  # some situations last for seconds only
        for one in settled:
            observations = _observations(one, failed)
            observed += observations  # before the change: what follows it may last for less time than making it takes
            if one.disturb and one.key not in failed:
                await asyncio.to_thread(_attempt, one.key, partial(one.disturb, places[one.key]), failed)
            for observation in observations:
                observation.note_failure(failed.get(one.key, ""))
        await _create(api, [one for one in situations if one not in filled], places, failed)
        for one in situations:
            if one.filled and one.key not in failed:
                await api.patch(f"{places[one.key].collection}/{NAME}", {"spec": {"suspend": False}})
        for one in situations:
            observed += _observations(one, failed) if one not in settled else []
        made.set()
    return observed


def _observations(situation: Situation, failed: Mapping[str, str]) -> list[Observation]:
    """Return the observations of a situation that has just been made, or has failed as `failed` says."""
    found = [Observation(situation, one) for one in situation.expected]
    for observation in found:
        observation.note_failure(failed.get(situation.key, ""))
    return found


def _prepare_all(
    stage: Stage, situations: Sequence[Situation], places: Mapping[str, Place], failed: dict[str, str]
) -> None:
    """Create the namespaces with their Secrets, and what each situation needs before its MemoryIndex exists."""
    cluster, postgres = stage.cluster, stage.platform.postgres
    namespaces = [places[one.key].namespace for one in situations]
    cluster.apply(*(objects.namespace(name) for name in namespaces))
    cluster.apply(*(objects.dsn_secret(name, SECRET, KEY, stage.dsn) for name in namespaces))
    for name in namespaces:
        postgres.allow(name)
    with ThreadPoolExecutor(4) as pool:
        for one in situations:
            pool.submit(_attempt, one.key, partial(_prepare, one, places[one.key]), failed)


def _prepare(situation: Situation, place: Place) -> None:
    if situation.own_database:
        place.create_database()
    if situation.prepare:
        situation.prepare(place)


def _attempt(key: str, change: Callable[[], None], failed: dict[str, str]) -> None:
    """Run a change for the situation `key`; if it fails, note the error in `failed` instead of raising it."""
    try:
        change()
    except DevclusterError as error:
        failed[key] = f"could not be made: {error}"


async def _create(
    api: Api, situations: Sequence[Situation], places: Mapping[str, Place], failed: dict[str, str], **more: bool
) -> None:
    """Create the MemoryIndex of each situation that has not failed so far; note errors in `failed`."""
    for one in situations:
        if one.key in failed:
            continue
        place = places[one.key]
        try:
            await api.create(place.collection, _manifest(place, one, **more))
        except ApiError as error:
            failed[one.key] = f"could not be made: {error}"


def _fill(stage: Stage, situations: Sequence[Situation], places: Mapping[str, Place]) -> None:
    items = stage.cluster.kubectl_json("get", "memoryindexes", "--all-namespaces")["items"]
    found = {item["metadata"]["namespace"]: item["metadata"] for item in items}
    entries = [(places[one.key].table, found[places[one.key].namespace]) for one in situations]
    if entries:
        fill(stage.platform, _TOOLBOX, entries, stage.platform.system_identifier())


def _manifest(place: Place, situation: Situation, **more: Any) -> Object:
    postgres = place.stage.platform.postgres
    spec: Object = {
        "database": {
            "cluster": {"name": postgres.name, "namespace": postgres.namespace},
            "name": DATABASE,
            "table": place.table,
            "credentials": {"secretName": SECRET, "key": KEY},
        },
        "embedding": {"model": MODEL, "dimensions": DIMENSIONS},
        "embedder": {"external": {"url": EMBEDDER_URL}},
    }
    if situation.own_database:
        spec["database"] |= {"name": place.table, "table": "memories"}
    for path, value in {**situation.spec, **more}.items():
        node = spec
        *parents, last = path.split("__")
        for parent in parents:
            node = node.setdefault(parent, {})
        if value is None:
            node.pop(last, None)
        else:
            node[last] = value
    meta = {"name": NAME, "namespace": place.namespace}
    return {"apiVersion": API_VERSION, "kind": "MemoryIndex", "metadata": meta, "spec": spec}


async def _unsettled(api: Api, namespaces: Mapping[str, str]) -> dict[str, str]:
    """Wait until the objects are Ready; return, by situation, an error for each object that is not Ready in time."""
    deadline = time.monotonic() + _READY_SECONDS
    while True:
        items = await _items(api)
        found = {key: items.get((name, NAME), {"metadata": {"generation": 0}}) for key, name in namespaces.items()}
        waiting = {key: item for key, item in found.items() if not is_ready(item)}
        if not waiting or time.monotonic() > deadline:
            return {key: f"did not settle: {condition(item, 'Ready').get('message')}" for key, item in waiting.items()}
        await asyncio.sleep(_POLL_SECONDS)


async def _items(api: Api) -> dict[tuple[str, str], Object]:
    """Return all MemoryIndex objects of the cluster by namespace and name."""
    items = (await api.get(f"{INDEXES}/memoryindexes"))["items"]
    return {(item["metadata"]["namespace"], item["metadata"]["name"]): item for item in items}


def _remove(stage: Stage, situations: Sequence[Situation]) -> None:
    for one in situations:
        place = Place(stage, one.key)
        patch = '--patch={"metadata":{"finalizers":null}}'
        names = place.kubectl("get", "memoryindexes", "-o", "name").split()
        for name in names:
            if one.key == "deleting":  # a finalizer that nobody else takes off
                place.kubectl("patch", name, "--type=merge", patch)
            place.kubectl("delete", name, "--ignore-not-found", "--wait=false")
    names = [f"sit-{one.key}" for one in situations]
    stage.cluster.kubectl("delete", "namespace", *names, "--wait", "--timeout=300s")


@contextmanager
def _cnpg_stopped(platform: Platform) -> Iterator[None]:
    """Stop CloudNativePG until the block ends, so that a situation can write the status of a Cluster.

    The pods of Postgres continue to run.
    """
    kubectl = platform.cluster.kubectl
    kubectl("-n", CNPG_NAMESPACE, "scale", "deployment/cnpg-controller-manager", "--replicas=0")
    for kind, name in (("validating", "cnpg-validating"), ("mutating", "cnpg-mutating")):
        kubectl("delete", f"{kind}webhookconfiguration", f"{name}-webhook-configuration")
    platform.cluster.apply(objects.namespace(WRITTEN_CLUSTERS))
    try:
        yield
    finally:
        install_cnpg(platform.cluster)
