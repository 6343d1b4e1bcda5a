"""Nothing is done in a database that is not the one that is meant, and no database changes its owner."""

import json
from dataclasses import replace
from typing import Any

import pytest

from memory_operator.api.reasons import Reason
from memory_operator.clients import object_facts
from memory_operator.reconcile.authorization.identity import check_identity
from memory_operator.reconcile.facts import ApplicationDatabase, ClusterFacts, Credentials, DeletionFacts, PodFacts
from memory_operator.reconcile.plan import Apply, Plan
from memory_recall.postgres.identity_sql import DatabaseIdentity
from memory_recall.status import NO_INDEX, DatabaseFacts, RowCounts
from tests.unit.memory_operator.conftest import CLUSTER, EMPTY, FULL, IDENTITY, SERVER, Cluster, World

ELSEWHERE = DatabaseIdentity("7400000000000000002", "app", "pg")
PENDING = replace(FULL, rows=RowCounts(total=500, pending=500), index=NO_INDEX)
PLAIN = {"database": {"cluster": None, "extension": {"management": "Observe"}}}


def condition(plan: Plan, kind: str) -> dict[str, Any]:
    assert plan.status is not None
    return next(c for c in plan.status["conditions"] if c["type"] == kind)


def databases(plan: Plan) -> list[dict[str, Any]]:
    return [a.manifest for a in plan.actions if isinstance(a, Apply) and a.manifest["kind"] == "Database"]


