"""During a swap the active model's embedder and the sync worker are scaled, with the pods that they have."""

from dataclasses import replace
from typing import Any

import pytest

from memory_operator.api.reasons import Reason
from memory_operator.controller.rollouts import rolls_out_default_image
from memory_operator.reconcile.core import reconcile
from memory_operator.reconcile.facts import EmbedderLoad, JobState, PodFacts, Problem
from memory_operator.reconcile.plan import Apply, Plan
from memory_operator.resources.common import Images
from memory_recall.schema.models_sql import RecordedModel
from memory_recall.status import NO_INDEX, RowCounts
from tests.unit.memory_operator.conftest import (
    FULL,
    HOSTED,
    HOSTED_MODEL,
    MODEL,
    NEXT_MODEL,
    Cluster,
    World,
    condition,
    swap_record,
)

HOME = "http://mem-embedder.team.svc:8080"
NEXT = {"model": "bge-small-en-v1.5", "dimensions": 384}
GATE = {"gate": {"configMap": {"name": "questions"}}}
ZERO = {"gpuLayers": 0, "minReplicas": 0, "scaleDownDelaySeconds": 0}
PENDING = RowCounts(total=1000, embedded=950, pending=40, sensitive=10)


def change(cluster: Cluster, **spec: Any) -> None:
    status = cluster.manifest["status"]
    metadata = {**cluster.manifest["metadata"], "generation": cluster.manifest["metadata"]["generation"] + 1}
    cluster.manifest = {**cluster.world.manifest(**spec), "status": status, "metadata": metadata}


def reconciled(cluster: Cluster, times: int = 4) -> Plan:
    plans = [cluster.reconcile() for _ in range(times)]
    return plans[-1]


def template(cluster: Cluster, name: str) -> dict[str, Any]:
    found: dict[str, Any] = cluster.children["Deployment", name]["spec"]["template"]
    return found


@pytest.fixture
def idle(world: World) -> Cluster:
    """A settled cluster whose embedder has no pod, since nothing is queued."""
    cluster = Cluster(world, world.manifest(embedder=ZERO))
    cluster.database = replace(FULL, active_model=replace(MODEL, embedder_url=HOME))
    reconciled(cluster)
    assert cluster.replicas("mem-embedder") == 0
    return cluster


@pytest.mark.parametrize(
    ("layers", "edited", "reason"), [(-1, 0, "GpuNotUsed"), (0, -1, "Starting")], ids=["gpu to cpu", "cpu to gpu"]
)
def test_what_the_active_pod_was_told_says_whether_it_must_use_a_gpu(
    world: World, layers: int, edited: int, reason: str
) -> None:
    """The specification says it of the next model's pods alone."""
    cluster = Cluster(world, world.manifest(embedder={"gpuLayers": layers}))
    cluster.database = replace(FULL, active_model=replace(MODEL, embedder_url=HOME))
    reconciled(cluster)
    change(cluster, embedding=NEXT, embedder={"gpuLayers": edited})
    reconciled(cluster)
    observed = cluster.observe()
    assert observed.embedder is not None
    restarting = {
        "embedder": replace(observed.embedder, ready=0),
        "pods": (PodFacts("mem-embedder-x", "embedder", running=True),),
        "loads": (EmbedderLoad("mem-embedder-x", device="cpu"),),
    }
    said = condition(world.decide(cluster.index, **vars(replace(observed, **restarting))), "EmbedderReady")
    assert (said["status"], said["reason"]) == ("False", reason)
    assert ("until it is replaced" in said["message"]) is (reason == "GpuNotUsed")


def refuse(cluster: Cluster) -> None:
    """Let the swap's Job end as it does when the gate refuses the next model."""
    cluster.finish("swap", JobState.FAILED, Problem(Reason.SWAP_REFUSED, "active 0.800, next 0.500"))
    cluster.change(swap=swap_record("refused", "active 0.800, next 0.500", "refused"), next_model=NEXT_MODEL)


@pytest.mark.parametrize(
    "spec", [{"embedding": NEXT, "embedder": ZERO}, HOSTED], ids=["to a model of our own", "to a hosted model"]
)
def test_an_idle_embedder_gets_a_pod_since_the_gate_asks_it(idle: Cluster, spec: dict[str, Any]) -> None:
    before = template(idle, "mem-embedder")
    change(idle, **spec, swap=GATE)
    idle.reconcile()
    assert idle.replicas("mem-embedder") == 1
    assert template(idle, "mem-embedder") == before
    assert idle.condition("EmbedderReady")["reason"] == "Starting"
    reconciled(idle)
    assert idle.replicas("mem-embedder") == 1
    assert idle.condition("EmbedderReady")["status"] == "True"
    assert idle.running() == ["swap"]


def test_an_idle_embedder_gets_no_pod_for_a_swap_without_a_gate(idle: Cluster) -> None:
    change(idle, embedding=NEXT, embedder=ZERO)
    reconciled(idle)
    assert idle.replicas("mem-embedder") == 0
    assert idle.condition("EmbedderReady")["reason"] == "ScaledToZero"


