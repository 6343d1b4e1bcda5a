"""An embedder of the operator runs only as long as what its own pods were made with is permitted."""

import json
from dataclasses import replace
from typing import Any

import pytest

from memory_operator.api.reasons import Reason
from memory_operator.api.spec import FINALIZER
from memory_operator.clients.object_facts import pod_facts
from memory_operator.reconcile.authorization.permissions import Permitted
from memory_operator.reconcile.facts import Observed, PodFacts, Problem
from memory_operator.resources.choices import recorded_choices
from memory_operator.resources.common import ANNOTATION_CHOICES, ANNOTATION_STOPPED, LABEL_COMPONENT
from tests.unit.memory_operator.conftest import Cluster, World, deep_update
from tests.unit.memory_operator.test_operator_controller import Bench, bench
from tests.unit.memory_operator.test_operator_permissions import CHOICES, NOTHING
from tests.unit.memory_operator.test_operator_swap import NEXT
from tests.unit.memory_operator.test_operator_withdrawal import WITHDRAWALS, Consenting, Withdraw, of_host, settle

__all__ = ["bench"]  # the fixture
OF_PODS = [(spec, allowed) for spec, _, _, allowed in CHOICES if "external" not in spec.get("embedder", {})]
LABELLED = {"embedder": {"podTemplate": {"labels": {"access/payroll": "yes"}}}}
LABELS = Permitted(pod_label_prefixes=("access/",))
KEYED = {"embedder": {"apiKey": {"secretName": "key"}}}
MAIN = ("Deployment", "mem-embedder")


def serving(world: World, spec: dict[str, Any], permitted: Permitted = NOTHING) -> Consenting:
    """A ready object whose embedder has one pod."""
    world.permitted = permitted
    manifest = world.manifest(**spec)
    manifest["status"] = {}
    cluster = Consenting(world, manifest)
    cluster.until_ready()
    assert_serving(cluster)
    return cluster


def assert_serving(cluster: Cluster) -> None:
    """Check that the embedder has its pod, and that the object is ready."""
    settle(cluster)
    assert cluster.replicas("mem-embedder") == 1
    assert cluster.condition("Ready")["status"] == "True"


def assert_stopped(cluster: Cluster, reason: str) -> None:
    """Check that the embedder is stopped once, that Ready and EmbedderReady say so, and that nothing is lost."""
    cluster.reconcile()
    assert cluster.replicas("mem-embedder") == 0
    for kind in ("Ready", "EmbedderReady"):
        found = cluster.condition(kind)
        assert (found["status"], found["reason"]) == ("False", reason)
        assert "Deployment team/mem-embedder" in found["message"]
        assert "recalls are by words alone" in found["message"]
    cluster.writes.clear()
    settle(cluster)
    assert set(cluster.writes) <= {"status"}, "it is stopped once"


def of_own_key(_: Cluster, observed: Observed) -> Observed:
    problem = Problem(Reason.CONSENT_MISSING, "Secret team/key may not be used as an API key; this line allows it.")
    return replace(observed, external=problem, refused_keys={"key": problem})


@pytest.mark.promise("consent-has-an-end")
@pytest.mark.finding("security S4")
@pytest.mark.parametrize(("spec", "permitted"), OF_PODS)
def test_an_embedder_is_stopped_when_what_its_pods_have_is_permitted_no_more_and_given_back(
    world: World, spec: dict[str, Any], permitted: Permitted
) -> None:
    cluster = serving(world, spec, permitted)
    world.permitted = NOTHING
    assert_stopped(cluster, "NotPermitted")
    world.permitted = permitted
    assert_serving(cluster)


@pytest.mark.promise("consent-has-an-end")
@pytest.mark.finding("security S4")
def test_an_embedder_is_stopped_when_its_key_is_allowed_no_more_and_given_back(world: World) -> None:
    cluster = serving(world, KEYED)
    cluster.withdraw = of_own_key
    assert_stopped(cluster, "ConsentMissing")
    cluster.withdraw = None
    assert_serving(cluster)


