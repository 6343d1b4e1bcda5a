"""The life cycle of an object in a cluster of plain data: from creation to Ready, and through disturbances."""

from dataclasses import replace

import pytest

from memory_operator.api.reasons import Reason
from memory_operator.reconcile.facts import JobState, PodFacts, Problem
from memory_operator.resources.common import Images
from memory_recall.status import NO_INDEX, RowCounts
from tests.unit.memory_operator.conftest import EMPTY, VALID_INDEX, Cluster, World

DATABASE_OBJECT = "team-mem-df401719"


def test_a_new_object_gets_status_unknown_before_anything_else(cluster: Cluster) -> None:
    plan = cluster.reconcile()
    assert cluster.writes == ["status"]
    assert cluster.condition("Ready")["status"] == "Unknown"
    assert cluster.manifest["status"]["observedGeneration"] == 1
    assert plan.requeue_after == 0


def test_the_steps_follow_each_other_until_ready(cluster: Cluster) -> None:
    cluster.reconcile()
    cluster.reconcile()
    assert list(cluster.cnpg) == [DATABASE_OBJECT]
    assert cluster.replicas("mem-embedder") == 1, "the model loads while the extension is installed"
    assert cluster.condition("ExtensionReady")["reason"] == "Installing"
    cluster.change(extension_version="0.8.7")
    cluster.reconcile()
    assert cluster.running() == ["migrate"]
    cluster.migrate()
    cluster.reconcile()
    assert cluster.running() == ["backfill"]
    assert cluster.replicas("mem-sync") == 0, "paused during a backfill"
    cluster.embed()
    cluster.reconcile()
    assert cluster.running() == ["index"]
    assert cluster.replicas("mem-sync") == 1
    cluster.build()
    cluster.reconcile()
    assert cluster.condition("Ready") | {"lastTransitionTime": ""} == {
        "type": "Ready", "status": "True", "reason": "Ready",
        "message": "Every row that may have a vector has one. The HNSW index is valid.",
        "observedGeneration": 1, "lastTransitionTime": "",
    }  # fmt: skip
    assert cluster.condition("Reconciling")["status"] == "False"
    assert cluster.condition("Stalled")["status"] == "False"


def test_a_settled_object_causes_no_write(cluster: Cluster) -> None:
    cluster.until_ready()
    cluster.writes.clear()
    for _ in range(50):
        assert cluster.reconcile().actions == ()
    assert cluster.writes == []


def test_a_collected_job_is_not_run_again(cluster: Cluster) -> None:
    cluster.until_ready()
    cluster.jobs.clear()
    cluster.reconcile()
    assert cluster.running() == []


@pytest.mark.parametrize("lost", ["mem-embedder", "mem-sync"])
def test_a_deleted_child_is_created_again(cluster: Cluster, lost: str) -> None:
    cluster.until_ready()
    kept = {key: item for key, item in cluster.children.items() if key[1] != lost}
    cluster.children.clear()
    cluster.children.update(kept)
    cluster.reconcile()
    assert cluster.replicas(lost) == 1


def test_a_child_that_somebody_changed_is_applied_once(cluster: Cluster) -> None:
    cluster.until_ready()
    key = ("Deployment", "mem-embedder")
    changed = {**cluster.children[key], "spec": {**cluster.children[key]["spec"], "replicas": 7}}
    cluster.children[key] = changed
    cluster.writes.clear()
    cluster.reconcile()
    cluster.reconcile()
    assert cluster.writes.count("Deployment") == 1


def test_the_sync_worker_embeds_few_new_rows(cluster: Cluster) -> None:
    cluster.until_ready()
    cluster.change(rows=RowCounts(total=510, embedded=480, pending=10, sensitive=20))
    cluster.reconcile()
    assert cluster.running() == []
    assert cluster.condition("Backfilled")["reason"] == "Syncing"
    assert cluster.condition("Ready")["status"] == "True"


def test_many_new_rows_start_the_backfill_job_and_pause_the_sync_worker(cluster: Cluster) -> None:
    cluster.until_ready()
    cluster.jobs.clear()
    cluster.change(rows=RowCounts(total=5500, embedded=480, pending=5000, sensitive=20))
    cluster.reconcile()
    assert cluster.running() == ["backfill"]
    assert cluster.replicas("mem-sync") == 0
    assert cluster.condition("IndexReady")["status"] == "True"