@pytest.mark.parametrize(
    "need", [{"rows": PENDING}, {"seconds_since_wanted": 1.0}], ids=["a pending row", "a recall that missed it"]
)
def test_what_wakes_an_idle_embedder_wakes_it_during_a_swap(idle: Cluster, need: dict[str, Any]) -> None:
    """The message of ScaledToZero promises it."""
    change(idle, embedding=NEXT, embedder=ZERO)
    reconciled(idle)
    assert "A pending row or a recall by our library starts a pod" in idle.condition("EmbedderReady")["message"]
    idle.change(**need)
    reconciled(idle)
    assert idle.replicas("mem-embedder") == 1


def test_an_edit_of_the_bounds_applies_to_the_active_embedder(idle: Cluster) -> None:
    before = template(idle, "mem-embedder")
    change(idle, embedding=NEXT, embedder={**ZERO, "minReplicas": 1, "resources": {"limits": {"memory": "3Gi"}}})
    reconciled(idle)
    assert idle.replicas("mem-embedder") == 1
    assert template(idle, "mem-embedder") == before, "the other fields are for the next model"


def test_after_a_refusal_the_embedder_may_idle_until_the_gate_is_changed(idle: Cluster) -> None:
    change(idle, embedding=NEXT, embedder=ZERO, swap=GATE)
    reconciled(idle)
    refuse(idle)
    reconciled(idle)
    assert (idle.replicas("mem-embedder"), idle.running()) == (0, [])
    assert idle.condition("ModelActive")["reason"] == "SwapRefused"
    change(idle, embedding=NEXT, embedder=ZERO, swap={"gate": {"configMap": {"name": "more-questions"}}})
    reconciled(idle)
    assert (idle.replicas("mem-embedder"), idle.running()) == (1, ["swap"])


def test_the_number_of_pods_follows_the_queue_and_is_another_scalers_where_that_is_asked_for(idle: Cluster) -> None:
    busy = (EmbedderLoad("mem-embedder-0", queued_tokens=1e6, tokens_per_second=100.0),)
    for scaling, expected in (("Operator", [3]), ("External", [])):
        change(idle, embedding=NEXT, embedder={**ZERO, "maxReplicas": 3, "scaling": scaling}, swap=GATE)
        assert [one["spec"]["replicas"] for one in applied(idle, "mem-embedder", loads=busy)] == expected


def test_an_external_embedder_in_the_specification_takes_no_pod_from_the_active_ones(world: World) -> None:
    """Bounds mean nothing beside `external`, so those of the specification are not of the embedder that serves."""
    cluster = Cluster(world, world.manifest(embedder={"gpuLayers": 0, "minReplicas": 3, "maxReplicas": 3}))
    cluster.database = replace(FULL, active_model=replace(MODEL, embedder_url=HOME))
    reconciled(cluster)
    change(cluster, embedding=NEXT, embedder={"external": {"url": "http://e.ml.svc:8080"}})
    reconciled(cluster)
    assert cluster.replicas("mem-embedder") == 3
    assert "Deployment team/mem-embedder serves all-MiniLM-L6-v2" in cluster.condition("EmbedderReady")["message"]


def test_another_number_of_pods_takes_no_turn_of_a_roll_out(idle: Cluster) -> None:
    change(idle, embedding=NEXT, embedder=ZERO, swap=GATE)
    idle.world.images = images = Images(operator="op:1", embedder="emb:2")
    embedder = idle.observe().embedder
    assert embedder is not None
    observed = replace(idle.observe(), embedder=replace(embedder, image="emb:1"))
    assert not rolls_out_default_image(idle.index, observed, images, decide(idle, embedder=observed.embedder))


def test_a_deployment_of_another_model_is_neither_scaled_nor_taken_for_the_active_ones(idle: Cluster) -> None:
    """So it is after `memory swap rollback`, while the specification still names the former next model."""
    idle.change(active_model=RecordedModel(3, "bge-large-en-v1.5", None, 384), rows=PENDING)
    change(idle, embedding=NEXT, embedder=ZERO, swap=GATE)
    reconciled(idle)
    assert idle.replicas("mem-embedder") == 0
    found = idle.condition("EmbedderReady")
    assert (found["status"], found["reason"]) == ("False", "EmbedderUnavailable")
    assert "serves another model than bge-large-en-v1.5" in found["message"]


@pytest.fixture
def filling(world: World) -> Cluster:
    """A cluster whose first backfill was under way when its specification was changed to another model."""
    cluster = Cluster(world, world.manifest())
    cluster.database = replace(
        FULL, active_model=replace(MODEL, embedder_url=HOME), index=NO_INDEX,
        rows=RowCounts(total=1000, embedded=500, pending=490, sensitive=10),
    )  # fmt: skip
    reconciled(cluster)
    assert (cluster.running(), cluster.replicas("mem-sync")) == (["backfill"], 0)
    change(cluster, embedding=NEXT)
    cluster.reconcile()
    return cluster


