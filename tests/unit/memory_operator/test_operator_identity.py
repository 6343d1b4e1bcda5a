"""Nothing is done in a database that is not the one that is meant: a physical copy is another server, too."""

import json
from dataclasses import replace
from typing import Any

import pytest

from memory_operator.api.reasons import Reason
from memory_operator.api.spec import parse
from memory_operator.clients import object_facts
from memory_operator.reconcile.authorization.identity import check_identity, is_instance
from memory_operator.reconcile.facts import (
    ApplicationDatabase,
    ClusterFacts,
    Credentials,
    DeletionFacts,
    Peer,
    Peers,
    PodFacts,
)
from memory_operator.reconcile.plan import Apply, Plan
from memory_recall.postgres.identity_sql import DatabaseIdentity
from memory_recall.schema.claims_sql import TableClaim
from memory_recall.status import NO_INDEX, DatabaseFacts, RowCounts
from tests.unit.memory_operator.conftest import CLUSTER, EMPTY, FULL, IDENTITY, SERVER, Cluster, World, condition

ELSEWHERE = DatabaseIdentity("7400000000000000002", "app", "pg")
PENDING = replace(FULL, rows=RowCounts(total=500, pending=500), index=NO_INDEX)
PLAIN: dict[str, Any] = {"database": {"cluster": None, "extension": {"management": "Observe"}}}


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


ORIGINAL, CLONE = DatabaseIdentity(SERVER, "app", "pg"), DatabaseIdentity(SERVER, "app", "pg-clone")
COPY = replace(CLUSTER, name="pg-clone", uid="c-2", addresses=frozenset({"10.0.0.2"}))
THEIRS = TableClaim(
    SERVER, "prod", "mem", "u-0", "2026-01-01T10:00:00Z", cluster_name="pg", kubernetes="k-1", cluster_namespace="dbaas"
)
OF_COPY: dict[str, Any] = {"database": {"cluster": {"name": "pg-clone", "namespace": "dbaas"}}}


def facts(identity: DatabaseIdentity, address: str | None, **changes: Any) -> DatabaseFacts:
    return replace(FULL, identity=identity, server_address=address, table_schema="public", **changes)


def jobs(plan: Plan) -> list[list[str]]:
    applied = [a.manifest for a in plan.actions if isinstance(a, Apply) and a.manifest["kind"] == "Job"]
    return [job["spec"]["template"]["spec"]["containers"][0]["command"] for job in applied]


@pytest.mark.parametrize("database", [EMPTY, FULL])
@pytest.mark.finding("operator F2")
def test_a_secret_of_the_original_is_refused_to_an_object_of_the_copy(world: World, database: DatabaseFacts) -> None:
    there = replace(database, identity=ORIGINAL, server_address="10.0.0.1")
    plan = world.decide(world.index(**OF_COPY), cluster=COPY, database=there)
    ready = condition(plan, "Ready")
    assert plan.actions == ()
    assert (ready["status"], ready["reason"]) == ("False", "DatabaseIdentityMismatch")
    assert "cluster 'pg', not to that of Cluster dbaas/pg-clone" in ready["message"]
    assert "delete" not in ready["message"].lower()


@pytest.mark.finding("operator F2")
def test_its_deletion_removes_nothing_from_the_original(world: World) -> None:
    mine = TableClaim(SERVER, "team", "mem", "u-1", "2026-01-01T11:00:00Z", cluster_name="pg-clone", kubernetes="k-1")
    index = world.index(**OF_COPY, deletionPolicy="Delete").model_copy(update={"deleted_at": world.now})
    observed = world.observed(cluster=COPY, database=facts(ORIGINAL, "10.0.0.1", claim=mine))
    plan = world.conclude(index, DeletionFacts((), observed=observed))
    assert (plan.finalizer, plan.actions) == (None, ())


