"""Carrying out a plan: what a refused or failed write stops, how an object is let go, and how long it may take."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from memory_operator.api.spec import FINALIZER
from memory_operator.clients.kube import KubeError, NamespaceFullError
from memory_operator.controller.cache import NAMESPACE_BYTES
from memory_operator.resources import cnpg
from memory_operator.resources.common import ANNOTATION_INDEX_UID
from memory_recall.status import RowCounts
from tests.unit.memory_operator.conftest import FULL, World
from tests.unit.memory_operator.test_operator_controller import CLUSTER_OBJECT, KEY, Bench, bench

__all__ = ["bench"]  # the fixture
DENIED = KubeError("applying Deployment team/mem-embedder", 403, "denied by policy", refused=True)
DELETED = "2026-01-01T12:00:00Z"


async def refuse(bench: Bench, error: KubeError, *kinds: str) -> None:
    bench.api.refusal, bench.api.refused_kinds = error, set(kinds)
    await bench.reconcile()


def delete(bench: Bench, **spec: Any) -> None:
    meta = bench.api.index["metadata"]
    meta["deletionTimestamp"], meta["finalizers"] = DELETED, [FINALIZER]
    bench.api.index["spec"] |= spec
    bench.api.writes.clear()


def own_database_object(bench: Bench, world: World) -> None:
    marks = {"labels": cnpg.own_labels(world.index()), "annotations": {ANNOTATION_INDEX_UID: world.index().uid}}
    bench.put("Database", "dbaas", "team-mem", {"metadata": {"uid": "d-1", **marks}})


def events(bench: Bench) -> list[dict[str, Any]]:
    return [item for (kind, _, _), item in bench.api.objects.items() if kind == "Event"]


@pytest.mark.finding("D14")
async def test_a_refused_write_is_the_condition_of_its_step_and_stops_no_other_step(bench: Bench) -> None:
    bench.database = replace(FULL, rows=RowCounts(total=1000, embedded=900, pending=100))
    await refuse(bench, DENIED, "NetworkPolicy")
    condition = bench.api.condition("EmbedderReady")
    assert (condition["status"], condition["reason"]) == ("False", "WriteRefused")
    assert "denied by policy" in condition["message"]
    assert bench.api.condition("DatabaseReachable")["status"] == "True"
    assert bench.api.condition("Ready")["reason"] == "WriteRefused"
    assert bench.api.writes == ["ConfigMap", "Deployment", "status"], "the sync worker and what it mounts"
    assert ("Deployment", "team", "mem-sync") in bench.api.objects


@pytest.mark.promise("embedder-behind-network-policy")
async def test_no_pod_is_started_without_its_network_policy(bench: Bench) -> None:
    """A refused write stops the later ones of its own step."""
    await refuse(bench, DENIED, "NetworkPolicy")
    assert ("Deployment", "team", "mem-embedder") not in bench.api.objects
    assert ("Service", "team", "mem-embedder") not in bench.api.objects


async def test_a_failing_webhook_stops_its_own_step_and_is_retried_with_back_off(bench: Bench) -> None:
    bench.database = replace(FULL, rows=RowCounts(total=1000, embedded=900, pending=100))
    await refuse(bench, KubeError("applying NetworkPolicy", 500, "failed calling webhook"), "NetworkPolicy")
    assert ("Deployment", "team", "mem-sync") in bench.api.objects
    assert bench.sample("memory_operator_reconcile_errors_total", error="KubeError") == 1
    assert bench.queue._due[KEY] <= 1.0


@pytest.mark.parametrize("code", [0, 429])
async def test_a_server_that_does_not_answer_or_is_overloaded_gets_no_further_write(bench: Bench, code: int) -> None:
    bench.database = FULL
    await refuse(bench, KubeError("applying NetworkPolicy", code, "no answer"), "NetworkPolicy")
    assert "Deployment" not in bench.api.writes


async def test_nothing_that_must_be_undone_is_begun_without_the_finalizer(bench: Bench) -> None:
    bench.api.index["spec"]["deletionPolicy"] = "Delete"
    await refuse(bench, DENIED, "MemoryIndex")
    assert bench.api.writes == ["status"]
    assert bench.api.condition("Ready")["reason"] == "WriteRefused"


async def test_retain_reads_neither_the_secret_nor_the_database_and_needs_no_child(bench: Bench) -> None:
    """A read that is refused, as after a Role has gone, therefore keeps no object."""
    delete(bench)
    readable = {"MemoryIndex", "Database"}
    get, found = bench.api.get, bench.api.list

    async def refused_get(kind: str, *place: str) -> Any:
        assert kind in readable, kind
        return await get(kind, *place)

    async def refused_list(kind: str, *place: Any) -> Any:
        if kind == "Deployment":  # of those whose worker may still call the embedder
            raise DENIED
        assert kind in readable, kind
        return await found(kind, *place)

    bench.api.get, bench.api.list = refused_get, refused_list  # type: ignore[method-assign]
    await bench.reconcile()
    assert bench.api.writes == ["finalizer"]


async def test_a_database_object_that_may_not_be_deleted_is_named_in_an_event_and_keeps_no_object(
    bench: Bench, world: World
) -> None:
    own_database_object(bench, world)
    delete(bench)
    await refuse(bench, KubeError("deleting Database dbaas/team-mem", 403, "forbidden", refused=True), "Database")
    assert bench.api.writes == ["finalizer"]
    (event,) = events(bench)
    assert "deleting Database dbaas/team-mem" in event["message"]
    assert bench.sample("memory_operator_left_behind_total") == 1


async def test_a_database_object_that_cannot_be_deleted_just_now_keeps_the_object(bench: Bench, world: World) -> None:
    own_database_object(bench, world)
    delete(bench)
    await refuse(bench, KubeError("deleting Database dbaas/team-mem", 500, "etcd is slow"), "Database")
    assert bench.api.writes == []
    bench.api.refusal = None
    await bench.reconcile()
    assert bench.api.writes == ["delete Database", "finalizer"]


@pytest.mark.finding("D3")
async def test_database_objects_that_may_not_be_read_keep_no_object(bench: Bench) -> None:
    delete(bench)

    async def forbidden(*_: Any) -> Any:
        raise KubeError("listing Database in dbaas", 403, "forbidden", refused=True)

    bench.api.list = forbidden  # type: ignore[method-assign]
    await bench.reconcile()
    assert bench.api.writes == ["finalizer"]
    (event,) = events(bench)
    assert "may not read Database objects in dbaas" in event["message"]


async def test_in_a_namespace_that_is_being_deleted_the_event_is_about_the_cluster(bench: Bench) -> None:
    delete(bench, deletionPolicy="Delete")
    bench.api.terminating = True
    create = bench.api.create

    async def terminating(manifest: dict[str, Any]) -> None:
        if manifest["metadata"]["namespace"] == "team":
            raise KubeError("creating Event", 403, "the namespace is being terminated", refused=True)
        await create(manifest)

    bench.api.create = terminating  # type: ignore[method-assign]
    await bench.reconcile()
    (event,) = events(bench)
    assert event["involvedObject"]["kind"] == "Cluster"
    assert bench.dsns == [], "nothing in the database can be undone"
    assert bench.api.index["metadata"]["finalizers"] == []


async def test_an_end_that_is_tried_again_says_and_counts_what_stays_once(bench: Bench) -> None:
    delete(bench, deletionPolicy="Delete")
    bench.api.terminating = True
    changed = KubeError("writing the finalizers", 409, "the object has changed since it was read")
    await refuse(bench, changed, "MemoryIndex")
    assert bench.sample("memory_operator_left_behind_total") == 0
    bench.api.refusal = None
    await bench.reconcile()
    assert len(events(bench)) == 1
    assert bench.sample("memory_operator_left_behind_total") == 1


@pytest.mark.finding("D3")
async def test_an_object_that_cannot_be_read_is_let_go_when_it_is_deleted(bench: Bench) -> None:
    delete(bench, embedder={"minReplicas": "many"})
    await bench.reconcile()
    assert bench.api.writes == ["finalizer"]
    assert bench.sample("memory_operator_left_behind_total") == 1


async def test_an_object_with_the_finalizers_of_others_alone_is_left_to_them(bench: Bench) -> None:
    delete(bench)
    bench.api.index["metadata"]["finalizers"] = ["backup.example/keep"]
    await bench.reconcile()
    assert (bench.api.writes, bench.dsns) == ([], [])


SYNC = ("Deployment", "team", "mem-sync")


async def with_sync(bench: Bench) -> None:
    """Reconcile until the sync worker runs."""
    bench.database = replace(FULL, rows=RowCounts(total=100, embedded=90, sensitive=10))
    await bench.reconcile(2)
    assert bench.api.objects[SYNC]["spec"]["replicas"] == 1


@pytest.mark.finding("security S4")
@pytest.mark.parametrize("spec", [{}, {"embedder": {"minReplicas": "many"}}], ids=["readable", "unreadable"])
async def test_an_object_that_somebody_elses_finalizer_holds_has_no_worker_left(
    bench: Bench, spec: dict[str, Any]
) -> None:
    """It may be held for good, and no consent is looked at any more."""
    await with_sync(bench)
    delete(bench, **spec)
    bench.api.index["metadata"]["finalizers"] = ["backup.example/keep"]
    await bench.reconcile(2)
    assert bench.api.writes == ["patch Deployment"]
    assert bench.api.objects[SYNC]["spec"]["replicas"] == 0


@pytest.mark.finding("security S4")
async def test_a_finalizer_that_cannot_be_written_keeps_no_withdrawn_permission(bench: Bench) -> None:
    """Nothing else is written without it, as only a deletion with it undoes the rest."""
    await with_sync(bench)
    bench.api.index["metadata"]["finalizers"] = []
    bench.put("Cluster", "dbaas", "pg", {**CLUSTER_OBJECT, "metadata": {"uid": "c-1"}})
    bench.api.index["spec"]["deletionPolicy"] = "Delete"
    bench.api.writes.clear()
    await refuse(bench, KubeError("adding", 409, "the object has been modified"), "MemoryIndex")
    assert [one for one in bench.api.writes if one != "status"] == ["patch Deployment"]
    assert bench.api.objects[SYNC]["spec"]["replicas"] == 0


def fill(bench: Bench, monkeypatch: pytest.MonkeyPatch, namespace: str = "team") -> None:
    """Have the objects of a namespace take more memory than the cache keeps of one."""

    def full(kind: str, owner: tuple[str, str]) -> None:
        if kind != "MemoryIndex" and owner[0] == namespace:
            raise NamespaceFullError("reading", owner[0], NAMESPACE_BYTES)

    monkeypatch.setattr(bench.observer.objects._cache, "find", full)


@pytest.mark.finding("security S4")
async def test_a_namespace_with_too_many_objects_keeps_no_worker(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """None of its objects are read, so nothing tells what its workers may still use."""
    await with_sync(bench)
    fill(bench, monkeypatch)
    await bench.reconcile()
    assert bench.api.objects[SYNC]["spec"]["replicas"] == 0
    assert bench.sample("memory_operator_reconcile_errors_total", error="NamespaceFullError") == 1


@pytest.mark.finding("security S4")
async def test_a_full_namespace_keeps_no_worker_of_an_object_whose_serving_secret_is_gone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether workers keep the copy of its authority is read from the objects of the namespace, before all others."""
    await with_sync(bench)
    bench.api.index["spec"]["embedder"]["tls"] = {"secretName": "gone"}
    fill(bench, monkeypatch)
    await bench.reconcile()
    assert bench.api.objects[SYNC]["spec"]["replicas"] == 0