def test_a_change_of_the_index_parameters_builds_the_index_anew(world: World) -> None:
    index, observed, _ = world.settled()
    built = replace(observed.database_facts, index=replace(VALID_INDEX, ours=True, m=24, ef_construction=128))
    assert world.decide(index, **{**vars(observed), "database": built}).actions == ()
    changed = index.model_copy(update={"spec": world.index(index={"m": 32}).spec})
    plan = world.decide(changed, **{**vars(observed), "database": built})
    (job,) = [action.manifest for action in plan.actions if action.manifest["kind"] == "Job"]
    assert job["spec"]["template"]["spec"]["containers"][0]["command"][:3] == ["memory", "index", "build"]
    (condition,) = [one for one in plan.status["conditions"] if one["type"] == "IndexReady"]
    assert (condition["status"], condition["reason"]) == ("False", "Building")
    assert "m 32" in condition["message"]
    assert "the old one serves meanwhile" in condition["message"]


def test_an_index_of_the_apis_own_is_never_built_anew_for_its_parameters(world: World) -> None:
    index, observed, _ = world.settled(index={"m": 32})
    foreign = replace(VALID_INDEX, ours=False, m=24, ef_construction=128)
    observed = replace(observed, database=replace(observed.database_facts, index=foreign))
    assert world.decide(index, **vars(observed)).actions == ()


def test_an_invalid_index_is_rebuilt(cluster: Cluster) -> None:
    cluster.until_ready()
    cluster.jobs.clear()
    cluster.change(index=NO_INDEX)
    cluster.reconcile()
    assert cluster.running() == ["index"]


def test_a_schema_that_fell_behind_is_migrated_again(cluster: Cluster) -> None:
    cluster.until_ready()
    cluster.jobs.clear()
    cluster.change(schema_revision="0000")
    cluster.reconcile()
    assert cluster.running() == ["migrate"]


@pytest.mark.finding("D30")
def test_an_operator_upgrade_migrates_a_ready_object(world: World, cluster: Cluster) -> None:
    """The new operator finds an older revision, migrates by itself, and the index is neither missed nor built again."""
    cluster.until_ready()
    counts = cluster.database.rows
    cluster.change(schema_revision="0000")
    world.images = Images(operator="op:2", embedder="emb:1")
    cluster.reconcile()
    assert cluster.running() == ["migrate"]
    assert cluster.condition("SchemaReady")["status"] == "False"
    cluster.migrate()
    cluster.change(rows=counts)
    cluster.reconcile()
    assert cluster.condition("Backfilled")["reason"] == "RollingOut", "of the sync worker, to the new image"
    cluster.reconcile()
    assert cluster.running() == []
    assert cluster.condition("Ready")["status"] == "True"


def test_a_failed_job_is_retried_with_a_growing_delay_and_its_message_is_in_the_condition(cluster: Cluster) -> None:
    cluster.reconcile()
    cluster.reconcile()
    cluster.change(extension_version="0.8.7")
    cluster.reconcile()
    gaps = []
    for _ in range(6):
        cluster.finish("migrate", JobState.FAILED, Problem(Reason.LOCK_NOT_AVAILABLE, "somebody holds a lock."))
        ended = cluster.world.now
        cluster.reconcile()
        assert cluster.condition("SchemaReady")["reason"] == "LockNotAvailable"
        assert "somebody holds a lock." in cluster.condition("SchemaReady")["message"]
        while not cluster.running():
            cluster.reconcile()
        gaps.append((cluster.world.now - ended).total_seconds())
    assert gaps == sorted(gaps)
    assert gaps[0] < 20
    assert gaps[-1] <= 306
    assert len([job for job in cluster.jobs.values() if job.component == "migrate"]) <= 2, "older runs are removed"


