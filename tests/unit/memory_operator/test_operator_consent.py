"""A Cluster of another namespace and a Secret are used only where they say so themselves."""

from dataclasses import replace
from typing import Any

import pytest

from memory_operator.api.reasons import Reason
from memory_operator.api.spec import FINALIZER
from memory_operator.clients import object_facts
from memory_operator.reconcile.authorization.consent import check_cluster, check_secret
from memory_operator.reconcile.facts import Problem
from memory_recall.status import RowCounts
from tests.unit.memory_operator.conftest import CLUSTER, FULL, World
from tests.unit.memory_operator.test_operator_controller import CLUSTER_OBJECT, DSN, Bench, bench

__all__ = ["bench"]  # the fixture
ALLOWED = "memory-index.dev/allowed-namespaces"
KEYED = {"embedder": {"external": {"url": "http://emb.ml.svc:8080", "apiKey": {"secretName": "key"}}}}


def cluster_object(allowed: str | None) -> dict[str, Any]:
    annotations = {} if allowed is None else {ALLOWED: allowed}
    return {**CLUSTER_OBJECT, "metadata": {"uid": "c-1", "annotations": annotations}}


@pytest.mark.promise("cluster-by-consent")
@pytest.mark.finding("D1")
@pytest.mark.finding("H5")
@pytest.mark.parametrize("allowed", [None, "", "*", "team*", "teams", "tea,m", "other"])
async def test_without_the_clusters_consent_nothing_is_connected_to_and_nothing_written(
    bench: Bench, allowed: str | None
) -> None:
    bench.put("Cluster", "dbaas", "pg", cluster_object(allowed))
    await bench.reconcile(2)
    assert bench.dsns == []
    assert set(bench.api.writes) == {"status"}
    ready = bench.api.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "ConsentMissing")
    assert "annotate cluster.postgresql.cnpg.io pg --overwrite memory-index.dev/allowed-namespaces=" in ready["message"]


@pytest.mark.parametrize("allowed", ["team", "other, team ,third"])
async def test_a_consenting_cluster_is_used(bench: Bench, allowed: str) -> None:
    bench.put("Cluster", "dbaas", "pg", cluster_object(allowed))
    await bench.reconcile()
    assert bench.dsns == [DSN]
    assert "Database" in bench.api.writes


def test_a_cluster_of_the_same_namespace_needs_no_consent(world: World) -> None:
    index = world.index(database={"cluster": {"namespace": "team"}})
    assert check_cluster(index, replace(CLUSTER, namespace="team", allowed_namespaces=frozenset())) is None


def test_the_line_to_run_does_not_tell_other_teams_names(world: World) -> None:
    problem = check_cluster(world.index(), replace(CLUSTER, allowed_namespaces=frozenset({"payroll"})))
    assert problem is not None
    assert f"{ALLOWED}=PRESENT_NAMES,team`" in problem.message
    assert "payroll" not in problem.message


REPORTED = {"MemoryIndex", "Cluster", "Event"}


@pytest.mark.finding("security S4")
async def test_a_withdrawn_consent_stops_the_sync_worker_and_leaves_the_rest(bench: Bench) -> None:
    bench.database = replace(FULL, rows=RowCounts(total=100, embedded=90, sensitive=10))
    await bench.reconcile(2)
    before = {key: item for key, item in bench.api.objects.items() if key[0] not in REPORTED}
    assert [key for key in before if key[0] == "Deployment"]
    bench.put("Cluster", "dbaas", "pg", cluster_object(None))
    bench.api.writes.clear()
    await bench.reconcile(2)
    after = {key: item for key, item in bench.api.objects.items() if key[0] not in REPORTED}
    sync = ("Deployment", "team", "mem-sync")
    assert (before[sync]["spec"].pop("replicas"), after[sync]["spec"].pop("replicas")) == (1, 0)
    assert after == before
    assert bench.api.writes.count("patch Deployment") == 1
    assert bench.api.index["status"]["rows"]["embedded"] == 90


@pytest.mark.finding("security S4")
async def test_no_author_keeps_a_permission_by_a_specification_that_cannot_be_read(bench: Bench) -> None:
    bench.database = replace(FULL, rows=RowCounts(total=100, embedded=90, sensitive=10))
    await bench.reconcile(2)
    sync = ("Deployment", "team", "mem-sync")
    assert bench.api.objects[sync]["spec"]["replicas"] == 1
    embedder = bench.api.index["spec"]["embedder"]
    embedder["external"] = {"url": "http://emb.ml.svc:0"}
    await bench.reconcile(2)
    assert bench.api.objects[sync]["spec"]["replicas"] == 0
    ready = bench.api.condition("Ready")
    assert ready["reason"] == "InvalidSpec"
    assert "Deployment team/mem-sync is stopped" in ready["message"]
    del embedder["external"]
    await bench.reconcile(2)
    assert bench.api.objects[sync]["spec"]["replicas"] == 1


@pytest.mark.promise("secret-by-label")
async def test_a_secret_without_the_label_is_never_used_as_a_connection_uri(bench: Bench) -> None:
    bench.put_dsn(DSN, app="other")
    await bench.reconcile(2)
    assert bench.dsns == []
    assert set(bench.api.writes) == {"status"}
    ready = bench.api.condition("Ready")
    assert ready["reason"] == "ConsentMissing"
    assert "`kubectl -n team label secret dsn memory-index.dev/allow=dsn`" in ready["message"]


