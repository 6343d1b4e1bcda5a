"""The end of a MemoryIndex under either policy: what is undone, what it waits for, and when it waits no longer."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from memory_operator.api.reasons import Reason
from memory_operator.api.spec import FINALIZER, MemoryIndex
from memory_operator.clients import object_facts
from memory_operator.reconcile.deletion import FOREGROUND, GONE_AFTER
from memory_operator.reconcile.facts import ClusterFacts, DeletionFacts, PodFacts, Problem
from memory_operator.reconcile.plan import Apply, Delete, Plan
from memory_operator.resources.cnpg import DatabaseObject, own_labels
from memory_operator.resources.events import cluster_elsewhere
from tests.unit.memory_operator.conftest import Cluster, World, condition

HIBERNATED = ClusterFacts("dbaas", "pg", phase=object_facts.HEALTHY_PHASE, hibernated=True)
SECRET_GONE = {"credentials": Problem(Reason.SECRET_MISSING, "Secret team/dsn does not exist."), "database": None}
CLUSTER_GONE = {"cluster": Problem(Reason.CLUSTER_MISSING, "Cluster dbaas/pg does not exist."), "database": None}
CNPG_GONE = {"cluster": Problem(Reason.CNPG_MISSING, "The cluster does not know its kinds."), "database": None}


def deleted(world: World, *finalizers: str, since: timedelta = timedelta(0), **spec: Any) -> MemoryIndex:
    """An index that was to be deleted some time ago."""
    update = {"deleted_at": world.now - since, "finalizers": (FINALIZER, *finalizers)}
    return world.index(**spec).model_copy(update=update)


def end(world: World, index: MemoryIndex, **facts: Any) -> Plan:
    observed = world.observed(**facts)
    return world.conclude(index, DeletionFacts((), observed=observed, undoing_since=index.deleted_at))


def our_object(index: MemoryIndex, **changes: Any) -> DatabaseObject:
    found = DatabaseObject(
        namespace="dbaas",
        name="team-mem",
        owner="owner",
        labels=own_labels(index),
        extensions=(),
        generation=1,
        index_uid=index.uid,
        uid="d-1",
    )
    return replace(found, **changes)


def applied(plan: Plan) -> list[tuple[str, str]]:
    """Kind and component of the objects that the plan applies, in order."""
    found = [action.manifest for action in plan.actions if isinstance(action, Apply)]
    return [(one["kind"], one["metadata"]["labels"]["app.kubernetes.io/component"]) for one in found]


def started(plan: Plan) -> list[str]:
    return [component for kind, component in applied(plan) if kind == "Job"]


# The finalizer during life


def test_an_object_without_anything_to_undo_carries_no_finalizer(cluster: Cluster) -> None:
    cluster.manifest["spec"]["database"]["extension"] = {"management": "Observe"}
    cluster.change(extension_version="0.8.7")
    for advance in (cluster.migrate, cluster.embed, cluster.build):
        cluster.reconcile()
        cluster.reconcile()
        advance()
    cluster.reconcile()
    assert cluster.condition("Ready")["status"] == "True"
    assert "finalizer" not in cluster.writes


def test_the_finalizer_is_written_before_the_database_object_of_another_namespace(cluster: Cluster) -> None:
    cluster.reconcile()
    assert "finalizer" not in cluster.writes
    cluster.reconcile()
    assert cluster.writes.index("finalizer") < cluster.writes.index("Database")


def test_a_database_object_beside_its_index_has_an_owner_and_needs_no_finalizer(cluster: Cluster) -> None:
    cluster.manifest["spec"]["database"]["cluster"] = {"name": "pg"}
    beside = ClusterFacts("team", "pg", phase=object_facts.HEALTHY_PHASE)
    for _ in range(2):
        plan = cluster.world.decide(cluster.index, **{**vars(cluster.observe()), "cluster": beside})
        for action in plan.actions:
            cluster._execute(action)
        assert plan.finalizer is None
    (made,) = cluster.cnpg.values()
    assert [owner["uid"] for owner in made["metadata"]["ownerReferences"]] == ["u-1"]


def test_a_database_object_in_another_namespace_has_no_owner_nor_the_label_by_which_argo_cd_would_delete_it(
    cluster: Cluster,
) -> None:
    cluster.until_ready()
    (made,) = cluster.cnpg.values()
    assert "ownerReferences" not in made["metadata"]
    assert "app.kubernetes.io/instance" not in made["metadata"]["labels"]


def test_the_policy_delete_demands_the_finalizer_before_anything_is_begun(cluster: Cluster) -> None:
    cluster.manifest["spec"]["deletionPolicy"] = "Delete"
    cluster.reconcile()
    assert cluster.writes == ["finalizer", "status"]


def test_the_finalizer_follows_a_change_of_the_policy(world: World) -> None:
    index, observed, _ = world.settled(database={"extension": {"management": "Observe"}})
    wants = index.model_copy(update={"spec": index.spec.model_copy(update={"deletion_policy": "Delete"})})
    assert world.decide(wants, **vars(observed)).finalizer is True
    carries = index.model_copy(update={"finalizers": (FINALIZER,)})
    assert world.decide(carries, **vars(observed)).finalizer is False


def test_the_finalizer_stays_while_it_is_unknown_whether_something_is_to_be_undone(world: World) -> None:
    index = world.index().model_copy(update={"finalizers": (FINALIZER,)})
    assert world.decide(index, **CLUSTER_GONE).finalizer is None


# Policy Retain


def test_retain_deletes_our_database_object_and_removes_the_finalizer(cluster: Cluster) -> None:
    cluster.until_ready()
    cluster.delete()
    cluster.reconcile()
    assert cluster.writes == ["delete Database", "finalizer"]
    assert cluster.gone


@pytest.mark.finding("D17")
@pytest.mark.parametrize(
    "theirs",
    [{"labels": {"app": "theirs"}}, {"index_uid": None}, {"index_uid": "u-9"}],
    ids=["other labels", "our labels without a uid", "another uid"],
)
def test_retain_deletes_no_database_object_of_others(world: World, theirs: dict[str, Any]) -> None:
    index = deleted(world)
    assert world.conclude(index, DeletionFacts((our_object(index, **theirs),))).actions == ()


def test_retain_ends_also_where_database_objects_may_not_be_read_and_says_so(world: World) -> None:
    plan = world.conclude(deleted(world), DeletionFacts(None))
    assert plan.finalizer is False
    assert "dbaas" in " ".join(plan.left_behind)


@pytest.mark.parametrize("spec", [{"suspend": True}, {"embedding": {"dimensions": 1024}}])
def test_a_suspended_or_blocked_object_is_deleted_too(cluster: Cluster, spec: dict[str, Any]) -> None:
    cluster.until_ready()
    cluster.delete(**spec)
    cluster.reconcile()
    assert cluster.gone


def test_the_migrations_of_a_suspended_object_are_undone_too(world: World) -> None:
    assert started(end(world, deleted(world, suspend=True, deletionPolicy="Delete"))) == ["uninstall"]


# Policy Delete


def test_delete_stops_the_workers_undoes_the_migrations_and_removes_the_finalizer(cluster: Cluster) -> None:
    cluster.until_ready()
    cluster.delete(deletionPolicy="Delete")
    cluster.reconcile()
    assert cluster.replicas("mem-sync") is None
    assert not cluster.gone
    cluster.reconcile()
    assert cluster.running() == ["uninstall"]
    cluster.finish("uninstall")
    cluster.change(schema_revision=None)
    cluster.reconcile()
    assert cluster.gone
    assert cluster.cnpg == {}


def test_a_job_that_was_stopped_because_its_namespace_was_full_goes_on_afterwards(cluster: Cluster) -> None:
    """Else the deletion would wait for it forever."""
    cluster.until_ready()
    cluster.delete(deletionPolicy="Delete")
    cluster.reconcile()
    cluster.reconcile()
    (name,) = [job.name for job in cluster.jobs.values() if job.component == "uninstall"]
    cluster.jobs[name] = replace(cluster.jobs[name], suspended=True, stopped=True)
    cluster.reconcile()
    assert (cluster.running(), cluster.jobs[name].suspended) == (["uninstall"], False)


@pytest.mark.parametrize(("ended", "running"), [(True, ["uninstall"]), (False, [])])
def test_the_migrations_are_undone_only_after_the_last_workers_pod_has_ended(
    world: World, ended: bool, running: list[str]
) -> None:
    pod = PodFacts(name="mem-backfill-x", component="backfill", ended=ended)
    assert started(end(world, deleted(world, deletionPolicy="Delete"), pods=(pod,))) == running


@pytest.mark.finding("D31")
def test_under_foreground_deletion_the_job_starts_only_after_kubernetes_has_deleted_the_children(world: World) -> None:
    """A Job that is made earlier is deleted with the last of the children, perhaps in the middle of its work."""
    index = deleted(world, FOREGROUND, deletionPolicy="Delete")
    assert end(world, index).actions == ()
    assert started(end(world, index.model_copy(update={"finalizers": (FINALIZER,)}))) == ["uninstall"]


def test_the_jobs_networkpolicy_is_there_before_the_job_and_put_back_while_it_runs(cluster: Cluster) -> None:
    """Under foreground deletion Kubernetes has deleted it with the other children."""
    cluster.until_ready()
    cluster.delete(FINALIZER, deletionPolicy="Delete")
    cluster.children.clear()
    plan = cluster.reconcile()
    before = [("ConfigMap", "database-ca"), ("NetworkPolicy", "workers")]
    assert applied(plan) == [*before, ("Job", "uninstall")]
    assert cluster.reconcile().actions == ()
    cluster.children.clear()
    assert applied(cluster.reconcile()) == before


@pytest.mark.finding("D4")
@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"database": Problem(Reason.DATABASE_UNREACHABLE, "connection refused.")}, "DatabaseUnreachable"),
        ({"credentials": Problem(Reason.SECRET_KEY_MISSING, "no key uri.")}, "SecretKeyMissing"),
        ({"cluster": HIBERNATED, "database": None}, "ClusterHibernated"),
        (SECRET_GONE, "SecretMissing"),
        (CLUSTER_GONE, "ClusterMissing"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_delete_waits_for_a_database_that_may_come_back_and_says_for_what(
    world: World, facts: dict[str, Any], reason: str
) -> None:
    plan = end(world, deleted(world, deletionPolicy="Delete"), **facts)
    assert (plan.finalizer, plan.actions) == (None, ())
    assert condition(plan, "Ready")["reason"] == reason
    assert "spec.deletionPolicy to Retain" in condition(plan, "Ready")["message"]


@pytest.mark.finding("D4")
def test_a_database_that_was_not_asked_still_has_something_to_undo(world: World) -> None:
    """A hibernated Cluster is not asked, at any age of the deletion."""
    index = deleted(world, since=10 * GONE_AFTER, deletionPolicy="Delete")
    plan = end(world, index, cluster=HIBERNATED, database=None)
    assert plan.finalizer is None
    assert condition(plan, "Ready")["reason"] == "ClusterHibernated"


def test_another_database_than_the_specified_one_is_left_alone(world: World) -> None:
    index = deleted(world, deletionPolicy="Delete")
    credentials = replace(world.observed().credentials, database="production")
    plan = end(world, index, credentials=credentials)
    assert plan.actions == ()
    assert condition(plan, "Ready")["reason"] == "DatabaseNameMismatch"


@pytest.mark.finding("D3")
@pytest.mark.parametrize("facts", [SECRET_GONE, CLUSTER_GONE, CNPG_GONE], ids=["secret", "cluster", "cnpg"])
def test_delete_ends_where_secret_or_cluster_has_gone_for_good_and_names_what_stays(
    world: World, facts: dict[str, Any]
) -> None:
    plan = end(world, deleted(world, since=GONE_AFTER, deletionPolicy="Delete"), **facts)
    assert plan.finalizer is False
    (stays,) = plan.left_behind
    assert "table memories stays in database app of Cluster dbaas/pg" in stays
    assert "memory migrate --to base" in stays


def test_delete_ends_at_once_in_a_namespace_that_is_being_deleted(world: World) -> None:
    """No Job can be made there; the Database object elsewhere is still deleted."""
    index = deleted(world, deletionPolicy="Delete")
    plan = world.conclude(index, DeletionFacts((our_object(index),), namespace_terminating=True))
    assert plan.finalizer is False
    assert plan.actions == (Delete("Database", "dbaas", "team-mem", "d-1"),)
    assert "namespace is being deleted" in plan.left_behind[0]


def test_an_object_that_was_undone_leaves_nothing_behind(world: World) -> None:
    facts = world.observed().database_facts
    plan = end(world, deleted(world, deletionPolicy="Delete"), database=replace(facts, schema_revision=None))
    assert (plan.finalizer, plan.left_behind) == (False, ())


@pytest.mark.finding("D25")
def test_an_object_is_never_reconciling_and_stalled_while_it_is_deleted(world: World) -> None:
    for reason, person in ((Reason.POOLER_REFUSED, True), (Reason.DATABASE_UNREACHABLE, False)):
        plan = end(world, deleted(world, deletionPolicy="Delete"), database=Problem(reason, "x."))
        assert (condition(plan, "Stalled")["status"] == "True") is person
        assert (condition(plan, "Reconciling")["status"] == "True") is not person


def test_the_event_about_what_stays_can_be_about_a_cluster_of_another_namespace(world: World) -> None:
    """The object's own namespace may accept none any more."""
    (cluster,) = cluster_elsewhere(world.index())
    assert (cluster.kind, cluster.namespace, cluster.name) == ("Cluster", "dbaas", "pg")
    assert cluster_elsewhere(world.index(database={"cluster": {"namespace": "team"}})) == ()