@pytest.mark.parametrize("database", [EMPTY, PENDING, FULL])
def test_on_another_server_than_the_clusters_nothing_is_done(world: World, database: DatabaseFacts) -> None:
    _, settled, _ = world.settled()
    there = replace(database, identity=ELSEWHERE)
    plan = world.decide(**{**vars(settled), "children": {}, "database": there})
    assert plan.actions == ()
    ready = condition(plan, "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "DatabaseIdentityMismatch")
    assert "team/dsn" in ready["message"]
    assert "rows" not in (plan.status or {}), "what the other server says is not reported"


@pytest.mark.finding("D2")
@pytest.mark.parametrize(
    "wrong",
    [
        {"credentials": Credentials("PRODUCTION_OTHER")},
        {"database": replace(FULL, identity=ELSEWHERE)},
        {"cluster": replace(CLUSTER, hibernated=True), "database": None},
    ],
)
def test_a_deletion_removes_nothing_from_another_database(world: World, wrong: dict[str, Any]) -> None:
    index = world.index(deletionPolicy="Delete").model_copy(update={"deleted_at": world.now})
    observed = world.observed(pods=(PodFacts("mem-sync-x", "sync", ended=True),), **wrong)
    plan = world.conclude(index, DeletionFacts((), observed=observed))
    assert plan.finalizer is None
    assert plan.actions == ()
    assert "Cannot undo the migrations" in condition(plan, "Ready")["message"]


def test_a_deletion_in_the_right_database_hands_its_identity_to_the_job(world: World) -> None:
    index = world.index(deletionPolicy="Delete").model_copy(update={"deleted_at": world.now, "system_identifier": ""})
    plan = world.conclude(index, DeletionFacts((), observed=world.observed()))
    (job,) = [a.manifest for a in plan.actions if isinstance(a, Apply) and a.manifest["kind"] == "Job"]
    env = {item["name"]: item["value"] for item in job["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert env["MEMORY_DATABASE_IDENTITY"] == f"{SERVER}@pg/app"


def test_the_very_first_job_expects_the_server_that_was_checked(world: World) -> None:
    new = world.index().model_copy(update={"system_identifier": "", "status": {}})
    plan = world.decide(new, database=replace(EMPTY, extension_version="0.8.7"))
    (job,) = [a.manifest for a in plan.actions if isinstance(a, Apply) and a.manifest["kind"] == "Job"]
    env = {item["name"]: item["value"] for item in job["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert env["MEMORY_DATABASE_IDENTITY"] == f"{SERVER}@pg/app"


def test_every_worker_expects_the_server_that_was_checked(cluster: Cluster) -> None:
    cluster.until_ready()
    sync = cluster.children["Deployment", "mem-sync"]
    env = {item["name"]: item["value"] for item in sync["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert env["MEMORY_DATABASE_IDENTITY"] == f"{SERVER}@pg/app"


@pytest.mark.promise("same-database-only")
def test_a_plain_postgres_is_remembered_and_another_one_refused(world: World) -> None:
    index = world.index(**PLAIN).model_copy(update={"system_identifier": ""})
    first = world.decide(index, cluster=None, database=PENDING)
    assert condition(first, "DatabaseReachable")["status"] == "True"
    assert first.status is not None
    assert first.status["database"]["systemIdentifier"] == SERVER
    later = index.model_copy(update={"system_identifier": SERVER, "status": first.status})
    second = world.decide(later, cluster=None, database=replace(PENDING, identity=ELSEWHERE))
    assert second.actions == ()
    assert condition(second, "Ready")["reason"] == "DatabaseIdentityMismatch"
    assert second.status is not None
    assert second.status["database"]["systemIdentifier"] == SERVER, "the refused server is not remembered"


def test_a_cluster_that_does_not_report_its_identifier_yet_is_waited_for(world: World) -> None:
    silent, new = replace(CLUSTER, system_id=""), world.index().model_copy(update={"system_identifier": ""})
    facts = replace(FULL, identity=IDENTITY)
    verdict = check_identity(new, silent, facts)
    assert verdict is not None
    assert (verdict.reason, verdict.stalls) == (Reason.CLUSTER_NOT_READY, False)
    assert check_identity(world.index(), silent, facts) is None, "a failover hides what was known before"
    moved = check_identity(world.index(), silent, replace(FULL, identity=ELSEWHERE))
    assert moved is not None


def test_a_role_that_may_not_read_the_identifier_is_told_the_statement(world: World) -> None:
    verdict = check_identity(world.index(), CLUSTER, FULL)
    assert verdict is not None
    assert "GRANT EXECUTE ON FUNCTION pg_control_system() TO PUBLIC" in verdict.text


@pytest.mark.promise("owner-unchanged")
@pytest.mark.promise("hostile-server-stays-in-place")
@pytest.mark.finding("D1")
@pytest.mark.finding("H5")
def test_the_owner_that_a_server_claims_reaches_no_database_object(world: World) -> None:
    index = world.index(database={"name": "payroll"})
    plan = world.decide(index, credentials=Credentials("payroll"), database=replace(EMPTY, database_owner="evil_role"))
    assert databases(plan) == []
    found = condition(plan, "ExtensionReady")
    assert (found["status"], found["reason"]) == ("False", "DatabaseObjectMissing")
    assert "evil_role" not in str(plan)


def test_the_object_to_apply_is_shown_whole(world: World) -> None:
    index = world.index(database={"name": "claude_memory"})
    plan = world.decide(index, credentials=Credentials("claude_memory"), database=EMPTY)
    message = condition(plan, "ExtensionReady")["message"]
    quoted, _ = json.JSONDecoder().raw_decode(message[message.index("{") :])
    assert quoted["metadata"] == {"name": "pg-claude-memory", "namespace": "dbaas"}
    assert quoted["spec"]["owner"] == "OWNER"
    assert quoted["spec"]["extensions"] == [{"name": "vector", "ensure": "present"}]


@pytest.mark.parametrize(
    ("application", "claimed"),
    [(ApplicationDatabase("app", "owner"), "dba"), (ApplicationDatabase("other", "owner"), "owner"), (None, "owner")],
)
def test_the_clusters_word_about_the_owner_counts_only_while_it_holds(
    world: World, application: ApplicationDatabase | None, claimed: str
) -> None:
    cluster = ClusterFacts(
        "dbaas", "pg", system_id=SERVER, allowed_namespaces=frozenset({"team"}), application=application
    )
    plan = world.decide(cluster=cluster, database=replace(EMPTY, database_owner=claimed))
    assert databases(plan) == []
    assert condition(plan, "ExtensionReady")["reason"] == "DatabaseObjectMissing"


def test_the_application_database_of_the_cluster_gets_an_object_with_its_own_owner(world: World) -> None:
    (applied,) = databases(world.decide(database=EMPTY))
    assert (applied["spec"]["name"], applied["spec"]["owner"]) == ("app", "owner")


@pytest.mark.parametrize("way", ["initdb", "recovery", "pg_basebackup"])
def test_the_application_database_is_read_from_any_way_of_bootstrapping(way: str) -> None:
    item = {
        "metadata": {"namespace": "dbaas", "name": "pg"},
        "spec": {"bootstrap": {way: {"database": "app", "owner": "boss", "secret": {"name": "x"}}}},
    }
    assert object_facts.cluster_facts(item).application == ApplicationDatabase("app", "boss")


def test_a_cluster_without_bootstrap_names_no_owner() -> None:
    assert object_facts.cluster_facts({"metadata": {"namespace": "dbaas", "name": "pg"}}).application is None
