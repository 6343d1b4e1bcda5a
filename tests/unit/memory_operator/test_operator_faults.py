"""Every obstacle is reported with its object and its remedy, and stalls only where a person must act."""

import re
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from memory_operator.api.conditions import GRACE_PERIOD
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import Manifest, MemoryIndex
from memory_operator.clients import object_facts
from memory_operator.reconcile.facts import (
    ClusterFacts,
    DeploymentFacts,
    EmbedderLoad,
    JobState,
    PodFacts,
    Problem,
)
from memory_operator.reconcile.indexing.backfill import needs_backfill_job
from memory_operator.reconcile.plan import Apply
from memory_operator.resources import embedder
from memory_operator.resources.cnpg import DatabaseObject, object_name
from memory_recall.schema.requirements.unique_ids import id_faults
from memory_recall.status import NO_INDEX, RowCounts
from tests.support.yaml_text import read_yaml
from tests.unit.memory_operator.conftest import EMPTY, FULL, HOSTED, START, VALID_INDEX, World, condition

HEALTHY = ClusterFacts("dbaas", "pg", phase=object_facts.HEALTHY_PHASE)
MIGRATED = replace(FULL, rows=RowCounts(total=10, pending=10), index=NO_INDEX)
UNSUITABLE = replace(MIGRATED, faults=tuple(id_faults('"public"."memories"', ())))
NO_EXTENSION = EMPTY
OURS = {
    "app.kubernetes.io/managed-by": "memory-operator",
    "memory-index.dev/name": "mem", "memory-index.dev/namespace": "team",
}  # fmt: skip
GRACE_SECONDS = GRACE_PERIOD.total_seconds()
SERVING = DeploymentFacts(replicas=1, ready=1, current=True)
STARTING = DeploymentFacts(replicas=1, ready=0, current=True)


def embedder_pod(reason: Reason, message: str) -> tuple[PodFacts, ...]:
    return (PodFacts(name="mem-embedder-x", component="embedder", problem=Problem(reason, message)),)


NO_ROLE = Problem(Reason.AUTHENTICATION_FAILED, "28P01.")
LOADING = {"embedder": STARTING, "database": MIGRATED}
NO_GPU = embedder_pod(Reason.UNSCHEDULABLE, "0/1 nodes: Insufficient nvidia.com/gpu.")


@dataclass(frozen=True)
class Fault:
    """Facts, the condition and reason they must yield, a word its message must hold, and whether a person must act."""

    facts: dict[str, Any]
    kind: str
    reason: str
    word: str
    person: bool = True


def credentials(reason: Reason, message: str) -> dict[str, Any]:
    return {"credentials": Problem(reason, message)}


def database(reason: Reason, message: str) -> dict[str, Any]:
    return {"database": Problem(reason, message)}