@pytest.mark.finding("H4")
async def test_a_secret_without_the_label_is_never_sent_as_a_key_nor_given_to_a_worker(bench: Bench) -> None:
    bench.database = replace(FULL, rows=RowCounts(total=9, pending=9))
    bench.api.index["spec"] |= KEYED
    bench.put("Secret", "team", "key", {"data": {"apiKey": "c2VjcmV0"}})
    await bench.reconcile(2)
    assert bench.urls == []
    assert set(bench.api.writes) == {"status"}
    ready = bench.api.condition("Ready")
    assert ready["reason"] == "ConsentMissing"
    assert "label secret key memory-index.dev/allow=api-key`" in ready["message"]


OWN_KEY = {"embedder": {"gpuLayers": 0, "apiKey": {"secretName": "key"}}}


@pytest.mark.parametrize("deleted", [False, True])
async def test_a_key_that_would_be_sent_unencrypted_is_refused_before_any_request(bench: Bench, deleted: bool) -> None:
    external = {"url": "http://e:8080", "apiKey": {"secretName": "key"}}
    bench.api.index["spec"] |= {"embedder": {"external": external}, "deletionPolicy": "Delete"}
    if deleted:
        bench.api.index["metadata"] |= {"finalizers": [FINALIZER], "deletionTimestamp": "2026-01-01T12:00:00Z"}
    labelled = {"data": {"apiKey": "c2VjcmV0"}, "metadata": {"labels": {"memory-index.dev/allow": "api-key"}}}
    bench.put("Secret", "team", "key", labelled)
    await bench.reconcile(2)
    assert bench.urls == []
    if not deleted:
        assert bench.api.condition("Ready")["reason"] == "InvalidSpec"


@pytest.mark.finding("M1")
async def test_the_key_of_our_own_embedder_needs_the_same_label(bench: Bench) -> None:
    bench.api.index["spec"] |= OWN_KEY
    bench.put("Secret", "team", "key", {"data": {"apiKey": "c2VjcmV0"}})
    await bench.reconcile(2)
    assert set(bench.api.writes) == {"status"}
    assert bench.api.condition("Ready")["reason"] == "ConsentMissing"
    labelled = {"data": {"apiKey": "c2VjcmV0"}, "metadata": {"labels": {"memory-index.dev/allow": "api-key"}}}
    bench.put("Secret", "team", "key", labelled)
    await bench.reconcile(2)
    assert "Deployment" in bench.api.writes


async def test_a_missing_key_of_our_own_embedder_is_named_by_its_field(bench: Bench) -> None:
    bench.api.index["spec"] |= OWN_KEY
    await bench.reconcile(2)
    found = bench.api.condition("EmbedderReady")
    assert (found["status"], found["reason"]) == ("False", "SecretMissing")
    assert "spec.embedder.apiKey" in found["message"]


@pytest.mark.promise("secret-for-one-use")
@pytest.mark.parametrize(
    ("label", "use"),
    [("dsn", "api-key"), ("api-key", "dsn"), ("dsn", "client-certificate"), ("client-certificate", "dsn")],
)
def test_one_use_does_not_allow_the_other(world: World, label: str, use: Any) -> None:
    secret = {"metadata": {"name": "s", "namespace": "team", "labels": {"memory-index.dev/allow": label}}}
    problem = check_secret("team", secret, use)
    assert problem is not None
    assert f"--overwrite memory-index.dev/allow={use}`" in problem.message


def application_secret(**changes: Any) -> dict[str, Any]:
    """The Secret that CloudNativePG writes beside the Cluster."""
    owner = {"kind": "Cluster", "name": "pg", "uid": "c-1", "controller": True}
    labels = {"cnpg.io/cluster": "pg", "cnpg.io/userType": "app"}
    return {
        "metadata": {"name": "pg-app", "namespace": "team", "labels": labels, "ownerReferences": [owner], **changes},
        "data": {"uri": "eA=="},
    }


OWN = replace(CLUSTER, namespace="team", uid="c-1")
FOREIGN_OWNER = {"ownerReferences": [{"kind": "Cluster", "name": "pg", "uid": "c-2", "controller": True}]}
NO_CONTROLLER = {"ownerReferences": [{"kind": "Cluster", "name": "pg", "uid": "c-1"}]}
SUPERUSER = {"labels": {"cnpg.io/cluster": "pg", "cnpg.io/userType": "superuser"}}


def test_the_application_secret_of_the_objects_own_cluster_needs_no_label(world: World) -> None:
    assert check_secret("team", application_secret(), "dsn", cluster=OWN) is None


@pytest.mark.parametrize(
    ("secret", "cluster", "use"),
    [
        (application_secret(**FOREIGN_OWNER), OWN, "dsn"),
        (application_secret(**NO_CONTROLLER), OWN, "dsn"),
        (application_secret(ownerReferences=[]), OWN, "dsn"),
        (application_secret(**SUPERUSER), OWN, "dsn"),
        (application_secret(), replace(OWN, namespace="dbaas"), "dsn"),
        (application_secret(), replace(OWN, uid=""), "dsn"),
        (application_secret(), None, "dsn"),
        (application_secret(), OWN, "api-key"),
    ],
)
def test_another_secret_that_looks_like_it_needs_the_label(world: World, secret: Any, cluster: Any, use: Any) -> None:
    problem = check_secret("team", secret, use, cluster=cluster)
    assert isinstance(problem, Problem)
    assert problem.reason is Reason.CONSENT_MISSING


def test_a_secret_that_does_not_exist_is_reported_as_missing_not_as_refusing(world: World) -> None:
    assert check_secret("team", None, "dsn") is None
    assert isinstance(object_facts.secret_value(None, "team/dsn", "uri"), Problem)