@pytest.mark.parametrize(
    "withdraw", [one for one, _ in WITHDRAWALS if one is not of_host], ids=lambda one: str(one.__name__)
)
def test_an_embedder_goes_on_when_what_is_withdrawn_is_no_permission_of_its_pods(
    world: World, withdraw: Withdraw
) -> None:
    """Other objects and API pods use it, whatever becomes of this object's database."""
    cluster = serving(world, LABELLED, LABELS)
    cluster.withdraw = withdraw
    settle(cluster)
    assert cluster.condition("Ready")["status"] == "False"
    assert cluster.replicas("mem-embedder") == 1


def test_a_withdrawn_permission_that_its_pods_do_not_need_does_not_stop_an_embedder(world: World) -> None:
    cluster = serving(world, LABELLED, replace(LABELS, priority_classes=("high",)))
    world.permitted = LABELS
    settle(cluster)
    assert cluster.replicas("mem-embedder") == 1
    assert cluster.condition("Ready")["status"] == "True"


def test_a_former_specification_gives_no_permission_to_the_pods_that_were_made_from_it(world: World) -> None:
    """The specification names the label no more, and the object is suspended, so that its pods stay as they are."""
    cluster = serving(world, LABELLED, LABELS)
    cluster.manifest["spec"]["embedder"]["podTemplate"] = {}
    cluster.manifest["spec"]["suspend"] = True
    settle(cluster)
    assert cluster.replicas("mem-embedder") == 1, "it is still permitted"
    world.permitted = NOTHING
    settle(cluster)
    assert (cluster.replicas("mem-embedder"), cluster.replicas("mem-sync")) == (0, 0)
    assert "access/payroll" in cluster.condition("EmbedderReady")["message"]
    cluster.manifest["spec"]["suspend"] = False
    settle(cluster)
    assert (cluster.replicas("mem-embedder"), cluster.replicas("mem-sync")) == (1, 1)
    assert cluster.condition("Ready")["status"] == "True"
    assert recorded_choices(cluster.children[MAIN]["spec"]["template"]) == ()


def test_older_pods_with_what_is_permitted_no_more_are_ended_before_new_ones_start(world: World) -> None:
    """Otherwise they would serve for as long as a new pod cannot start."""
    cluster = serving(world, {})
    chosen = [["A key of spec.embedder.podTemplate.labels", "access/payroll"]]
    meta = {"name": "old", "namespace": "team", "labels": {LABEL_COMPONENT: "embedder"}}
    older: PodFacts = pod_facts({"metadata": {**meta, "annotations": {ANNOTATION_CHOICES: json.dumps(chosen)}}})
    for pods, expected in (((replace(older, controlled=True),), 0), ((older,), 1), ((), 1)):
        cluster.withdraw = lambda _, observed, pods=pods: replace(observed, pods=pods)  # type: ignore[misc]
        settle(cluster)
        assert cluster.replicas("mem-embedder") == expected, "a pod that only carries our labels stops nothing"


def test_an_embedder_that_others_scale_gets_back_the_pods_that_it_had(world: World) -> None:
    cluster = serving(world, deep_update(LABELLED, {"embedder": {"scaling": "External"}}), LABELS)
    cluster.children[MAIN]["spec"]["replicas"] = 3
    world.permitted = NOTHING
    settle(cluster)
    assert cluster.replicas("mem-embedder") == 0
    cluster.children[MAIN]["spec"]["replicas"] = 1
    settle(cluster)
    assert cluster.replicas("mem-embedder") == 0, "whoever scales it does not start it"
    world.permitted = LABELS
    settle(cluster)
    assert cluster.replicas("mem-embedder") == 3
    assert not cluster.children[MAIN]["metadata"]["annotations"][ANNOTATION_STOPPED]