@pytest.mark.finding("security S4")
async def test_objects_that_are_too_large_to_be_listed_keep_no_worker(bench: Bench) -> None:
    """Of a namespace that was full once, the objects are listed, also those that the cache would not count."""
    await with_sync(bench)
    found = bench.api.list

    async def too_large(kind: str, namespace: str, labels: dict[str, str] | None = None) -> list[dict[str, Any]]:
        if kind == "ConfigMap":
            raise NamespaceFullError(f"listing {kind} in {namespace}", namespace, NAMESPACE_BYTES)
        return await found(kind, namespace, labels)

    bench.api.list = too_large  # type: ignore[method-assign]
    await bench.reconcile()
    assert bench.api.objects[SYNC]["spec"]["replicas"] == 0


@pytest.mark.finding("security S4")
@pytest.mark.parametrize("spec", [{"deletionPolicy": "Delete"}, {"graph": {"enabled": True}}], ids=["delete", "graph"])
async def test_a_full_namespace_keeps_no_worker_of_an_object_that_is_being_deleted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, spec: dict[str, Any]
) -> None:
    """Its deletion waits for facts that cannot be read, for as long as somebody likes."""
    await with_sync(bench)
    delete(bench, **spec)
    fill(bench, monkeypatch)
    await bench.reconcile()
    assert bench.api.writes == ["patch Deployment"]
    assert bench.api.objects[SYNC]["spec"]["replicas"] == 0