FAULTS = [
    Fault(credentials(Reason.SECRET_MISSING, "Secret team/dsn."), "DatabaseReachable", "SecretMissing", "team/dsn"),
    Fault(credentials(Reason.SECRET_KEY_MISSING, "no key uri."), "DatabaseReachable", "SecretKeyMissing", "uri"),
    Fault(credentials(Reason.SECRET_INVALID, "not a URI."), "DatabaseReachable", "SecretInvalid", "postgresql://"),
    Fault(
        {"cluster": Problem(Reason.CLUSTER_MISSING, "Cluster dbaas/pg does not exist.")},
        "DatabaseReachable", "ClusterMissing", "dbaas/pg",
    ),
    Fault(
        {"cluster": Problem(Reason.CNPG_MISSING, "no kinds.")},
        "DatabaseReachable", "CloudNativePGMissing", "Install CloudNativePG",
    ),
    Fault({"cluster": replace(HEALTHY, hibernated=True)}, "DatabaseReachable", "ClusterHibernated", "dbaas/pg"),
    Fault(
        database(Reason.DATABASE_UNREACHABLE, "refused."),
        "DatabaseReachable", "DatabaseUnreachable", "refused.", person=False,
    ),
    Fault(
        database(Reason.AUTHENTICATION_FAILED, "28P01."),
        "DatabaseReachable", "AuthenticationFailed", "team/dsn: 28P01. Put",
    ),
    Fault(database(Reason.POOLER_REFUSED, "a pooler."), "DatabaseReachable", "PoolerRefused", "-rw"),
    Fault(
        database(Reason.PROTOCOL_VIOLATION, "sent too much."),
        "DatabaseReachable", "ProtocolViolation", "sent too much. Point",
    ),
    Fault(
        {"database": NO_ROLE, "cluster": replace(HEALTHY, healthy=False, phase="Failing over")},
        "DatabaseReachable", "ClusterNotReady", "Failing over", person=False,
    ),
    Fault(
        {"database": replace(NO_EXTENSION, extension_available=None)},
        "ExtensionReady", "ExtensionNotAvailable", "image",
    ),
    Fault(
        {"database": replace(NO_EXTENSION, extension_available="0.8.1")},
        "ExtensionReady", "ExtensionTooOld", "0.8.4",
    ),
    Fault(
        {"database": NO_EXTENSION, "cluster": replace(HEALTHY, reconciliation_disabled=True)},
        "ExtensionReady", "ClusterReconciliationDisabled", "cnpg.io/reconciliationLoop",
    ),
    Fault({"database": UNSUITABLE}, "SchemaReady", "SchemaUnsupported", "CREATE UNIQUE INDEX CONCURRENTLY"),
    Fault(LOADING, "EmbedderReady", "Starting", "mem-embedder", person=False),
    Fault({**LOADING, "pods": NO_GPU}, "EmbedderReady", "Unschedulable", "nvidia.com/gpu"),
    Fault(
        {**LOADING, "pods": embedder_pod(Reason.IMAGE_PULL_FAILED, "cannot pull.")},
        "EmbedderReady", "ImagePullFailed", "cannot pull",
    ),
    Fault(
        {**LOADING, "embedder": replace(STARTING, failure="exceeded quota: gpu")},
        "EmbedderReady", "PodRejected", "exceeded quota",
    ),
    Fault(LOADING, "Backfilled", "Waiting", "Rows are pending; waiting for the embedder", person=False),
]  # fmt: skip
each_fault = pytest.mark.parametrize("fault", FAULTS, ids=[f"{fault.reason}-{i}" for i, fault in enumerate(FAULTS)])


@each_fault
def test_each_blocker_has_its_reason_and_remedy_and_stalls_only_for_a_person(world: World, fault: Fault) -> None:
    plan = world.decide_again(world.decide(**fault.facts), GRACE_SECONDS, **fault.facts)
    found = condition(plan, fault.kind)
    assert (found["status"], found["reason"]) == ("False", fault.reason)
    assert fault.word in found["message"]
    assert condition(plan, "Ready")["status"] == "False"
    assert condition(plan, "Stalled")["status"] == ("True" if fault.person else "False")
    assert condition(plan, "Reconciling")["status"] == ("False" if fault.person else "True")


@each_fault
def test_a_stalled_object_is_requeued_soon_since_secrets_are_not_watched(world: World, fault: Fault) -> None:
    plan = world.decide_again(world.decide(**fault.facts), GRACE_SECONDS, **fault.facts)
    assert plan.requeue_after == (10.0 if fault.person else 3.0)


def test_where_the_image_has_no_pgvector_both_ways_to_it_are_named_with_the_lines_for_the_cluster(world: World) -> None:
    """Another image, or from Postgres 18 on a second one that the Cluster mounts; ours never writes a Cluster."""
    plan = world.decide(database=replace(NO_EXTENSION, extension_available=None))
    message = condition(plan, "ExtensionReady")["message"]
    assert "Set the Cluster's spec.imageName to an image that contains pgvector" in message
    lines = re.search(r"Postgres 18 or later .*?: (spec: \{.*\}\})", message)
    assert lines is not None
    (extension,) = read_yaml(lines[1])["spec"]["postgresql"]["extensions"]
    assert extension["name"] == "pgvector"
    assert "pgvector 0.8.4 or later" in extension["image"]["reference"]