def test_the_embedder_of_an_object_that_waits_for_its_deletion_is_stopped_and_given_back_too(world: World) -> None:
    cluster = serving(world, LABELLED, LABELS)
    cluster.withdraw = lambda _, observed: replace(observed, referring=("other/mem",))
    cluster.delete(FINALIZER, deletionPolicy="Delete", graph={"enabled": True})
    for permitted, expected in ((NOTHING, 0), (LABELS, 1)):
        world.permitted = permitted
        cluster.reconcile()
        assert cluster.replicas("mem-embedder") == expected


@pytest.mark.finding("security S4")
def test_during_a_swap_each_embedder_is_stopped_by_what_its_own_pods_have(world: World) -> None:
    """The active model's pods were made from the former specification, with its label, and the next model's not."""
    cluster = serving(world, LABELLED, LABELS)
    cluster.manifest["spec"] = world.manifest(embedding=NEXT, embedder={"priorityClassName": "high"})["spec"]
    for permitted, expected in (
        (replace(LABELS, priority_classes=("high",)), (1, 1)),
        (Permitted(priority_classes=("high",)), (0, 1)),
        (LABELS, (1, 0)),
        (replace(LABELS, priority_classes=("high",)), (1, 1)),
    ):
        world.permitted = permitted
        settle(cluster)
        assert (cluster.replicas("mem-embedder"), cluster.replicas("mem-embedder-next")) == expected
        for kind, number in zip(("EmbedderReady", "ModelActive"), expected, strict=True):
            assert (cluster.condition(kind)["reason"] == "NotPermitted") is (number == 0)


@pytest.mark.parametrize("gate", [True, False])
def test_a_gate_that_would_ask_a_forbidden_embedder_says_what_ends_its_wait(world: World, *, gate: bool) -> None:
    """Another choice in the specification changes nothing of the active model's pods while the swap waits for them."""
    cluster = serving(world, LABELLED, LABELS)
    swap = {"gate": {"configMap": {"name": "labels"}, "maxRecallDrop": 0.5}} if gate else {}
    cluster.manifest["spec"] = world.manifest(embedding=NEXT, swap=swap)["spec"]
    world.permitted = NOTHING
    settle(cluster)
    assert ("or remove spec.swap.gate" in cluster.condition("ModelActive")["message"]) is gate


def test_what_admission_has_added_to_a_template_is_no_choice_of_the_author(world: World) -> None:
    cluster = serving(world, {})
    template = cluster.children[MAIN]["spec"]["template"]
    template["metadata"]["labels"]["sidecar.example/injected"] = "true"
    template["spec"]["containers"][0]["image"] = "mirror.example/emb:1"
    settle(cluster)
    assert cluster.replicas("mem-embedder") == 1


@pytest.mark.parametrize("record", ["{", "[[1,2]]", '[["unknown","x"]]', "7", "[" * 100_000])
def test_a_record_that_somebody_has_edited_raises_no_error(record: str) -> None:
    assert recorded_choices({"metadata": {"annotations": {ANNOTATION_CHOICES: record}}}) == ()


@pytest.mark.finding("security S4")
async def test_an_invalid_specification_keeps_no_embedder_whose_pods_are_permitted_no_more(bench: Bench) -> None:
    bench.controller.permitted = LABELS
    bench.api.index["spec"] |= {"embedder": {**bench.api.index["spec"].get("embedder", {}), **LABELLED["embedder"]}}
    await bench.reconcile(3)
    place = ("Deployment", "team", "mem-embedder")
    assert bench.api.objects[place]["spec"]["replicas"] == 1
    bench.api.index["spec"]["embedding"]["dimensions"] = "many"
    await bench.reconcile()
    assert bench.api.condition("Ready")["reason"] == "InvalidSpec"
    assert bench.api.objects[place]["spec"]["replicas"] == 1
    bench.controller.permitted = NOTHING
    await bench.reconcile()
    assert bench.api.objects[place]["spec"]["replicas"] == 0
    assert "Deployment team/mem-embedder" in bench.api.condition("Ready")["message"]