async def test_a_full_namespace_of_the_cluster_stops_no_worker_of_another_namespace(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else whoever fills the Cluster's namespace would stop every object that uses the Cluster."""
    await with_sync(bench)
    fill(bench, monkeypatch, "dbaas")
    await bench.reconcile()
    assert bench.api.objects[SYNC]["spec"]["replicas"] == 1


@pytest.mark.finding("D21")
async def test_an_object_that_is_made_anew_while_its_absence_is_read_is_reconciled(bench: Bench) -> None:
    async def gone(*_: str) -> None:
        bench.queue.schedule(KEY, 0.1)  # the event of the new object arrives before the answer about the old one

    bench.queue.schedule(KEY)
    assert await bench.queue.take() == KEY
    bench.api.get = gone  # type: ignore[assignment]
    await bench.reconcile()
    assert bench.queue._due[KEY] == 0.1


async def test_a_reconcile_that_hangs_ends_and_is_retried(bench: Bench) -> None:
    async def hang(*_: str) -> None:
        await asyncio.Event().wait()

    bench.api.get = hang  # type: ignore[assignment]
    bench.controller.limit_seconds = 0.0
    await asyncio.wait_for(bench.reconcile(), 10.0)  # after which this test fails instead of hanging, too
    assert bench.sample("memory_operator_reconcile_errors_total", error="TimeoutError") == 1
    assert KEY in bench.queue._due