def test_a_job_of_another_configuration_starts_at_once(cluster: Cluster) -> None:
    cluster.reconcile()
    cluster.reconcile()
    cluster.change(extension_version="0.8.7")
    cluster.reconcile()
    cluster.finish("migrate", JobState.FAILED, Problem(Reason.SCHEMA_UNSUPPORTED, "no column content."))
    cluster.reconcile()
    assert cluster.condition("Stalled")["status"] == "True"
    cluster.world.images = cluster.world.images.model_copy(update={"operator": "op:2"})
    cluster.reconcile()
    assert cluster.running() == ["migrate"]


def test_a_database_outage_keeps_the_counts_and_everything_that_runs(cluster: Cluster) -> None:
    cluster.until_ready()
    rows = cluster.manifest["status"]["rows"]
    facts = cluster.database
    cluster.database = Problem(Reason.DATABASE_UNREACHABLE, "connection refused.")
    cluster.writes.clear()
    cluster.reconcile()
    assert cluster.condition("DatabaseReachable")["reason"] == "DatabaseUnreachable"
    assert cluster.condition("Stalled")["status"] == "False"
    assert cluster.manifest["status"]["rows"] == rows
    assert cluster.writes == ["status"]
    cluster.database = facts
    cluster.reconcile()
    assert cluster.condition("Ready")["status"] == "True"


def test_the_transition_time_moves_only_with_the_status(cluster: Cluster) -> None:
    cluster.until_ready()
    before = cluster.condition("Ready")["lastTransitionTime"]
    cluster.change(rows=RowCounts(total=501, embedded=480, pending=1, sensitive=20))
    cluster.reconcile()
    assert cluster.condition("Backfilled")["reason"] == "Syncing"
    assert cluster.condition("Ready")["lastTransitionTime"] == before


def test_a_job_whose_pod_cannot_start_is_reported_with_the_cause(world: World, cluster: Cluster) -> None:
    cluster.reconcile()
    cluster.reconcile()
    cluster.change(extension_version="0.8.7")
    cluster.reconcile()
    pod = PodFacts("p", "migrate", problem=Problem(Reason.IMAGE_PULL_FAILED, "Pod team/p cannot pull image op:1."))
    plan = world.decide(cluster.index, **{**vars(cluster.observe()), "pods": (pod,)})
    found = next(c for c in plan.status["conditions"] if c["type"] == "SchemaReady")
    assert found["reason"] == "ImagePullFailed"
    assert "Pod team/p cannot pull image op:1." in found["message"]
    assert not [a for a in plan.actions if a.manifest["kind"] == "Job"]


def test_a_restart_at_any_phase_starts_nothing_twice(cluster: Cluster) -> None:
    """A reconcile keeps no state, so a restart is one more reconcile of the same facts."""
    cluster.reconcile()
    cluster.reconcile()
    cluster.reconcile()
    assert cluster.writes.count("Database") == 1
    cluster.change(extension_version="0.8.7")
    for component, advance in (("migrate", cluster.migrate), ("backfill", cluster.embed), ("index", cluster.build)):
        for _ in range(3):
            cluster.reconcile()
        assert len([job for job in cluster.jobs.values() if job.component == component]) == 1
        advance()


def test_an_extension_dropped_by_hand_is_requested_again(cluster: Cluster) -> None:
    cluster.until_ready()
    cluster.jobs.clear()
    item = cluster.cnpg[DATABASE_OBJECT]
    item["status"] = {"applied": True, "observedGeneration": 1}
    before = item["spec"]["extensions"]
    cluster.change(extension_version=None, embedding_dimensions=None, schema_differences="no vectors", index=NO_INDEX)
    cluster.reconcile()
    after = cluster.cnpg[DATABASE_OBJECT]["spec"]["extensions"]
    assert after != before, "CloudNativePG acts only when its object changes"
    assert cluster.running() == []
    cluster.change(extension_version="0.8.7")
    cluster.reconcile()
    assert cluster.running() == ["migrate"]


def test_the_facts_of_another_database_are_ignored(world: World, cluster: Cluster) -> None:
    index = world.index(database={"name": "elsewhere"})
    plan = world.decide(index, database=replace(EMPTY, rows=RowCounts(pending=9999)))
    assert plan.actions == ()
    assert "rows" not in plan.status
