"""An object that is deleted with `Retain` leaves no concept graph whose queue of changes nobody deals with."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from memory_operator.api.reasons import Reason
from memory_operator.api.spec import FINALIZER, MemoryIndex
from memory_operator.clients.kube import KubeError
from memory_operator.reconcile.deletion import FOREGROUND, SETTLED_WITHIN
from memory_operator.reconcile.facts import DeletionFacts, JobFacts, JobState, Peers, Problem
from memory_operator.reconcile.plan import Apply, Delete, Patch, Plan
from memory_operator.resources import workers
from memory_operator.resources.choices import Choice
from memory_recall.graph import GraphState
from memory_recall.schema.claims_sql import TableClaim
from tests.unit.memory_operator.conftest import (
    CLAIM,
    ENABLED_GRAPH,
    FILLED_GRAPH,
    FULL,
    IDENTITY,
    KEPT_GRAPH,
    Cluster,
    World,
    deep_update,
)
from tests.unit.memory_operator.test_operator_controller import Bench, bench
from tests.unit.memory_operator.test_operator_execution import delete, events

__all__ = ["bench"]  # the fixture
WANTED: dict[str, Any] = {"graph": {"enabled": True}}
SHOWN = {"conditions": [{"type": "GraphReady", "status": "False"}]}
UNREACHABLE = Problem(Reason.DATABASE_UNREACHABLE, "connection refused.")


def deleted(world: World, *finalizers: str, since: timedelta = timedelta(0), **spec: Any) -> MemoryIndex:
    """An index that was to be deleted some time ago."""
    update = {"deleted_at": world.now - since, "finalizers": (FINALIZER, *finalizers)}
    return world.index(**spec).model_copy(update=update)


def end(world: World, index: MemoryIndex, graph: GraphState | None = FILLED_GRAPH, **facts: Any) -> Plan:
    observed = world.observed(**{"database": replace(FULL, graph=graph), **facts})
    return world.conclude(index, DeletionFacts((), observed=observed, undoing_since=index.deleted_at))


def commands(plan: Plan) -> list[list[str]]:
    """What the containers of the Jobs that the plan starts are called with."""
    applied = [action.manifest for action in plan.actions if isinstance(action, Apply)]
    jobs = [manifest for manifest in applied if manifest["kind"] == "Job"]
    return [job["spec"]["template"]["spec"]["containers"][0]["command"] for job in jobs]


PAUSES = [["memory", "graph", "disable", "--keep", "--json"]]


def test_a_graph_is_paused_before_the_object_is_gone(cluster: Cluster) -> None:
    cluster.until_ready()
    cluster.manifest["spec"] = deep_update(cluster.manifest["spec"], WANTED)
    cluster.change(graph=FILLED_GRAPH)
    cluster.reconcile()
    cluster.delete()
    cluster.reconcile()
    assert cluster.running() == ["graph"]
    assert "pauses the concept graph" in cluster.condition("Ready")["message"]
    assert not cluster.gone
    cluster.finish("graph")
    cluster.change(graph=KEPT_GRAPH)
    cluster.reconcile()
    assert cluster.gone


@pytest.mark.parametrize(
    ("graph", "started"),
    [
        (ENABLED_GRAPH, PAUSES),
        (FILLED_GRAPH, PAUSES),
        (replace(KEPT_GRAPH, differences="trigger zz_memory_graph_delete"), PAUSES),
        (KEPT_GRAPH, []),
        (GraphState(), []),
        (None, []),
    ],
    ids=["being filled", "filled", "kept without a rule", "kept", "none", "not migrated"],
)
def test_a_job_pauses_what_is_enabled_and_nothing_else_is_waited_for(
    world: World, graph: GraphState | None, started: list[list[str]]
) -> None:
    plan = end(world, deleted(world, **WANTED), graph)
    assert commands(plan) == started
    assert plan.finalizer is (None if started else False)
    assert plan.left_behind == ()


def test_a_job_that_enables_the_graph_is_replaced(world: World) -> None:
    """It could enable the graph after the object is gone."""
    config = workers.config_fingerprint(world.index(**WANTED), world.images, "graph")
    enabling = JobFacts("mem-graph-old", "graph", config, 0, JobState.ACTIVE, uid="j-1")
    plan = end(world, deleted(world, **WANTED), GraphState(), jobs=(enabling,))
    assert Delete("Job", "team", "mem-graph-old", "j-1") in plan.actions
    assert commands(plan) == PAUSES


def test_a_graph_whose_end_was_wanted_a_moment_before_the_deletion_is_paused_too(world: World) -> None:
    index = deleted(world).model_copy(update={"status": SHOWN})
    assert commands(end(world, index)) == PAUSES


def test_a_deletion_resumes_no_job_whose_pods_were_made_with_what_is_permitted_no_more(world: World) -> None:
    proxy = Choice("A name in spec.embedder.podTemplate.env", "HTTPS_PROXY")
    stopped = JobFacts("mem-index-1", "index", "c", 0, JobState.ACTIVE, uid="j-1", suspended=True, stopped=True)
    plan = end(world, deleted(world, **WANTED), jobs=(replace(stopped, choices=(proxy,)),))
    assert [one for one in plan.actions if not isinstance(one, Apply)] == [Delete("Job", "team", "mem-index-1", "j-1")]
    plan = end(world, deleted(world, **WANTED), jobs=(stopped,))
    assert [one.changes["spec"] for one in plan.actions if isinstance(one, Patch)] == [{"suspend": False}]


def test_under_foreground_deletion_the_job_starts_only_after_kubernetes_has_deleted_the_children(world: World) -> None:
    plan = end(world, deleted(world, FOREGROUND, **WANTED))
    assert (plan.finalizer, plan.actions) == (None, ())


def test_the_jobs_networkpolicy_is_there_before_the_job(world: World) -> None:
    """Under foreground deletion Kubernetes has deleted it with the other children."""
    kinds = [one.manifest["kind"] for one in end(world, deleted(world, **WANTED)).actions if isinstance(one, Apply)]
    assert kinds == ["ConfigMap", "NetworkPolicy", "Job"]


@pytest.mark.parametrize(
    "facts",
    [
        {"database": UNREACHABLE},
        {"credentials": Problem(Reason.SECRET_MISSING, "Secret team/dsn does not exist."), "database": None},
    ],
    ids=["database", "secret"],
)
def test_a_pause_that_is_impossible_is_waited_for_two_minutes_and_then_named(
    world: World, facts: dict[str, Any]
) -> None:
    waits = end(world, deleted(world, since=SETTLED_WITHIN - timedelta(seconds=1), **WANTED), **facts)
    assert (waits.finalizer, waits.actions) == (None, ())
    plan = end(world, deleted(world, since=SETTLED_WITHIN, **WANTED), **facts)
    assert plan.finalizer is False
    (left,) = plan.left_behind
    assert "graph of table memories in database app of Cluster dbaas/pg was not paused" in left
    assert "memory graph disable --keep" in left


def test_a_job_that_does_not_end_is_not_waited_for_either(world: World) -> None:
    plan = end(world, deleted(world, since=SETTLED_WITHIN, **WANTED))
    assert (plan.finalizer, len(plan.left_behind)) == (False, 1)


@pytest.mark.parametrize("waits_for", ["an operator", "a user of its embedder", "its children"])
async def test_the_two_minutes_begin_once_the_pause_can_be_tried(bench: Bench, world: World, waits_for: str) -> None:
    """Otherwise the graph of an object whose deletion had to wait would be given up without an attempt."""
    bench.database = replace(FULL, graph=FILLED_GRAPH)
    await bench.reconcile(2)
    delete(bench, **WANTED)
    if waits_for == "a user of its embedder":
        user = world.manifest(embedder={"ref": {"name": "mem"}})
        bench.api.objects["MemoryIndex", "team", "user"] = user
        user["metadata"] |= {"name": "user", "uid": "u-2"}
        await bench.reconcile(2)
        del bench.api.objects["MemoryIndex", "team", "user"]
    if waits_for == "its children":
        bench.api.index["metadata"]["finalizers"] = [FINALIZER, FOREGROUND]
        await bench.reconcile(2)
        bench.api.index["metadata"]["finalizers"] = [FINALIZER]
    world.now += timedelta(hours=1)
    await bench.reconcile(2)
    assert [name for kind, _, name in bench.api.objects if kind == "Job" and "-graph-" in name]
    assert bench.api.index["metadata"]["finalizers"] == [FINALIZER]
    world.now += SETTLED_WITHIN
    await bench.reconcile()
    assert bench.api.index["metadata"]["finalizers"] == []


async def test_the_time_of_a_former_object_of_the_same_name_does_not_count(bench: Bench, world: World) -> None:
    bench.database = replace(FULL, graph=FILLED_GRAPH)
    delete(bench, **WANTED)
    await bench.reconcile()
    bench.api.index["metadata"]["uid"] = "u-2"
    bench.database = replace(bench.database, identity=IDENTITY, claim=replace(CLAIM, uid="u-2"))
    world.now += timedelta(hours=1)
    await bench.reconcile()
    assert bench.api.index["metadata"]["finalizers"] == [FINALIZER]


def test_a_namespace_that_is_being_deleted_keeps_no_object_for_its_graph(world: World) -> None:
    plan = world.conclude(deleted(world, **WANTED), DeletionFacts((), namespace_terminating=True))
    assert plan.finalizer is False
    assert "namespace is being deleted" in plan.left_behind[0]


@pytest.mark.parametrize("claim", [replace(CLAIM, uid="u-2", name="other"), None], ids=["of another", "none"])
def test_the_graph_of_a_table_that_the_object_never_claimed_is_left_alone(
    world: World, claim: TableClaim | None
) -> None:
    theirs = replace(FULL, graph=FILLED_GRAPH, identity=IDENTITY, claim=claim)
    plan = end(world, deleted(world, **WANTED), database=theirs, peers=Peers(holder_exists=False))
    assert (plan.finalizer, plan.actions, plan.left_behind) == (False, (), ())


@pytest.mark.parametrize(
    ("spec", "graph", "carried"),
    [
        (WANTED, None, True),
        ({}, ENABLED_GRAPH, True),
        ({}, KEPT_GRAPH, False),
        ({}, GraphState(), False),
    ],
)
def test_the_finalizer_is_there_while_a_graph_is_to_be_paused(
    world: World, spec: dict[str, Any], graph: GraphState | None, carried: bool
) -> None:
    index, observed, _ = world.settled(database={"extension": {"management": "Observe"}}, **spec)
    facts = {**vars(observed), "database": replace(FULL, graph=graph)}
    for finalizers in ((), (FINALIZER,)):
        plan = world.decide(index.model_copy(update={"finalizers": finalizers}), **facts)
        assert plan.finalizer is (None if bool(finalizers) is carried else carried)


def test_the_finalizer_stays_while_it_is_unknown_whether_there_is_a_graph(world: World) -> None:
    index, observed, _ = world.settled(database={"extension": {"management": "Observe"}})
    index = index.model_copy(update={"finalizers": (FINALIZER,), "status": {**index.status, **SHOWN}})
    assert world.decide(index, **{**vars(observed), "database": UNREACHABLE}).finalizer is None


async def test_an_operator_that_may_read_nothing_any_more_lets_the_object_go(bench: Bench) -> None:
    """In a namespace from which somebody has removed the operator's Role, no Job could be started."""
    delete(bench, **WANTED)
    get = bench.api.get

    async def refused(kind: str, namespace: str, name: str) -> Any:
        if kind == "Secret":
            raise KubeError("reading Secret team/dsn", 403, "forbidden", refused=True)
        return await get(kind, namespace, name)

    bench.api.get = refused  # type: ignore[method-assign]  (the one call that this test refuses)
    await bench.reconcile()
    (event,) = events(bench)
    assert "memory graph disable --keep" in event["message"]
    assert bench.api.index["metadata"]["finalizers"] == []
