"""A new default image that waits for its turn holds up no edit, also where the edit could not be written at first."""

from dataclasses import replace
from typing import Any

import pytest

from memory_operator.api.reasons import Reason
from memory_operator.api.spec import HttpSource, MemoryIndex, parse
from memory_operator.reconcile.facts import DeploymentFacts, Observed, Problem
from memory_operator.reconcile.plan import Apply, Plan
from memory_operator.resources import embedder, model_fetch
from memory_operator.resources.common import ANNOTATION_SPECIFICATION, Images, fingerprint
from tests.unit.memory_operator.conftest import Cluster, World

OLD, NEW = Images(operator="op:1", embedder="emb:1"), Images(operator="op:1", embedder="emb:2")
SERVING = DeploymentFacts(replicas=1, ready=1, current=True, updated=1, image="emb:1")
EDIT = {"embedder": {"gpuLayers": 0, "resources": {"limits": {"memory": "5Gi"}}}}


def edited(world: World, *, seen: int, live: dict[str, Any] | None = None, **spec: Any) -> Plan:
    """A plan for an object of generation 2 that may not roll out the new default image yet.

    The specification was edited, and generation `seen` is the one in the status. `live` is its Deployment.
    """
    world.images = OLD
    _, observed, last = world.settled()
    manifest = world.manifest(**spec)
    manifest["metadata"]["generation"] = 2
    assert last.status is not None
    manifest["status"] = {**last.status, "observedGeneration": seen}
    world.images = NEW
    children = {**observed.children, ("Deployment", "mem-embedder"): live} if live else observed.children
    facts = {"children": children, "embedder": SERVING, "rollout_admitted": False}
    return decide(world, observed, parse(manifest), **facts)