BLOCKED = [
    ({"embedding": {"model": "all-MiniLM-L6-v2", "dimensions": 1024}}, {}, "DimensionMismatch", "yields 384"),
    ({"embedding": {"model": "nobody-knows", "dimensions": 384}}, {}, "UnknownModel", "bge-large-en-v1.5"),
    ({**HOSTED, "embedding": {"model": "voyage-3.5"}}, {}, "InvalidSpec", "queryEgress to Allowed"),
    ({}, {"database": replace(MIGRATED, embedding_dimensions=1024)}, "DimensionMismatch", "1024"),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "facts", "reason", "word"), BLOCKED)
def test_a_contradiction_stalls_before_anything_is_created(
    world: World, spec: dict[str, Any], facts: dict[str, Any], reason: str, word: str
) -> None:
    plan = world.decide(world.index(**spec), **facts)
    assert plan.actions == ()
    ready = condition(plan, "Ready")
    assert (ready["status"], ready["reason"]) == ("False", reason)
    assert word in ready["message"]
    assert condition(plan, "Stalled")["reason"] == reason


def test_observe_touches_nothing_and_reports_the_missing_extension(world: World) -> None:
    plan = world.decide(world.index(database={"extension": {"management": "Observe"}}), database=NO_EXTENSION)
    assert not [a for a in plan.actions if isinstance(a, Apply) and a.manifest["kind"] == "Database"]
    assert condition(plan, "ExtensionReady")["reason"] == "ExtensionMissing"
    assert "CREATE EXTENSION vector" in condition(plan, "ExtensionReady")["message"]


@pytest.mark.parametrize("decision", ["Refuse", "Keep", "Discard"])
def test_a_decision_about_vectors_that_is_left_in_the_specification_is_said_to_be_there(
    world: World, decision: str
) -> None:
    """Under GitOps it would stay, and decide unasked about the vectors of a table that is restored alone."""
    plan = world.decide(world.index(database={"existingVectors": decision}), database=FULL)
    found = condition(plan, "SchemaReady")
    assert (found["status"], found["reason"]) == ("True", "Migrated")
    assert (f"existingVectors is {decision}" in found["message"]) is (decision != "Refuse")


def test_without_a_cluster_the_extension_is_only_observed(world: World) -> None:
    index = world.index(database={"cluster": None, "extension": {"management": "Observe"}})
    plan = world.decide(index, cluster=None, database=NO_EXTENSION)
    assert condition(plan, "ExtensionReady")["reason"] == "ExtensionMissing"
    assert condition(plan, "DatabaseReachable")["status"] == "True"


def test_another_owners_database_object_is_left_alone_and_the_missing_lines_are_reported(
    world: World, database_object: DatabaseObject
) -> None:
    plan = world.decide(database=NO_EXTENSION, database_objects=(database_object,))
    assert not [a for a in plan.actions if isinstance(a, Apply) and a.manifest["kind"] == "Database"]
    found = condition(plan, "ExtensionReady")
    assert found["reason"] == "DatabaseObjectForeign"
    assert "dbaas/theirs" in found["message"]
    assert "extensions: [{name: vector, ensure: present}]" in found["message"]


def test_another_owners_object_that_already_requests_the_extension_is_awaited(
    world: World, database_object: DatabaseObject
) -> None:
    asking = replace(database_object, extensions=({"name": "vector", "ensure": "present"},), generation=4)
    plan = world.decide(database=NO_EXTENSION, database_objects=(asking,))
    assert condition(plan, "ExtensionReady")["reason"] == "Installing"
    assert condition(plan, "Stalled")["status"] == "False"


