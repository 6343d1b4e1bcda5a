"""Pods that are never made, never start or never end: when they are reported, and which ordinary waits are not."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from memory_operator.api.reasons import Reason
from memory_operator.api.spec import FINALIZER, Manifest
from memory_operator.clients import object_facts
from memory_operator.controller.objects import child_labels
from memory_operator.reconcile.facts import DeletionFacts, JobFacts, JobState, PodFacts
from memory_operator.reconcile.jobs import pod_problem
from memory_operator.reconcile.plan import Delete, Plan
from memory_operator.reconcile.pod_start import with_overdue_problems
from memory_operator.resources import workers
from memory_recall.status import DatabaseFacts
from tests.unit.memory_operator.conftest import EMPTY, FULL, MODEL, START, World, condition
from tests.unit.memory_operator.test_operator_cache import controlled_by
from tests.unit.memory_operator.test_operator_controller import Bench, bench

__all__ = ["bench"]  # the fixture
NO_SCHEMA = replace(EMPTY, extension_version="0.8.7")
SWAPPED = {"embedding": {"model": "bge-small-en-v1.5", "dimensions": 384}}
GATE = {"swap": {"gate": {"configMap": {"name": "questions"}}}}
LIMIT = timedelta(seconds=60)


def migration(world: World, **changes: Any) -> JobFacts:
    config = workers.config_fingerprint(world.index(), world.images, "migrate")
    return replace(JobFacts("mem-migrate-1", "migrate", config, 0, JobState.ACTIVE), **changes)


def decide(world: World, waited: timedelta, pods: tuple[PodFacts, ...] = (), **job: Any) -> Plan:
    """Decide on a migration whose Job has had no pod for a time."""
    found = migration(world, without_pod_since=world.now - waited, **job)
    return world.decide(database=NO_SCHEMA, jobs=(found,), pods=pods)


def test_a_job_whose_pod_is_never_made_is_reported_after_a_minute_with_what_tells_the_cause(world: World) -> None:
    early, late = decide(world, LIMIT - timedelta(seconds=1)), decide(world, LIMIT)
    assert condition(early, "SchemaReady")["reason"] == "Migrating"
    said = condition(late, "SchemaReady")
    assert (said["status"], said["reason"]) == ("False", "PodRejected")
    assert "no pod" in said["message"]
    assert "kubectl describe job mem-migrate-1 -n team" in said["message"]
    assert condition(late, "Stalled")["status"] == "True", "a quota or an admission control is a person's to change"
    assert not [one for one in late.actions if isinstance(one, Delete)], "Kubernetes makes the pod as soon as it may"


@pytest.mark.parametrize(("failed", "seconds"), [(1, 10), (3, 40), (6, 320), (20, 600)])
def test_kubernetes_own_back_off_between_two_pods_of_a_job_is_waited_for(
    world: World, failed: int, seconds: int
) -> None:
    back_off = timedelta(seconds=seconds)
    assert condition(decide(world, back_off, failed_pods=failed), "SchemaReady")["reason"] == "Migrating"
    assert condition(decide(world, back_off + LIMIT, failed_pods=failed), "SchemaReady")["reason"] == "PodRejected"


def test_the_problem_of_a_pod_that_is_there_comes_before_the_time_without_one(world: World) -> None:
    pod = replace(object_facts.pod_facts(starting(PodScheduled=("False", START))), component="migrate")
    assert condition(decide(world, 2 * LIMIT, (pod,)), "SchemaReady")["reason"] == "Unschedulable"


JOB = {
    "kind": "Job",
    "metadata": {
        "namespace": "team", "name": "mem-migrate-1",
        "labels": {
            "app.kubernetes.io/component": "migrate", "app.kubernetes.io/instance": "mem",
            "app.kubernetes.io/managed-by": "memory-operator",
        },
        "ownerReferences": controlled_by("memory-index.dev/v1alpha1", "MemoryIndex", "u-1"),
    },
}  # fmt: skip
OLD_POD = {
    "metadata": {
        **JOB["metadata"], "name": "mem-migrate-1-x",  # type: ignore[dict-item]
        "ownerReferences": controlled_by("batch/v1", "Job", "j-1"),
    },
    "status": {"phase": "Failed"},
}  # fmt: skip


async def migrating(bench: Bench, world: World, *, database: DatabaseFacts = NO_SCHEMA, **status: Any) -> None:
    """Observe a migration Job in this state for two minutes, every ten seconds."""
    bench.database = database
    labels = {"memory-index.dev/config": workers.config_fingerprint(world.index(), world.images, "migrate")}
    metadata: Manifest = {**JOB["metadata"], "labels": {**JOB["metadata"]["labels"], **labels}}  # type: ignore[dict-item, index]
    bench.put("Job", "team", "mem-migrate-1", {**JOB, "metadata": metadata, **status})
    for _ in range(13):
        await bench.reconcile()
        world.now += timedelta(seconds=10)


async def test_a_job_without_a_pod_is_noticed_within_two_minutes_and_its_pod_ends_the_report(
    bench: Bench, world: World
) -> None:
    await migrating(bench, world, status={"startTime": "2026-01-01T12:00:00Z"})
    assert bench.api.condition("SchemaReady")["reason"] == "PodRejected"
    pod = {**OLD_POD, "status": {"phase": "Running"}}
    bench.put("Pod", "team", "mem-migrate-1-x", pod)
    await bench.reconcile()
    assert bench.api.condition("SchemaReady")["reason"] == "Migrating"
    assert bench.api.condition("Stalled")["status"] == "False"
    del bench.api.objects["Pod", "team", "mem-migrate-1-x"]
    await bench.reconcile()
    assert bench.api.condition("SchemaReady")["reason"] == "Migrating", "an evicted pod is replaced in a moment"


async def test_a_suspended_job_needs_no_pod(bench: Bench, world: World) -> None:
    """A queue of Jobs, such as Kueue, suspends them until there is room."""
    await migrating(bench, world, spec={"suspend": True})
    said = bench.api.condition("SchemaReady")
    assert said["reason"] == "Migrating"
    assert "Job mem-migrate-1, which somebody else has suspended" in said["message"]


async def test_a_job_between_two_pods_is_not_taken_for_one_without(bench: Bench, world: World) -> None:
    bench.put("Pod", "team", "mem-migrate-1-x", OLD_POD)
    await migrating(bench, world, status={"failed": 5})
    assert bench.api.condition("SchemaReady")["reason"] == "Migrating"


async def test_a_completed_job_whose_pods_are_removed_is_not_taken_for_one_without(bench: Bench, world: World) -> None:
    done = {"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T12:00:00Z"}
    await migrating(bench, world, database=FULL, status={"conditions": [done], "succeeded": 1})
    assert "PodRejected" not in str(bench.api.index["status"])


async def test_an_embedder_that_is_killed_at_its_memory_limit_is_reported_with_it(bench: Bench) -> None:
    bench.database = FULL
    await bench.reconcile()
    labels = {**child_labels("mem"), "app.kubernetes.io/component": "embedder"}
    ended = {"exitCode": 137, "reason": "OOMKilled"}
    container = {"name": "embedder", "state": {"running": {}}, "lastState": {"terminated": ended}}
    status = {"phase": "Running", "containerStatuses": [container]}
    meta = {"labels": labels, "ownerReferences": controlled_by("apps/v1", "ReplicaSet", "r-1")}
    bench.put("Pod", "team", "mem-embedder-1", {"metadata": meta, "status": status})
    deployment = bench.api.objects["Deployment", "team", "mem-embedder"]
    bench.api.objects["Deployment", "team", "mem-embedder"] = {
        **deployment,
        "status": {"replicas": 1, "updatedReplicas": 1},
    }
    await bench.reconcile()
    said = bench.api.condition("EmbedderReady")
    assert said["reason"] == "OOMKilled"
    assert "its memory limit of 2Gi. Raise spec.embedder.resources.limits.memory." in said["message"]


async def test_a_job_that_undoes_the_migrations_is_noticed_too(bench: Bench, world: World) -> None:
    bench.database = FULL
    bench.api.index["metadata"] |= {"deletionTimestamp": "2026-01-01T12:00:00Z", "finalizers": [FINALIZER]}
    bench.api.index["spec"]["deletionPolicy"] = "Delete"
    for _ in range(9):
        await bench.reconcile()
        world.now += timedelta(seconds=10)
    assert bench.api.condition("Ready")["reason"] == "PodRejected"


def starting(**conditions: tuple[str, Any]) -> Manifest:
    """A pod whose container the kubelet has not created yet."""
    found = [
        {"type": kind, "status": status, "lastTransitionTime": at.isoformat()}
        | ({"reason": "Unschedulable"} if (kind, status) == ("PodScheduled", "False") else {})
        for kind, (status, at) in conditions.items()
    ]
    labels = {"app.kubernetes.io/component": "swap"}
    waiting = {"name": "memory", "ready": False, "state": {"waiting": {"reason": "ContainerCreating"}}}
    return {
        "metadata": {"namespace": "team", "name": "mem-swap-x", "labels": labels},
        "status": {"phase": "Pending", "conditions": found, "containerStatuses": [waiting]},
    }


def swapping(world: World, pod: Manifest, seconds: float, written: Plan | None = None) -> Plan:
    """Decide on a swap with a gate some seconds after its pod was given a node; `written` is the plan before."""
    _, settled, _ = world.settled()
    index = world.index(**SWAPPED, **GATE)
    config = workers.swap_job(index, world.images, 0, active=MODEL.name, dimensions=384)["metadata"]["labels"]
    job = JobFacts("mem-swap-1", "swap", config["memory-index.dev/config"], 0, JobState.ACTIVE)
    world.now = START + timedelta(seconds=seconds)
    facts = {"jobs": (job,), "pods": (object_facts.pod_facts(pod),), "next_embedder": settled.embedder}
    if written:
        index = index.model_copy(update={"status": written.status})
    return world.decide(index, **{**vars(settled), **facts})


def test_a_pod_whose_volumes_are_never_mounted_is_reported_with_what_it_mounts(world: World) -> None:
    pod = starting(PodScheduled=("True", START), PodReadyToStartContainers=("False", START))
    assert condition(swapping(world, pod, 59), "ModelActive")["reason"] == "Swapping"
    plan = swapping(world, pod, 60)
    said = condition(plan, "ModelActive")
    assert (said["status"], said["reason"]) == ("False", "PodNotReadyToStart")
    assert "ConfigMap questions" in said["message"]
    assert "Secret dsn" in said["message"]
    assert "kubectl describe pod mem-swap-x -n team" in said["message"]
    assert condition(plan, "Stalled")["status"] == "False", "a Secret or a disk may still be delivered"
    later = swapping(world, pod, 180, written=plan)
    assert condition(later, "Stalled")["status"] == "True"


@pytest.mark.parametrize(
    "conditions",
    [
        {"PodScheduled": ("True", START), "PodReadyToStartContainers": ("True", START)},
        {"PodScheduled": ("True", START)},
        {"PodScheduled": ("True", START), "PodReadyToStartContainers": ("False", START + timedelta(seconds=590))},
        {"PodReadyToStartContainers": ("False", START)},
    ],
    ids=["an image is pulled", "Kubernetes 1.28 does not tell", "since a moment", "no node yet"],
)
def test_a_pod_that_starts_as_it_should_is_no_problem(world: World, conditions: Any) -> None:
    plan = swapping(world, starting(**conditions), 600)
    assert condition(plan, "ModelActive")["reason"] == "Swapping"


def test_a_pod_that_has_ended_or_runs_is_not_waiting_for_its_volumes() -> None:
    """The kubelet sets the condition to False as well when it takes the pod's sandbox down."""
    for phase in ("Running", "Succeeded", "Failed"):
        pod = starting(PodScheduled=("True", START), PodReadyToStartContainers=("False", START))
        pod["status"]["phase"] = phase
        assert object_facts.pod_facts(pod).unprepared_since is None