@pytest.mark.finding("operator F2")
def test_every_job_expects_the_cluster_that_was_checked(world: World) -> None:
    plan = world.decide(
        world.index(**OF_COPY), cluster=COPY, database=replace(EMPTY, identity=CLONE, extension_version="0.8.7")
    )
    (job,) = [a.manifest for a in plan.actions if isinstance(a, Apply) and a.manifest["kind"] == "Job"]
    env = {item["name"]: item["value"] for item in job["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert env["MEMORY_DATABASE_IDENTITY"] == f"{SERVER}@pg-clone/app"


@pytest.mark.finding("operator F3")
def test_a_copys_object_takes_its_table_over_while_the_original_has_its_own(world: World) -> None:
    holder = world.manifest()
    holder["metadata"] |= {"uid": "u-0", "namespace": "prod", "creationTimestamp": "2026-01-01T10:00:00Z"}
    holder["status"]["database"] |= {"tableSchema": "public", "clusterName": "pg"}
    peers = Peers((Peer.of(parse(holder)),), holder_exists=True)
    copied = facts(CLONE, "10.0.0.2", claim=THEIRS)
    plan = world.decide(world.index(**OF_COPY), cluster=COPY, database=copied, peers=peers)
    (command,) = jobs(plan)
    assert command[command.index("--replaces") + 1] == "u-0"
    claim = TableClaim.from_json(command[command.index("--claim") + 1])
    assert (claim.uid, claim.cluster_name, claim.cluster_namespace) == ("u-1", "pg-clone", "dbaas")
    assert condition(plan, "Ready")["reason"] != "TableTaken"


@pytest.mark.finding("operator F3")
def test_in_a_copy_without_claims_an_older_object_of_the_original_is_no_rival(world: World) -> None:
    older = world.manifest()
    older["metadata"] |= {"uid": "u-0", "namespace": "prod", "creationTimestamp": "2026-01-01T10:00:00Z"}
    older["status"]["database"] |= {"tableSchema": "public", "clusterName": "pg"}
    new = replace(EMPTY, identity=CLONE, server_address="10.0.0.2", table_schema="public")
    plan = world.decide(world.index(**OF_COPY), cluster=COPY, database=new, peers=Peers((Peer.of(parse(older)),)))
    assert condition(plan, "Ready")["reason"] != "TableTaken"


@pytest.mark.parametrize("address", ["10.0.0.1", "10.0.0.2"])
@pytest.mark.finding("operator F3")
def test_copies_under_one_name_are_told_apart_by_the_servers_address(world: World, address: str) -> None:
    """The Cluster staging/pg was restored from dbaas/pg."""
    staging = replace(CLUSTER, namespace="staging", uid="c-3", addresses=frozenset({"10.0.0.2", "10.0.0.3"}))
    index = world.index(database={"cluster": {"name": "pg", "namespace": "staging"}})
    plan = world.decide(
        index, cluster=staging, database=facts(ORIGINAL, address, claim=THEIRS), peers=Peers(holder_exists=True)
    )
    if address == "10.0.0.1":
        assert condition(plan, "Ready")["reason"] == "DatabaseIdentityMismatch"
        assert "none of the instances of Cluster staging/pg" in condition(plan, "Ready")["message"]
        assert plan.actions == ()
    else:
        assert jobs(plan)[0][-3:-1] == ["--replaces", "u-0"]


@pytest.mark.finding("operator F3")
def test_where_no_address_tells_the_exact_statement_is_named_instead_of_the_deletion_of_an_object(world: World) -> None:
    staging = replace(CLUSTER, namespace="staging", uid="c-3")
    index = world.index(database={"cluster": {"name": "pg", "namespace": "staging"}})
    holder = world.manifest()
    holder["metadata"] |= {"uid": "u-0", "namespace": "prod", "creationTimestamp": "2026-01-01T10:00:00Z"}
    peers = Peers((Peer.of(parse(holder)),), holder_exists=True)
    plan = world.decide(index, cluster=staging, database=facts(ORIGINAL, None, claim=THEIRS), peers=peers)
    ready = condition(plan, "Ready")
    assert ready["reason"] == "TableTaken"
    assert "If this server is a physical copy" in ready["message"]
    assert THEIRS.ending() in ready["message"]
    assert plan.actions == ()


def test_no_remedy_advises_to_delete_another_object_or_to_drop_vectors() -> None:
    assert Reason.TABLE_TAKEN.remedy.startswith("Delete this MemoryIndex; ")
    assert "Retain" in Reason.DATABASE_IDENTITY_MISMATCH.remedy


@pytest.mark.finding("operator F2")
def test_a_plain_postgres_is_remembered_with_its_cluster_and_a_copy_refused(world: World) -> None:
    index = world.index(**PLAIN)
    index = index.model_copy(update={"cluster_name": None})
    first = world.decide(index, cluster=None, database=facts(ORIGINAL, "10.0.0.1"))
    assert first.status is not None
    assert first.status["database"]["clusterName"] == "pg"
    later = index.model_copy(update={"cluster_name": "pg", "status": first.status})
    second = world.decide(later, cluster=None, database=facts(CLONE, "10.0.0.2"))
    assert second.actions == ()
    assert condition(second, "Ready")["reason"] == "DatabaseIdentityMismatch"
    unnamed = index.model_copy(update={"cluster_name": ""})
    third = world.decide(unnamed, cluster=None, database=facts(replace(ORIGINAL, cluster_name=""), "10.0.0.1"))
    assert condition(third, "DatabaseReachable")["status"] == "True"


@pytest.mark.parametrize(
    ("address", "addresses", "found"),
    [
        ("10.0.0.1", {"10.0.0.1"}, True),
        ("10.0.0.9", {"10.0.0.1", "10.0.0.2"}, False),
        ("fd00::1", {"fd00:0::1"}, True),
        ("fd00::1", {"10.0.0.1"}, None),
        ("127.0.0.1", {"10.0.0.1"}, None),
        (None, {"10.0.0.1"}, None),
        ("10.0.0.1", set(), None),
        ("10.0.0.1 and more", {"10.0.0.1"}, None),
        ("10.0.0.1", {"not known"}, None),
    ],
)
def test_an_address_that_cannot_be_compared_decides_nothing(
    address: str | None, addresses: set[str], found: bool | None
) -> None:
    cluster = replace(CLUSTER, addresses=frozenset(addresses))
    assert is_instance(cluster, replace(FULL, server_address=address)) is found


def test_an_address_that_a_changing_cluster_does_not_report_yet_is_waited_for(world: World) -> None:
    changing = replace(CLUSTER, healthy=False, addresses=frozenset({"10.0.0.1"}))
    verdict = check_identity(world.index(), changing, facts(ORIGINAL, "10.0.0.5"))
    assert verdict is not None
    assert (verdict.reason, verdict.stalls) == (Reason.CLUSTER_NOT_READY, False)


def test_the_addresses_are_those_that_cloudnative_pg_reports() -> None:
    states = {"pg-1": {"isPrimary": True, "ip": "10.0.0.1"}, "pg-2": {"isPrimary": False}}
    item = {"metadata": {"namespace": "dbaas", "name": "pg"}, "status": {"instancesReportedState": states}}
    assert object_facts.cluster_facts(item).addresses == {"10.0.0.1"}


@pytest.mark.parametrize("name", [None, "", "pg", "18/main", "a@b/c", "ü"])
def test_an_identity_is_read_as_it_was_written(name: str | None) -> None:
    identity = DatabaseIdentity(SERVER, "na/me@x", name)
    assert DatabaseIdentity.parse(str(identity)) == identity