def test_the_message_of_cloudnativepg_about_our_object_is_reported(
    world: World, database_object: DatabaseObject
) -> None:
    ours = replace(
        database_object,
        labels=OURS, index_uid="u-1", applied=False, message="no such role",
        extensions=({"name": "vector", "ensure": "present"},),
    )  # fmt: skip
    plan = world.decide(database=NO_EXTENSION, database_objects=(ours,))
    assert condition(plan, "ExtensionReady")["reason"] == "DatabaseObjectFailed"
    assert "no such role" in condition(plan, "ExtensionReady")["message"]


@pytest.mark.parametrize("uid", ["u-1", "u-0"], ids=["of this object", "of a former one of the same name"])
def test_a_database_object_under_our_name_that_is_being_deleted_is_waited_for(
    world: World, database_object: DatabaseObject, uid: str
) -> None:
    """A write would not keep it, and another one cannot have its name yet."""
    name = object_name(world.index())
    going = replace(database_object, name=name, labels=OURS, index_uid=uid, deleting=True)
    plan = world.decide(database=NO_EXTENSION, database_objects=(going,))
    assert not [a for a in plan.actions if isinstance(a, Apply) and a.manifest["kind"] == "Database"]
    said = condition(plan, "ExtensionReady")
    assert (said["reason"], said["message"]) == (
        "Installing", f"Database dbaas/{name} is being deleted; another one follows.",
    )  # fmt: skip
    plan = world.decide(database=NO_EXTENSION, database_objects=(replace(going, name="theirs"),))
    assert [a for a in plan.actions if isinstance(a, Apply) and a.manifest["kind"] == "Database"]


def test_our_entry_is_added_to_an_object_of_ours_beside_the_other_entries(
    world: World, database_object: DatabaseObject
) -> None:
    ours = replace(
        database_object, owner="alice", labels={**OURS, "other.io/x": "1"}, index_uid="u-1",
        extensions=({"name": "pg_trgm", "ensure": "present"},),
    )  # fmt: skip
    plan = world.decide(database=NO_EXTENSION, database_objects=(ours,))
    applied = next(a.manifest for a in plan.actions if isinstance(a, Apply) and a.manifest["kind"] == "Database")
    assert [entry["name"] for entry in applied["spec"]["extensions"]] == ["pg_trgm", "vector"]
    assert applied["spec"]["owner"] == "alice"
    assert applied["metadata"]["labels"] == OURS


def test_an_old_extension_is_updated_where_the_image_has_a_newer_one(world: World) -> None:
    plan = world.decide(database=replace(NO_EXTENSION, extension_version="0.8.1"))
    applied = next(a.manifest for a in plan.actions if isinstance(a, Apply) and a.manifest["kind"] == "Database")
    assert applied["spec"]["extensions"] == [{"name": "vector", "ensure": "present", "version": "0.8.7"}]


def live_embedder(world: World, index: MemoryIndex) -> dict[tuple[str, str], Manifest]:
    """The Deployment that the specification asks for."""
    replicas = index.spec.embedder.min_replicas
    return {("Deployment", "mem-embedder"): embedder.deployment(index, world.images, replicas=replicas)}


def test_a_fallback_to_the_cpu_is_reported(world: World) -> None:
    index = world.index(embedder={"gpuLayers": -1})
    load = EmbedderLoad(pod="mem-embedder-x", device="cpu", gpu_layers_offloaded=0)
    pods, made = (PodFacts("mem-embedder-x", "embedder"),), live_embedder(world, index)
    plan = world.decide(index, database=MIGRATED, embedder=STARTING, pods=pods, loads=(load,), children=made)
    assert condition(plan, "EmbedderReady")["reason"] == "GpuNotUsed"
    assert plan.status is not None
    assert plan.status["embedder"]["device"] == "cpu"
    assert plan.status["embedder"]["gpuLayersOffloaded"] == 0