def ending(name: str = "mem-swap-x", *, deleted: bool = False, phase: str = "Running") -> Manifest:
    """A pod that runs on although it is deleted, or although its own container has ended."""
    meta: Manifest = {"namespace": "team", "name": name, "labels": {"app.kubernetes.io/component": "swap"}}
    own: Manifest = {"name": "memory", "state": {"terminated": {"exitCode": 0, "finishedAt": START.isoformat()}}}
    if deleted:
        meta["deletionTimestamp"], own["state"] = START.isoformat(), {"running": {}}
    proxy = {"name": "istio-proxy", "ready": True, "state": {"running": {}}}
    return {"metadata": meta, "status": {"phase": phase, "containerStatuses": [own, proxy]}}


@pytest.mark.parametrize(
    ("deleted", "remedy"),
    [
        (True, "kubectl get pod mem-swap-x -n team -o wide` names its node"),
        (False, 'sidecar.istio.io/inject: "false"'),
    ],
    ids=["a lost node", "the proxy of a mesh"],
)
def test_a_jobs_pod_that_should_have_ended_is_reported_after_a_minute_with_what_keeps_it(
    world: World, *, deleted: bool, remedy: str
) -> None:
    """Kubernetes makes no other pod meanwhile, and a backfill would keep the sync worker from running."""
    pod = ending(deleted=deleted)
    assert condition(swapping(world, pod, 59), "ModelActive")["reason"] == "Swapping"
    plan = swapping(world, pod, 60)
    said = condition(plan, "ModelActive")
    assert (said["status"], said["reason"]) == ("False", "PodNotEnding")
    assert remedy in said["message"]
    assert condition(plan, "Stalled")["status"] == "False", "the node may come back"
    assert condition(swapping(world, pod, 180, written=plan), "Stalled")["status"] == "True"
    assert (
        condition(swapping(world, ending(deleted=deleted, phase="Failed"), 60), "ModelActive")["reason"] == "Swapping"
    )


def test_a_former_pod_that_does_not_end_is_not_reported_while_another_one_runs(world: World) -> None:
    former, runs = (replace(object_facts.pod_facts(ending(deleted=one)), ending_since=None) for one in (True, False))
    overdue = with_overdue_problems(
        world.index(), world.observed(pods=(replace(former, ending_since=START), runs)), START + LIMIT
    )
    assert pod_problem(overdue, "swap") is None
    alone = replace(overdue, pods=overdue.pods[:1])
    assert (found := pod_problem(alone, "swap")) is not None
    assert found.reason is Reason.POD_NOT_ENDING


def test_a_deletion_that_waits_for_a_pod_which_does_not_end_names_it(world: World) -> None:
    pod = replace(object_facts.pod_facts(ending("mem-backfill-x", deleted=True)), component="backfill")
    index = world.index(deletionPolicy="Delete").model_copy(update={"deleted_at": START, "finalizers": (FINALIZER,)})
    world.now = START + LIMIT
    plan = world.conclude(index, DeletionFacts((), observed=world.observed(pods=(pod,))))
    said = condition(plan, "Ready")
    assert said["reason"] == "PodNotEnding"
    assert said["message"].startswith("Waiting for the workers' pods to end. Pod team/mem-backfill-x is deleted")
