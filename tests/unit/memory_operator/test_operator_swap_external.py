"""A swap between an external embedder and another one: whom workers may call, and who serves."""

from dataclasses import replace
from typing import Any

import pytest

from memory_operator.api.spec import Manifest
from memory_operator.reconcile.authorization.permissions import Permitted
from memory_operator.reconcile.core import reconcile
from memory_operator.reconcile.facts import PodFacts
from memory_operator.reconcile.plan import Delete
from tests.unit.memory_operator.conftest import FULL, MODEL, NEXT_MODEL, Cluster, World, swap_record

OWN, OWN_NEXT = "http://mem-embedder.team.svc:8080", "http://mem-embedder-next.team.svc:8080"
FORMER, OTHER = "http://a.one.svc:9000", "https://b.example:8443"
EGRESS = {"queryEgress": "Allowed"}  # which OTHER needs, since it is beyond the cluster
NEXT = {"model": "bge-small-en-v1.5", "dimensions": 384, **EGRESS}
GATE = {"gate": {"configMap": {"name": "questions"}}}
TO_FORMER: Manifest = {"to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "one"}}}]}
TO_OTHER: Manifest = {"ports": [{"port": 8443, "protocol": "TCP"}]}


def external(url: str, secret: str = "") -> Manifest:
    return {"external": {"url": url, **({"apiKey": {"secretName": secret}} if secret else {})}}


def own(secret: str = "") -> Manifest:
    return {"gpuLayers": 0, **({"apiKey": {"secretName": secret}} if secret else {})}


def change(cluster: Cluster, embedder: Manifest, **spec: Any) -> None:
    status = cluster.manifest["status"]
    metadata = {**cluster.manifest["metadata"], "generation": cluster.manifest["metadata"]["generation"] + 1}
    manifest = cluster.world.manifest(**{"embedding": NEXT, "swap": GATE, **spec})
    manifest["spec"]["embedder"] = embedder
    cluster.manifest = {**manifest, "status": status, "metadata": metadata}


def settled(world: World, embedder: Manifest, url: str) -> Cluster:
    """A settled cluster of the model that this embedder serves."""
    world.permitted = Permitted(external_hosts=(".one.svc", "b.example"))
    manifest = world.manifest(embedding=EGRESS)
    manifest["spec"]["embedder"] = embedder
    cluster = Cluster(world, manifest)
    cluster.database = replace(FULL, active_model=replace(MODEL, embedder_url=url))
    reconciled(cluster, 5)
    assert cluster.condition("Ready")["status"] == "True"
    return cluster


def reconciled(cluster: Cluster, times: int = 3) -> None:
    for _ in range(times):
        cluster.reconcile()


def flip(cluster: Cluster, url: str) -> None:
    cluster.finish("swap")
    cluster.change(active_model=replace(NEXT_MODEL, embedder_url=url), next_model=None, swap=swap_record("flipped"))


def egress(cluster: Cluster) -> list[Manifest]:
    """Whom the workers may call beside DNS and the database."""
    rules: list[Manifest] = cluster.children["NetworkPolicy", "mem-workers"]["spec"]["egress"]
    return rules[2:]


def calls_own_pods(cluster: Cluster) -> bool:
    return any("podSelector" in peer for rule in egress(cluster) for peer in rule.get("to", []))


def sync_url(cluster: Cluster) -> str:
    container = cluster.children["Deployment", "mem-sync"]["spec"]["template"]["spec"]["containers"][0]
    return next(item["value"] for item in container["env"] if item["name"] == "MEMORY_EMBEDDER_URL")


def test_workers_call_the_former_external_embedder_until_the_hand_over_to_the_own_one_has_ended(world: World) -> None:
    """The sync worker keeps its pods, whose first call is to the former embedder, until the own one is rolled out."""
    cluster = settled(world, external(FORMER), FORMER)
    assert (egress(cluster), calls_own_pods(cluster)) == ([TO_FORMER], False)
    change(cluster, own())
    reconciled(cluster)
    assert (TO_FORMER in egress(cluster), calls_own_pods(cluster)) == (True, True)
    flip(cluster, OWN_NEXT)
    cluster.reconcile()
    assert (sync_url(cluster), TO_FORMER in egress(cluster)) == (FORMER, True)
    cluster.reconcile()
    cluster.change(active_model=replace(NEXT_MODEL, embedder_url=OWN))
    reconciled(cluster)
    assert (sync_url(cluster), TO_FORMER in egress(cluster)) == (OWN, False)
    assert cluster.condition("Ready")["status"] == "True"


def test_workers_call_the_own_embedder_until_the_flip_to_an_external_one(world: World) -> None:
    cluster = settled(world, own(), OWN)
    change(cluster, external(OTHER))
    reconciled(cluster)
    assert (TO_OTHER in egress(cluster), calls_own_pods(cluster)) == (True, True)
    flip(cluster, OTHER)
    reconciled(cluster)
    assert (egress(cluster), sync_url(cluster)) == ([TO_OTHER], OTHER)
    assert cluster.condition("Ready")["status"] == "True"


def test_workers_call_both_external_embedders_until_the_flip_from_one_to_the_other(world: World) -> None:
    cluster = settled(world, external(FORMER), FORMER)
    change(cluster, external(OTHER))
    reconciled(cluster)
    assert egress(cluster) == [TO_OTHER, TO_FORMER]
    flip(cluster, OTHER)
    reconciled(cluster)
    assert egress(cluster) == [TO_OTHER]


def test_setting_the_model_back_ends_the_egress_to_the_next_external_embedder(world: World) -> None:
    cluster = settled(world, external(FORMER), FORMER)
    change(cluster, external(OTHER))
    reconciled(cluster)
    change(cluster, external(FORMER), embedding={})
    cluster.reconcile()
    assert egress(cluster) == [TO_FORMER]


def test_a_former_host_that_the_chart_no_longer_permits_is_not_called(world: World) -> None:
    """Nor does the gate's Job start, which would send questions there."""
    cluster = settled(world, external(FORMER), FORMER)
    world.permitted = Permitted(external_hosts=("b.example",))
    change(cluster, external(OTHER))
    reconciled(cluster)
    assert egress(cluster) == [TO_OTHER]
    found = cluster.condition("EmbedderReady")
    assert (found["status"], found["reason"], "a.one.svc" in found["message"]) == ("False", "NotPermitted", True)
    assert cluster.running() == []


def test_an_address_that_the_database_alone_names_is_not_opened(world: World) -> None:
    """Whoever may write rows must not be able to let workers call a host, be it permitted or not."""
    cluster = settled(world, external(FORMER), FORMER)
    cluster.change(active_model=replace(MODEL, embedder_url="http://c.two.svc:80"))
    world.permitted = Permitted(external_hosts=(".one.svc", ".two.svc", "b.example"))
    change(cluster, external(OTHER))
    reconciled(cluster)
    assert egress(cluster) == [TO_OTHER, TO_FORMER]
    del cluster.children["Deployment", "mem-sync"]
    reconciled(cluster)
    assert egress(cluster) == [TO_OTHER]


def test_another_address_of_the_same_model_opens_nothing_beside_it(world: World) -> None:
    """No swap is needed, and the sync worker is set up anew at once."""
    cluster = settled(world, external(FORMER), FORMER)
    change(cluster, external(OTHER), embedding=EGRESS)
    cluster.reconcile()
    assert (egress(cluster), sync_url(cluster)) == ([TO_OTHER], OTHER)


@pytest.mark.parametrize("embedder", [own(), external(OTHER)], ids=["to an own one", "to another external one"])
def test_the_former_external_embedder_is_not_called_missing_nor_said_to_answer_unasked(
    world: World, embedder: Manifest
) -> None:
    cluster = settled(world, external(FORMER), FORMER)
    change(cluster, embedder)
    reconciled(cluster)
    found = cluster.condition("EmbedderReady")
    assert found["status"] == "Unknown"
    assert FORMER in found["message"]
    assert "missing" not in found["message"]


def test_a_swap_to_an_external_embedder_ends_although_the_next_own_one_was_started_before(world: World) -> None:
    """Nothing is to be rolled over, and the second embedder goes once the database names the external one."""
    cluster = settled(world, own(), OWN)
    change(cluster, own())
    reconciled(cluster)
    assert ("Deployment", "mem-embedder-next") in cluster.children
    flip(cluster, OWN_NEXT)
    change(cluster, external(OTHER))
    reconciled(cluster)
    assert (sync_url(cluster), ("Deployment", "mem-embedder-next") in cluster.children) == (OTHER, True)
    cluster.change(active_model=replace(NEXT_MODEL, embedder_url=OTHER))
    reconciled(cluster)
    assert ("Deployment", "mem-embedder-next") not in cluster.children
    assert cluster.condition("Ready")["status"] == "True"
    assert egress(cluster) == [TO_OTHER]


def test_a_second_embedder_that_an_external_one_replaces_before_the_flip_is_deleted(world: World) -> None:
    cluster = settled(world, own(), OWN)
    change(cluster, own())
    reconciled(cluster)
    change(cluster, external(OTHER))
    observed = replace(cluster.observe(), pods=(PodFacts("mem-swap-x", "swap", running=True),))
    plan = reconcile(cluster.index, observed, world.images, world.now, world.intervals, permitted=world.permitted)
    deleted = [one.kind for one in plan.actions if isinstance(one, Delete)]
    assert deleted == ["Job"], "it fills the column with that embedder"
    reconciled(cluster)
    assert [name for _, name in cluster.children if name == "mem-embedder-next"] == []
    assert ("Deployment", "mem-embedder") in cluster.children