def test_the_sync_worker_waits_for_the_backfill_that_was_running_and_the_message_says_so(filling: Cluster) -> None:
    assert filling.replicas("mem-sync") == 0
    found = filling.condition("Backfilled")
    assert (found["status"], found["reason"]) == ("False", "Backfilling")
    assert "embeds the pending rows for all-MiniLM-L6-v2." in found["message"]
    reconciled(filling)
    assert filling.running() == ["backfill", "swap"]


def test_a_backfill_that_somebody_suspends_during_a_swap_is_said_to_be_suspended(filling: Cluster) -> None:
    (name,) = [name for name, job in filling.jobs.items() if job.component == "backfill"]
    filling.jobs[name] = replace(filling.jobs[name], suspended=True)
    filling.reconcile()
    found = filling.condition("Backfilled")
    assert (found["status"], found["reason"]) == ("False", "Backfilling")
    assert f"Job {name}, which somebody else has suspended, embeds the pending rows" in found["message"]


def test_a_backfill_that_no_node_has_room_for_is_named_during_a_swap(filling: Cluster) -> None:
    pod = PodFacts("mem-backfill-x", "backfill", problem=Problem(Reason.UNSCHEDULABLE, "0/1 nodes."))
    found = condition(decide(filling, pods=(pod,)), "Backfilled")
    assert found["reason"] == "Unschedulable"


@pytest.mark.parametrize("state", [JobState.COMPLETE, JobState.FAILED])
def test_the_sync_worker_embeds_what_the_backfill_has_left_also_while_the_swap_is_refused(
    filling: Cluster, state: JobState
) -> None:
    before = template(filling, "mem-sync")
    filling.reconcile()
    filling.finish("backfill", state)
    filling.change(rows=PENDING)
    refuse(filling)
    reconciled(filling)
    assert filling.replicas("mem-sync") == 1
    assert template(filling, "mem-sync") == before
    found = filling.condition("Backfilled")
    assert (found["status"], found["reason"]) == ("True", "Syncing")


def test_a_sync_worker_that_is_missing_is_called_missing_and_not_made_of_the_next_model(filling: Cluster) -> None:
    filling.finish("backfill")
    del filling.children["Deployment", "mem-sync"]
    reconciled(filling)
    assert ("Deployment", "mem-sync") not in filling.children
    found = filling.condition("Backfilled")
    assert (found["status"], found["reason"]) == ("False", "Waiting")
    assert "Deployment team/mem-sync is missing" in found["message"]


def test_the_sync_worker_of_another_model_is_not_started(filling: Cluster) -> None:
    filling.finish("backfill")
    filling.change(active_model=RecordedModel(3, "bge-large-en-v1.5", None, 384))
    reconciled(filling)
    assert filling.replicas("mem-sync") == 0
    found = filling.condition("Backfilled")
    assert (found["reason"], "is set up for another model" in found["message"]) == ("Waiting", True)


def test_the_sync_worker_is_left_alone_while_the_schema_is_not_current(filling: Cluster) -> None:
    filling.finish("backfill")
    filling.change(schema_revision="0000")
    reconciled(filling)
    assert filling.replicas("mem-sync") == 0


def test_consent_that_is_given_back_starts_the_sync_worker_of_the_hosted_model_again(world: World) -> None:
    cluster = Cluster(world, world.manifest(**HOSTED))
    cluster.database = replace(FULL, active_model=HOSTED_MODEL, embedding_dimensions=1024)
    reconciled(cluster)
    before = template(cluster, "mem-sync")
    change(cluster, embedding=NEXT)
    reconciled(cluster)
    assert (cluster.replicas("mem-sync"), template(cluster, "mem-sync")) == (0, before)
    change(cluster, embedding={**NEXT, "queryEgress": "Allowed"})
    reconciled(cluster)
    assert (cluster.replicas("mem-sync"), template(cluster, "mem-sync")) == (1, before)


@pytest.mark.parametrize("name", ["mem-embedder", "mem-sync"])
def test_a_suspended_object_scales_nothing(idle: Cluster, name: str) -> None:
    change(idle, embedding=NEXT, embedder=ZERO, swap=GATE, suspend=True)
    assert applied(idle, name) == []


def test_nothing_is_written_once_the_numbers_are_right(idle: Cluster) -> None:
    change(idle, embedding=NEXT, embedder=ZERO, swap=GATE)
    reconciled(idle)
    idle.change(next_model=NEXT_MODEL, swap=swap_record("gating"))
    idle.reconcile()
    idle.writes.clear()
    reconciled(idle)
    assert idle.writes == []


def decide(cluster: Cluster, /, **facts: Any) -> Plan:
    observed, world = replace(cluster.observe(), **facts), cluster.world
    return reconcile(cluster.index, observed, world.images, world.now, world.intervals, permitted=world.permitted)


def applied(cluster: Cluster, name: str, **facts: Any) -> list[dict[str, Any]]:
    """The Deployments of this name that a plan applies."""
    manifests = [action.manifest for action in decide(cluster, **facts).actions if isinstance(action, Apply)]
    return [one for one in manifests if (one["kind"], one["metadata"]["name"]) == ("Deployment", name)]