@pytest.mark.parametrize("seen", [1, 2], ids=["at once", "after its write failed and the status was written"])
def test_an_edit_is_rolled_out_with_the_new_image_until_it_is_written(world: World, seen: int) -> None:
    (deployment,) = applied(edited(world, seen=seen, **EDIT), "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert (container["image"], container["resources"]) == ("emb:2", EDIT["embedder"]["resources"])


def test_an_edit_that_waited_for_the_database_is_rolled_out_although_the_new_image_waits(cluster: Cluster) -> None:
    cluster.until_ready()
    spec = cluster.world.manifest(**EDIT)["spec"]
    answered, cluster.database = cluster.database, Problem(Reason.DATABASE_UNREACHABLE, "refused.")
    cluster.world.images = NEW
    cluster.manifest = {**cluster.manifest, "spec": spec}
    cluster.manifest["metadata"]["generation"] = 2
    cluster.reconcile()
    assert cluster.manifest["status"]["observedGeneration"] == 2
    cluster.database = answered
    observed = replace(cluster.observe(), embedder=SERVING, rollout_admitted=False)
    (deployment,) = applied(decide(cluster.world, observed, cluster.index), "Deployment")
    assert deployment["spec"]["template"]["spec"]["containers"][0]["resources"] == EDIT["embedder"]["resources"]


def test_an_edit_that_waited_for_its_model_file_is_rolled_out_although_the_new_image_waits(world: World) -> None:
    source = {"source": {"http": {"url": "https://models.example/m.gguf", "sha256": "a" * 64}}}
    fetching = edited(world, seen=1, embedding=source)
    (claim,) = applied(fetching, "PersistentVolumeClaim")
    assert applied(fetching, "Deployment") == []
    world.images = OLD
    _, observed, _ = world.settled()
    manifest = world.manifest(embedding=source)
    manifest["metadata"]["generation"] = 2
    index = parse({**manifest, "status": fetching.status})
    fetched = model_fetch.fetched_claim(index, model_source(index), claim)
    children = {**observed.children, ("PersistentVolumeClaim", claim["metadata"]["name"]): fetched}
    world.images = NEW
    plan = decide(world, observed, index, children=children, embedder=SERVING, rollout_admitted=False)
    (deployment,) = applied(plan, "Deployment")
    assert "volumes" in deployment["spec"]["template"]["spec"]
    assert model_fetch.FETCHED_FILE in deployment["spec"]["template"]["spec"]["containers"][0]["command"]


def model_source(index: MemoryIndex) -> HttpSource:
    assert index.fetched_source
    return index.fetched_source


def test_an_edit_of_the_number_of_pods_alone_leaves_the_new_image_waiting(world: World) -> None:
    """Others' turns do not end because somebody scales."""
    _, observed, _ = world.settled()
    live = observed.children["Deployment", "mem-embedder"]
    plan = edited(world, seen=1, embedder={"gpuLayers": 0, "minReplicas": 1, "scaleDownDelaySeconds": 5})
    assert applied(plan, "Deployment") == []
    several = edited(world, seen=1, embedder={"gpuLayers": 0, "minReplicas": 2, "maxReplicas": 2})
    (deployment,) = applied(several, "Deployment")
    assert (deployment["spec"]["replicas"], deployment["spec"]["template"]) == (2, live["spec"]["template"])


PODS_CHANGE: list[dict[str, Any]] = [
    {"embedding": {"model": "bge-small-en-v1.5"}},
    {"embedding": {"source": {"pvc": {"claimName": "models", "path": "x.gguf", "digest": "sha256:" + "a" * 64}}}},
    {"embedder": {"image": "own:1"}},
    {"embedder": {"resources": {"limits": {"memory": "5Gi"}}}},
    {"embedder": {"nodeSelector": {"gpu": "yes"}}},
    {"embedder": {"apiKey": {"secretName": "own"}}},
    {"embedder": {"podTemplate": {"labels": {"a": "b"}}}},
    {"embedder": {"gpuLayers": -1}},
]
PODS_STAY: list[dict[str, Any]] = [
    {},
    {"backfill": {"parallelism": 3}},
    {"embedding": {"queryEgress": "Allowed"}},
    {"embedder": {"minReplicas": 2, "maxReplicas": 2, "targetQueueSeconds": 5, "scaleDownDelaySeconds": 5}},
    {"embedder": {"scaling": "External"}},
    {"embedder": {"allowFrom": [{"podSelector": {}}]}},
    {"embedder": {"nodeSelector": {}, "minReplicas": 1}, "embedding": {"queryEgress": "Denied"}},
]


@pytest.mark.parametrize(
    ("spec", "same"), [*((one, False) for one in PODS_CHANGE), *((one, True) for one in PODS_STAY)]
)
def test_the_recorded_specification_differs_exactly_where_the_pods_do(
    world: World, spec: dict[str, Any], *, same: bool
) -> None:
    """An upgrade's image is no edit."""
    before = recorded(world)
    world.images = NEW
    assert (recorded(world, **spec) == before) is same


def test_a_field_that_a_later_release_adds_is_no_edit(world: World) -> None:
    """Only what differs from the defaults is recorded, so that an upgrade does not roll all embedders out together."""
    given = [{"model": "all-MiniLM-L6-v2", "dimensions": 384}, {"gpu_layers": 0}, True]
    assert recorded(world) == fingerprint(given)


def test_a_limit_of_pods_that_changes_how_they_are_replaced_is_recorded(world: World) -> None:
    """One pod on a GPU is stopped before the next one starts; one of two serves on meanwhile."""
    one, two = ({"gpuLayers": -1, "maxReplicas": number} for number in (1, 2))
    assert recorded(world, embedder=one) != recorded(world, embedder=two)


def decide(world: World, observed: Observed, index: MemoryIndex, **facts: Any) -> Plan:
    return world.decide(index, **vars(replace(observed, **facts)))


def applied(plan: Plan, kind: str) -> list[dict[str, Any]]:
    return [a.manifest for a in plan.actions if isinstance(a, Apply) and a.manifest["kind"] == kind]


def recorded(world: World, **spec: Any) -> str:
    """What the embedder's Deployment records about this specification."""
    made = embedder.deployment(world.index(**spec), world.images, replicas=1)
    return str(made["metadata"]["annotations"][ANNOTATION_SPECIFICATION])