def test_a_new_pod_that_fell_back_to_the_cpu_is_named_while_an_older_one_serves(world: World) -> None:
    """The older pod may compute on the CPU as it was asked to; a roll-out that replaces it says nothing of it."""
    index = world.index(embedder={"gpuLayers": -1, "minReplicas": 2, "maxReplicas": 2})
    old, new = (PodFacts(f"mem-embedder-{name}", "embedder", created_at=START + timedelta(seconds=age))
                for name, age in (("old", 0), ("new", 9)))  # fmt: skip
    rolling = replace(SERVING, replicas=2, current=False, updated=1)

    def reported(*on_cpu: str) -> dict[str, Any]:
        loads = tuple(EmbedderLoad(pod=name, device="cpu") for name in on_cpu)
        made = live_embedder(world, index)
        plan = world.decide(index, database=MIGRATED, embedder=rolling, pods=(old, new), loads=loads, children=made)
        return condition(plan, "EmbedderReady")

    assert reported("mem-embedder-old")["reason"] == "RollingOut"
    said = reported("mem-embedder-old", "mem-embedder-new")
    assert said["reason"] == "GpuNotUsed"
    assert "mem-embedder-new computes on the CPU" in said["message"]


def test_a_pod_that_fell_back_to_the_cpu_is_named_beside_one_that_serves(world: World) -> None:
    index = world.index(embedder={"gpuLayers": -1, "minReplicas": 2, "maxReplicas": 2})
    pods = tuple(PodFacts(f"mem-embedder-{name}", "embedder") for name in "ab")
    loads = (EmbedderLoad(pod="mem-embedder-b", device="cpu"),)
    facts = {"embedder": replace(SERVING, replicas=2), "children": live_embedder(world, index)}
    plan = world.decide(index, database=MIGRATED, pods=pods, loads=loads, **facts)
    said = condition(plan, "EmbedderReady")
    assert (said["status"], "mem-embedder-b computes on the CPU" in said["message"]) == ("True", True)


def test_an_external_embedder_is_used_and_nothing_is_run(world: World) -> None:
    index = world.index(embedder={"external": {"url": "http://emb.ml.svc:8080"}, "gpuLayers": -1})
    plan = world.decide(index, database=MIGRATED)
    kinds = {(a.manifest["kind"], a.manifest["metadata"]["name"]) for a in plan.actions if isinstance(a, Apply)}
    assert not [name for _, name in kinds if name == "mem-embedder"]
    assert condition(plan, "EmbedderReady")["status"] == "True"
    assert plan.status is not None
    assert plan.status["embedder"] == {"url": "http://emb.ml.svc:8080"}


def test_an_external_embedder_that_fails_is_named(world: World) -> None:
    index = world.index(embedder={"external": {"url": "http://emb.ml.svc:8080"}})
    plan = world.decide(index, external=Problem(Reason.EXTERNAL_UNREACHABLE, "It answers 503."))
    assert condition(plan, "EmbedderReady")["reason"] == "ExternalEmbedderUnreachable"


