"""Roll-outs: when one is under way, which pods speak for it, what is replaced first, and whose turn it is."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from memory_operator.api.reasons import Reason
from memory_operator.api.spec import MemoryIndex
from memory_operator.clients import object_facts
from memory_operator.controller.rollouts import RolloutTurn, rolls_out_default_image
from memory_operator.reconcile.facts import DeploymentFacts, Observed, PodFacts, Problem
from memory_operator.reconcile.plan import Apply, Delete, Plan
from memory_operator.resources import embedder
from memory_operator.resources.common import Images
from tests.unit.memory_operator.conftest import START, Cluster, World, condition, deep_update

NEW = Images(operator="op:1", embedder="emb:2")
SERVING = DeploymentFacts(replicas=1, ready=1, current=True, updated=1, image="emb:1")
GPU = {"embedder": {"gpuLayers": -1}}


def deployment(**status: Any) -> dict[str, Any]:
    return {
        "metadata": {"generation": 2},
        "spec": {"replicas": 2, "template": {"spec": {"containers": [{"image": "emb:1"}]}}},
        "status": {"observedGeneration": 2, **status},
    }


@pytest.mark.finding("D6")
def test_a_deployment_is_current_only_once_no_pod_of_an_older_template_is_left() -> None:
    beside_an_old_pod = object_facts.deployment_facts(deployment(replicas=3, updatedReplicas=2, readyReplicas=2))
    assert not beside_an_old_pod.current
    alone = object_facts.deployment_facts(deployment(replicas=2, updatedReplicas=2, readyReplicas=1))
    assert (alone.current, alone.ready, alone.updated, alone.image) == (True, 1, 2, "emb:1")


def test_a_deployment_that_its_controller_has_not_seen_is_not_current() -> None:
    assert not object_facts.deployment_facts(deployment(observedGeneration=1, replicas=2, updatedReplicas=2)).current


def test_a_passed_deadline_is_read_from_the_deployment() -> None:
    late = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    assert object_facts.deployment_facts(deployment(conditions=[late])).deadline_exceeded
    done = {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}
    assert not object_facts.deployment_facts(deployment(conditions=[done])).deadline_exceeded


def decide(world: World, observed: Observed, index: MemoryIndex | None = None, **facts: Any) -> Plan:
    return world.decide(index, **vars(replace(observed, **facts)))


def test_an_old_pod_that_serves_is_said_and_does_not_make_the_object_ready(world: World) -> None:
    _, observed, _ = world.settled()
    found = condition(decide(world, observed, embedder=replace(SERVING, current=False)), "EmbedderReady")
    assert (found["status"], found["reason"]) == ("False", "RollingOut")
    assert "An older pod serves meanwhile." in found["message"]


def test_a_roll_out_that_somebody_has_paused_says_so_and_how_it_goes_on(world: World) -> None:
    """Kubernetes counts no deadline meanwhile."""
    found = deployment(replicas=1, updatedReplicas=0, readyReplicas=1)
    paused = object_facts.deployment_facts({**found, "spec": {**found["spec"], "paused": True}})
    _, observed, _ = world.settled()
    said = condition(decide(world, observed, embedder=paused), "EmbedderReady")
    assert (said["status"], said["reason"]) == ("False", "RollingOut")
    assert "Somebody has paused it. Resume it: `kubectl rollout resume`." in said["message"]
    current = replace(paused, current=True, replicas=1)
    assert condition(decide(world, observed, embedder=current), "EmbedderReady")["status"] == "True"


def test_the_failure_of_an_older_pod_is_not_the_failure_of_its_correction(world: World) -> None:
    _, observed, _ = world.settled()
    failing = Problem(Reason.CRASH_LOOP, "Pod old keeps failing.")
    old = PodFacts("old", "embedder", problem=failing, created_at=START)
    new = PodFacts("new", "embedder", created_at=START + timedelta(seconds=5))
    rolling = replace(SERVING, ready=0, current=False)
    assert condition(decide(world, observed, embedder=rolling, pods=(old, new)), "Stalled")["status"] == "False"
    new = replace(new, problem=failing)
    assert condition(decide(world, observed, embedder=rolling, pods=(old, new)), "Stalled")["status"] == "True"


@pytest.mark.parametrize("gone", [{"deleting": True}, {"ended": True}])
def test_a_pod_that_ends_does_not_speak_for_the_deployment(world: World, gone: dict[str, bool]) -> None:
    _, observed, _ = world.settled()
    pod = PodFacts("x", "embedder", problem=Problem(Reason.CRASH_LOOP, "Pod x keeps failing."), **gone)
    found = condition(decide(world, observed, embedder=replace(SERVING, ready=0), pods=(pod,)), "EmbedderReady")
    assert found["reason"] == "Starting"


def test_another_number_of_pods_is_no_roll_out(cluster: Cluster) -> None:
    cluster.until_ready()
    spec = {"embedder": {"gpuLayers": 0, "minReplicas": 3, "maxReplicas": 3}}
    cluster.manifest = {**cluster.manifest, "spec": cluster.world.manifest(**spec)["spec"]}
    cluster.reconcile()
    assert cluster.replicas("mem-embedder") == 3
    assert cluster.condition("Ready")["status"] == "True"


@pytest.mark.finding("D13")
def test_one_pod_on_a_gpu_is_recreated_and_the_gap_is_said(world: World) -> None:
    index, observed, _ = world.settled(**GPU)
    strategy = embedder.deployment(index, world.images, replicas=1)["spec"]["strategy"]
    assert strategy == {"type": "Recreate"}
    found = condition(decide(world, observed, index, embedder=replace(SERVING, current=False)), "EmbedderReady")
    assert "by words alone meanwhile, since a GPU holds one model" in found["message"]


@pytest.mark.parametrize(
    ("spec", "rolling"),
    [
        ({"gpuLayers": -1, "maxReplicas": 2}, {"maxSurge": 0, "maxUnavailable": 1}),
        ({"gpuLayers": 0}, {"maxSurge": 1, "maxUnavailable": 0}),
    ],
)
def test_other_embedders_are_rolled_out_pod_by_pod(world: World, spec: dict[str, Any], rolling: Any) -> None:
    strategy = embedder.deployment(world.index(embedder=spec), world.images, replicas=1)["spec"]["strategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": rolling}


def test_a_status_that_is_older_than_the_template_counts_no_pod_of_it() -> None:
    stale = object_facts.deployment_facts(
        deployment(observedGeneration=1, replicas=2, updatedReplicas=2, readyReplicas=2)
    )
    assert (stale.total, stale.updated, stale.updated_and_ready) == (2, 0, 0)


@pytest.mark.parametrize(
    ("spec", "overlaps"),
    [({"gpuLayers": 0}, True), ({"gpuLayers": -1, "maxReplicas": 2}, True), ({"gpuLayers": -1}, False)],
)
def test_pods_overlap_for_as_long_as_callers_need_to_find_the_new_one(
    world: World, spec: dict[str, Any], *, overlaps: bool
) -> None:
    made = embedder.deployment(world.index(embedder=spec), world.images, replicas=1)
    pod = made["spec"]["template"]["spec"]
    command = pod["containers"][0]["command"]
    delay = int(command[command.index("--shutdown-delay-seconds") + 1]) if overlaps else 0
    assert ("minReadySeconds" in made["spec"], "--shutdown-delay-seconds" in command) == (overlaps, overlaps)
    assert pod["terminationGracePeriodSeconds"] == 60 + delay


def applied(plan: Plan, kind: str) -> list[dict[str, Any]]:
    return [a.manifest for a in plan.actions if isinstance(a, Apply) and a.manifest["kind"] == kind]


def test_several_pods_get_a_disruption_budget_and_one_pod_loses_it(world: World) -> None:
    several = world.index(embedder={"maxReplicas": 2})
    _, observed, _ = world.settled()
    (budget,) = applied(decide(world, observed, several), "PodDisruptionBudget")
    assert budget["spec"]["maxUnavailable"] == 1
    children = {
        **observed.children,
        ("PodDisruptionBudget", "mem-embedder"): deep_update(budget, {"metadata": {"uid": "b-1"}}),
    }
    removed = decide(world, replace(observed, children=children))
    assert removed.actions == (Delete("PodDisruptionBudget", "team", "mem-embedder", "b-1"),)


@pytest.mark.finding("D15")
def test_the_number_of_pods_is_left_to_another_scaler(world: World) -> None:
    """It is sent with every other change all the same, since the API server would take one pod for a missing number."""
    index, observed, _ = world.settled(embedder={"scaling": "External"})
    scaled = {**observed.children["Deployment", "mem-embedder"]}
    scaled["spec"] = {**scaled["spec"], "replicas": 7}
    children = {**observed.children, ("Deployment", "mem-embedder"): scaled}
    plan = decide(world, observed, index, children=children, embedder=replace(SERVING, replicas=7, ready=7))
    assert plan.actions == ()
    assert plan.status is not None
    assert plan.status["embedder"]["ready"] == "7/7"
    world.images = NEW
    plan = decide(world, observed, index, children=children, embedder=replace(SERVING, replicas=7, ready=7))
    (changed,) = applied(plan, "Deployment")
    assert changed["spec"]["replicas"] == 7


def waiting(world: World, **facts: Any) -> Plan:
    """A plan for an object that may not roll out the new default image yet."""
    index, observed, _ = world.settled()
    world.images = NEW
    written = {**index.status, "observedGeneration": facts.pop("seen", 1)}
    facts = {"embedder": SERVING, "rollout_admitted": False, **facts}
    return decide(world, observed, index.model_copy(update={"status": written}), **facts)


@pytest.mark.finding("D27")
def test_an_embedder_keeps_its_pods_until_it_is_its_turn(world: World) -> None:
    plan = waiting(world)
    assert applied(plan, "Deployment") == []
    assert condition(plan, "Ready")["status"] == "True"
    assert "The new default image waits" in condition(plan, "EmbedderReady")["message"]


def test_an_embedder_that_waits_is_still_scaled(world: World) -> None:
    (deployment,) = applied(waiting(world, embedder=replace(SERVING, replicas=0, ready=0)), "Deployment") or [None]
    assert deployment is None, "the live object has the number that is wanted"
    index, observed, _ = world.settled(embedder={"minReplicas": 2, "maxReplicas": 2})
    live = observed.children["Deployment", "mem-embedder"]
    fewer = {**live, "spec": {**live["spec"], "replicas": 1}}
    children = {**observed.children, ("Deployment", "mem-embedder"): fewer}
    world.images = NEW
    plan = decide(world, observed, index, children=children, embedder=SERVING, rollout_admitted=False)
    (deployment,) = applied(plan, "Deployment")
    assert deployment["spec"]["replicas"] == 2
    assert deployment["spec"]["template"] == live["spec"]["template"]


def test_an_image_of_the_specification_never_waits(world: World) -> None:
    index, observed, _ = world.settled(embedder={"image": "own:1"})
    world.images = NEW
    plan = decide(world, observed, index, embedder=replace(SERVING, image="own:1"))
    assert not rolls_out_default_image(index, observed, NEW, plan)


def two(world: World) -> tuple[MemoryIndex, MemoryIndex, Observed, Observed]:
    """Two objects, the facts of one that serves, and those of one whose pods of the new image are not ready."""
    first, observed, _ = world.settled()
    second = first.model_copy(update={"namespace": "other"})
    serving = replace(observed, embedder=SERVING)
    return first, second, serving, replace(observed, embedder=replace(SERVING, ready=0, current=False, updated=0))


def test_the_next_object_has_its_turn_when_the_first_one_serves_again(world: World) -> None:
    first, second, serving, rolling = two(world)
    turn = RolloutTurn()
    assert turn.admits(first, serving, START)
    assert not turn.admits(second, serving, START)
    turn.observe(first, rolling)
    assert not turn.admits(second, serving, START), "an image that cannot run stops at the first object"
    turn.observe(first, serving)
    assert turn.admits(second, serving, START)
    turn.release((second.namespace, second.name))
    assert turn.admits(first, serving, START), "an object that is gone holds up nobody"


def test_an_embedder_that_does_not_serve_takes_nobodys_turn(world: World) -> None:
    """It may lack a GPU, which says nothing about the image, and would keep the image from everybody else."""
    first, second, serving, rolling = two(world)
    turn = RolloutTurn()
    assert turn.admits(first, rolling, START)
    assert turn.admits(second, serving, START)
    assert turn.admits(first, rolling, START), "nothing is lost by replacing its pods, whoever has the turn"


def test_an_edit_ends_the_turn_since_it_may_be_why_no_pod_is_ready(world: World) -> None:
    """An author could keep the image from others by a node selector that no node has."""
    first, second, serving, rolling = two(world)
    turn = RolloutTurn()
    assert turn.admits(first, serving, START)
    turn.observe(first.model_copy(update={"generation": first.generation + 1}), rolling)
    assert turn.admits(second, serving, START)


def test_an_hour_ends_the_turn(world: World) -> None:
    """Whatever the reason is, the others get the image, one an hour, and the log names who does not become ready."""
    first, second, serving, rolling = two(world)
    turn = RolloutTurn()
    assert turn.admits(first, serving, START)
    turn.observe(first, rolling)
    assert not turn.admits(second, serving, START + timedelta(minutes=59))
    with capture_logs() as said:
        assert turn.admits(second, serving, START + timedelta(hours=1))
    assert [(one["log_level"], one["namespace"]) for one in said] == [("warning", first.namespace)]
