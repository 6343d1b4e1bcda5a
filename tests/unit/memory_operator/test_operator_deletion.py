"""What happens when a MemoryIndex is deleted, under either policy."""

import pytest

from memory_operator.api.reasons import Reason
from memory_operator.reconcile.facts import PodFacts, Problem
from tests.unit.memory_operator.conftest import Cluster, World


def test_deletion_removes_our_database_object_and_then_the_finalizer(cluster: Cluster) -> None:
    cluster.until_ready()
    cluster.manifest["metadata"]["deletionTimestamp"] = "2026-01-01T13:00:00Z"
    cluster.writes.clear()
    cluster.reconcile()
    assert cluster.writes == ["delete Database", "finalizer"]
    assert cluster.gone


def test_policy_delete_stops_the_workers_undoes_the_migrations_and_removes_the_finalizer(cluster: Cluster) -> None:
    cluster.until_ready()
    cluster.manifest["spec"]["deletionPolicy"] = "Delete"
    cluster.manifest["metadata"]["deletionTimestamp"] = "2026-01-01T13:00:00Z"
    cluster.reconcile()
    assert cluster.replicas("mem-sync") is None
    assert not cluster.gone
    cluster.reconcile()
    assert cluster.running() == ["uninstall"]
    cluster.finish("uninstall")
    cluster.change(schema_revision=None)
    cluster.reconcile()
    assert cluster.gone


@pytest.mark.parametrize(("ended", "running"), [(True, ["uninstall"]), (False, [])])
def test_the_migrations_are_undone_only_after_the_last_workers_pod_has_ended(
    world: World, ended: bool, running: list[str]
) -> None:
    index = world.index(deletionPolicy="Delete").model_copy(update={"deleted_at": world.now})
    pod = PodFacts(name="mem-backfill-x", component="backfill", ended=ended)
    plan = world.decide(index, pods=(pod,))
    started = [a.manifest["metadata"]["labels"]["app.kubernetes.io/component"] for a in plan.actions]
    assert started == running


def test_policy_delete_reports_what_the_deletion_waits_for(cluster: Cluster) -> None:
    cluster.until_ready()
    cluster.manifest["spec"]["deletionPolicy"] = "Delete"
    cluster.manifest["metadata"]["deletionTimestamp"] = "2026-01-01T13:00:00Z"
    cluster.database = Problem(Reason.DATABASE_UNREACHABLE, "connection refused.")
    cluster.reconcile()
    assert not cluster.gone
    assert "spec.deletionPolicy to Retain" in cluster.condition("Ready")["message"]