def test_a_suspended_object_changes_nothing_reports_and_observes_its_generation(world: World) -> None:
    plan = world.decide(world.index(suspend=True), database=MIGRATED)
    assert plan.actions == ()
    assert plan.status is not None
    assert plan.status["observedGeneration"] == 1
    assert plan.status["rows"]["pending"] == 10
    ready = condition(plan, "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "Suspended")
    assert condition(plan, "Stalled")["status"] == "False"
    assert condition(plan, "Reconciling")["status"] == "False"


def test_a_suspended_object_that_was_ready_stays_ready(world: World) -> None:
    index, observed, _ = world.settled()
    suspended = index.model_copy(update={"spec": index.spec.model_copy(update={"suspend": True})})
    plan = world.decide(suspended, **vars(observed))
    assert (condition(plan, "Ready")["status"], condition(plan, "Ready")["reason"]) == ("True", "Suspended")


def test_quarantined_rows_are_reported_although_the_object_is_ready(world: World) -> None:
    full = replace(MIGRATED, rows=RowCounts(total=10, embedded=9, quarantined=1), index=VALID_INDEX)
    plan = world.decide(database=full, embedder=SERVING, sync=SERVING)
    assert condition(plan, "Backfilled")["reason"] == "QuarantinedRows"
    assert "memory quarantine list" in condition(plan, "Backfilled")["message"]
    assert plan.status is not None
    assert plan.status["rows"]["embeddedPercent"] == "90%"


def test_rows_without_a_text_are_counted_and_leave_nothing_to_do(world: World) -> None:
    """They are legal: a reason that asks to retry them, and an alert, would never end."""
    full = replace(MIGRATED, rows=RowCounts(total=10, embedded=9, blank=1), index=VALID_INDEX)
    plan = world.decide(database=full, embedder=SERVING, sync=SERVING)
    assert condition(plan, "Backfilled")["reason"] == "Complete"
    assert plan.status is not None
    rows = plan.status["rows"]
    assert (rows["quarantined"], rows["blank"], rows["embeddedPercent"]) == (0, 1, "100%")


def test_truncated_texts_are_reported_and_keep_nothing_from_being_ready(world: World) -> None:
    full = replace(MIGRATED, rows=RowCounts(total=10, embedded=10, truncated=4), index=VALID_INDEX)
    plan = world.decide(database=full, embedder=SERVING, sync=SERVING)
    assert condition(plan, "Backfilled")["status"] == "True"
    assert plan.status is not None
    assert plan.status["rows"]["truncated"] == 4


def test_reasons_are_unique_and_those_that_stall_have_a_remedy() -> None:
    codes = [reason.code for reason in Reason]
    assert len(codes) == len(set(codes))
    assert [reason for reason in Reason if reason.stalls and not reason.remedy] == []


def test_rows_that_take_too_long_to_count_leave_the_last_counts_and_a_settled_object_as_they_are(world: World) -> None:
    index, observed, settled = world.settled()
    unknown = RowCounts(total=10**9, pending=10**9, estimated=True, uncounted=True)
    plan = world.decide(index, **{**vars(observed), "database": replace(FULL, rows=unknown)})
    assert plan.status is not None
    assert settled.status is not None
    assert plan.status["rows"] == settled.status["rows"]
    assert not [action for action in plan.actions if getattr(action, "manifest", {}).get("kind") == "Job"]
    assert "too long to count" in condition(plan, "Backfilled")["message"]


def test_rows_that_take_too_long_to_count_are_embedded_by_one_backfill_and_then_by_the_sync_worker() -> None:
    unknown = RowCounts(total=10**9, pending=10**9, estimated=True, uncounted=True)
    assert needs_backfill_job(unknown, index_valid=False, last_run=None)
    assert not needs_backfill_job(unknown, index_valid=False, last_run=JobState.COMPLETE)


def test_an_import_into_a_table_too_large_to_count_is_embedded_by_a_backfill() -> None:
    known = RowCounts(total=10**9, embedded=10**9 - 10**6, pending=10**6, estimated=True)
    assert needs_backfill_job(known, index_valid=True, last_run=JobState.COMPLETE)


def test_a_column_whose_rows_take_too_long_to_count_is_not_taken_for_empty(world: World) -> None:
    """Jobs that replace an empty column by one of other dimensions would be started again and again."""
    unknown = RowCounts(total=10**9, pending=10**9, estimated=True, uncounted=True)
    facts = replace(FULL, rows=unknown, embedding_dimensions=(FULL.embedding_dimensions or 0) + 1)
    plan = world.decide(world.index(database={"existingVectors": "Discard"}), database=facts)
    assert "DimensionMismatch" in {one["reason"] for one in (plan.status or {})["conditions"]}
