"""The concept graph of an object: which Job runs, what becomes of a graph that is not wanted, and what is reported."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from memory_operator.api.spec import Manifest
from memory_operator.controller import observe
from memory_operator.controller.metrics import Metrics
from memory_operator.reconcile.facts import DeploymentFacts, JobFacts, JobState, PodFacts
from memory_operator.reconcile.indexing.backfill import IDLE_LIMIT
from memory_operator.reconcile.indexing.graph import pending_changes
from memory_operator.reconcile.plan import Apply, Delete, Plan
from memory_operator.resources import workers
from memory_recall.graph import GraphState
from memory_recall.status import RowCounts
from tests.unit.memory_operator.conftest import (
    ENABLED_GRAPH,
    FILLED_GRAPH,
    FULL,
    KEPT_GRAPH,
    Cluster,
    World,
    deep_update,
)
from tests.unit.memory_operator.test_operator_controller import Bench, bench
from tests.unit.memory_operator.test_operator_reporting import settle

WANTED: dict[str, Any] = {"graph": {"enabled": True}}
DELETE: dict[str, Any] = {"deletionPolicy": "Delete"}
ENABLE, DROP, KEEP = ["enable"], ["disable"], ["disable", "--keep"]
HALF_MADE = GraphState(exists=True, enabled=True, differences="row of memory_graph")
ALTERED = "function memory_graph_forget is not what it must be"


def decide(world: World, found: GraphState | None, /, *jobs: JobFacts, **spec: Any) -> Plan:
    """The plan for an object that is settled but for its graph, whose Jobs have pods that run."""
    _, observed, _ = world.settled()
    pods = tuple(PodFacts(f"{job.name}-x", job.component, running=True) for job in jobs)
    facts = {**vars(observed), "database": replace(FULL, graph=found), "jobs": jobs, "pods": pods}
    return world.decide(world.index(**spec), **facts)


def commands(plan: Plan) -> list[list[str]]:
    """What `memory graph` is called with by the Jobs that the plan starts."""
    jobs = [one.manifest for one in plan.actions if isinstance(one, Apply) and one.manifest["kind"] == "Job"]
    found = [job["spec"]["template"]["spec"]["containers"][0]["command"] for job in jobs]
    assert all(command[:2] == ["memory", "graph"] and command[-1] == "--json" for command in found)
    return [command[2:-1] for command in found]


def conditions(plan: Plan) -> dict[str, Manifest]:
    assert plan.status is not None
    return {condition["type"]: condition for condition in plan.status["conditions"]}


def reason(plan: Plan) -> str | None:
    """The reason of GraphReady; None if the object has no such condition."""
    return conditions(plan).get("GraphReady", {}).get("reason")


def running(world: World, **spec: Any) -> JobFacts:
    """A Job that does what this specification says about the graph."""
    config = workers.config_fingerprint(world.index(**spec), world.images, "graph")
    return JobFacts("mem-graph-old", "graph", config, 0, JobState.ACTIVE, uid="j-1")


@pytest.mark.parametrize(
    ("spec", "graph", "started", "reported"),
    [
        ({}, None, [], None),
        ({}, GraphState(), [], None),
        (WANTED, None, [ENABLE], "Enabling"),
        (WANTED, GraphState(), [ENABLE], "Enabling"),
        (WANTED, HALF_MADE, [ENABLE], "Enabling"),
        (WANTED, KEPT_GRAPH, [ENABLE], "Enabling"),
        (WANTED, ENABLED_GRAPH, [], "Filling"),
        (WANTED, FILLED_GRAPH, [], "Filled"),
        (WANTED, replace(FILLED_GRAPH, differences=ALTERED), [ENABLE], "RulesMissing"),
        (DELETE, FILLED_GRAPH, [DROP], "Disabling"),
        (DELETE, HALF_MADE, [DROP], "Disabling"),
        (DELETE, KEPT_GRAPH, [DROP], "Disabling"),
        ({}, FILLED_GRAPH, [KEEP], "Disabling"),
        ({}, HALF_MADE, [KEEP], "Disabling"),
        ({}, KEPT_GRAPH, [], "Disabled"),
        ({}, replace(KEPT_GRAPH, differences=ALTERED), [KEEP], "RulesMissing"),
    ],
)
def test_the_job_that_is_started_follows_from_the_specification_and_the_database(
    world: World, spec: dict[str, Any], graph: GraphState | None, started: list[list[str]], reported: str | None
) -> None:
    plan = decide(world, graph, **spec)
    assert commands(plan) == started
    assert reason(plan) == reported
    assert conditions(plan)["Ready"]["status"] == "True", "recalls work without the graph"


@pytest.mark.parametrize(
    ("spec", "graph", "former", "started"),
    [
        (WANTED, FILLED_GRAPH, DELETE, ENABLE),
        (WANTED, ENABLED_GRAPH, {}, ENABLE),
        (DELETE, None, WANTED, DROP),
        ({}, KEPT_GRAPH, WANTED, KEEP),
        (DELETE, FILLED_GRAPH, {}, DROP),
    ],
)
def test_a_running_job_that_would_undo_what_is_specified_now_is_replaced(
    world: World, spec: dict[str, Any], graph: GraphState | None, former: dict[str, Any], started: list[str]
) -> None:
    """Also where it has not changed the database yet, so that the graph still is as it should be."""
    plan = decide(world, graph, running(world, **former), **spec)
    assert plan.actions[0] == Delete("Job", "team", "mem-graph-old", "j-1")
    assert commands(plan) == [started]


def test_no_job_is_started_beside_one_that_does_the_same(world: World) -> None:
    plan = decide(world, HALF_MADE, running(world, **WANTED), **WANTED)
    assert plan.actions == ()
    assert reason(plan) == "Enabling"


def test_a_message_says_which_rule_is_wrong(world: World) -> None:
    plan = decide(world, replace(FILLED_GRAPH, differences=ALTERED), **WANTED)
    assert ALTERED in conditions(plan)["GraphReady"]["message"]


def test_the_status_has_the_counts_of_the_graph_while_the_database_holds_one(world: World) -> None:
    plan = decide(world, ENABLED_GRAPH, **WANTED)
    assert plan.status is not None
    assert plan.status["graph"] == {"memories": 20, "links": 60, "pending": 80}
    kept = decide(world, KEPT_GRAPH).status
    assert kept is not None
    assert kept["graph"] == {"links": 300, "pending": 0}
    without = decide(world, GraphState()).status
    assert without is not None
    assert "graph" not in without


def test_the_counts_outlast_an_outage_of_the_database(world: World) -> None:
    index = world.index(**WANTED)
    plan = decide(world, FILLED_GRAPH, **WANTED)
    outage = world.decide_again(plan, 3, index, database=None)
    assert outage.status is not None
    assert plan.status is not None
    assert outage.status["graph"] == plan.status["graph"]
    assert (reason(outage), conditions(outage)["GraphReady"]["status"]) == ("Waiting", "Unknown")


@pytest.mark.parametrize(
    ("graph", "shown"), [(KEPT_GRAPH, True), (GraphState(), False)], ids=["kept tables", "no graph"]
)
def test_an_outage_does_not_change_which_conditions_an_object_has(world: World, graph: GraphState, shown: bool) -> None:
    plan = decide(world, graph)
    outage = world.decide_again(plan, 3, world.index(), database=None)
    assert ("GraphReady" in conditions(outage)) is ("GraphReady" in conditions(plan)) is shown


@pytest.mark.parametrize(
    ("graph", "seconds"),
    [(GraphState(), 3.0), (ENABLED_GRAPH, 3.0), (FILLED_GRAPH, 30.0)],
    ids=["enabling", "filling", "filled"],
)
def test_the_progress_of_a_graph_is_observed_as_often_as_other_work(
    world: World, graph: GraphState, seconds: float
) -> None:
    assert decide(world, graph, **WANTED).requeue_after == seconds


def test_reconciling_is_true_while_a_job_is_at_work_and_not_while_the_graph_is_filled(world: World) -> None:
    """A tool that waits for an edit must not pass one whose Job can never succeed."""
    assert conditions(decide(world, GraphState(), **WANTED))["Reconciling"]["status"] == "True"
    assert conditions(decide(world, ENABLED_GRAPH, **WANTED))["Reconciling"]["status"] == "False"


def test_the_graph_waits_while_the_sync_worker_has_no_pod(world: World) -> None:
    _, observed, _ = world.settled()
    stopped = DeploymentFacts(replicas=0, ready=0, current=True)
    queue = replace(FULL, rows=RowCounts(total=5000, pending=5000), graph=ENABLED_GRAPH)
    plan = world.decide(world.index(**WANTED), **{**vars(observed), "database": queue, "sync": stopped})
    assert reason(plan) == "Waiting"
    assert "mem-sync fills the graph" in conditions(plan)["GraphReady"]["message"]


def test_nothing_is_written_for_the_graph_before_the_schema_is_ready(world: World) -> None:
    _, observed, _ = world.settled()
    behind = replace(FULL, schema_revision="0000", graph=None)
    plan = world.decide(world.index(**WANTED), **{**vars(observed), "database": behind})
    started = [action.manifest["kind"] for action in plan.actions if isinstance(action, Apply)]
    assert [kind for kind in started if kind == "Job"] == ["Job"], "the migration alone"
    assert reason(plan) == "Waiting"


def test_a_swap_of_the_model_does_not_stop_the_graph(world: World) -> None:
    _, observed, _ = world.settled()
    spec = {**WANTED, "embedding": {"model": "bge-small-en-v1.5", "dimensions": 384}}
    plan = world.decide(world.index(**spec), **{**vars(observed), "database": replace(FULL, graph=GraphState())})
    assert reason(plan) == "Enabling"
    assert conditions(plan)["ModelActive"]["reason"] == "Swapping"


def test_a_suspended_object_starts_no_job(world: World) -> None:
    plan = decide(world, GraphState(), **WANTED, suspend=True)
    assert plan.actions == ()
    assert reason(plan) == "Waiting"


def test_the_whole_life_of_a_graph(cluster: Cluster) -> None:
    """Enabled with the object, filled, disabled and dropped; the object is Ready from its first index on."""
    cluster.manifest["spec"] = deep_update(cluster.manifest["spec"], {**WANTED, **DELETE})
    cluster.reconcile()
    cluster.reconcile()
    cluster.change(extension_version="0.8.7")
    cluster.reconcile()
    cluster.migrate()
    cluster.reconcile()
    assert "graph" in cluster.running(), "it need not wait for the backfill"
    cluster.finish("graph")
    cluster.change(graph=ENABLED_GRAPH)
    cluster.reconcile()
    assert cluster.condition("GraphReady")["reason"] == "Waiting"
    cluster.embed()
    cluster.reconcile()
    cluster.build()
    cluster.reconcile()
    cluster.reconcile()
    assert cluster.condition("GraphReady")["reason"] == "Filling"
    assert cluster.condition("Ready")["status"] == "True"
    cluster.change(graph=FILLED_GRAPH)
    cluster.reconcile()
    assert cluster.condition("GraphReady")["status"] == "True"
    cluster.manifest["spec"] = deep_update(cluster.manifest["spec"], {"graph": {"enabled": False}})
    cluster.reconcile()
    assert cluster.running() == ["graph"]
    cluster.finish("graph")
    cluster.change(graph=GraphState())
    cluster.writes.clear()
    cluster.reconcile()
    cluster.reconcile()
    assert cluster.writes == ["status"]
    assert "GraphReady" not in {condition["type"] for condition in cluster.manifest["status"]["conditions"]}
    assert "graph" not in cluster.manifest["status"]


def test_a_graph_job_is_stopped_before_the_migrations_are_undone(cluster: Cluster) -> None:
    cluster.until_ready()
    cluster.manifest["spec"] = deep_update(cluster.manifest["spec"], WANTED)
    cluster.reconcile()
    assert cluster.running() == ["graph"]
    cluster.delete(deletionPolicy="Delete")
    cluster.reconcile()
    assert cluster.running() == []
    cluster.reconcile()
    assert cluster.running() == ["uninstall"]


def test_a_condition_that_an_object_no_longer_has_leaves_the_metrics(world: World) -> None:
    metrics, labels = Metrics(), {"namespace": "team", "name": "mem", "type": "GraphReady"}

    def reported(plan: Plan) -> float | None:
        assert plan.status is not None
        metrics.report("team", "mem", plan.status)
        return metrics.registry.get_sample_value("memory_operator_object_condition", labels)

    assert reported(decide(world, None)) is None
    assert reported(decide(world, ENABLED_GRAPH, **WANTED)) == 0
    assert reported(decide(world, FILLED_GRAPH, **WANTED)) == 1
    assert reported(decide(world, None)) is None


__all__ = ["bench"]  # the fixture
RUNNING = DeploymentFacts(replicas=1, ready=1, current=True)


@pytest.mark.parametrize(
    ("graph", "recalls"),
    [(ENABLED_GRAPH, "do without the graph"), (replace(FILLED_GRAPH, pending=5), "use the graph without them")],
    ids=["being filled", "filled"],
)
def test_a_worker_that_gets_nowhere_with_the_queue_is_reported_after_two_minutes(
    world: World, graph: GraphState, recalls: str
) -> None:
    _, observed, _ = world.settled()
    facts = {**vars(observed), "database": replace(FULL, graph=graph)}
    early, late = world.now - IDLE_LIMIT + timedelta(seconds=1), world.now - IDLE_LIMIT
    assert reason(world.decide(world.index(**WANTED), **{**facts, "graph_idle_since": early})) in {"Filling", "Filled"}
    plan = world.decide(world.index(**WANTED), **{**facts, "graph_idle_since": late})
    assert (reason(plan), conditions(plan)["GraphReady"]["status"]) == ("GraphNotProgressing", "False")
    assert recalls in conditions(plan)["GraphReady"]["message"]
    assert "sync Deployment's pod" in conditions(plan)["GraphReady"]["message"]


@pytest.mark.parametrize(
    ("graph", "sync", "pending"),
    [
        (ENABLED_GRAPH, RUNNING, 80),
        (replace(FILLED_GRAPH, pending=5), RUNNING, 5),
        (replace(ENABLED_GRAPH, queued=False), RUNNING, 0),
        (replace(ENABLED_GRAPH, differences=ALTERED), RUNNING, 0),
        (ENABLED_GRAPH, replace(RUNNING, replicas=0), 0),
        (ENABLED_GRAPH, None, 0),
        (None, RUNNING, 0),
    ],
    ids=["filling", "filled", "being queued", "altered", "during a backfill", "no Deployment", "no graph"],
)
def test_the_worker_is_waited_for_only_while_it_should_deal_with_the_queue(
    world: World, graph: GraphState | None, sync: DeploymentFacts | None, pending: int
) -> None:
    assert pending_changes(world.observed(database=replace(FULL, graph=graph), sync=sync)) == pending


async def test_a_queue_that_stays_as_it_is_for_two_minutes_is_what_the_condition_says(
    bench: Bench, world: World
) -> None:
    """A queue whose first change is another one each time is being dealt with, however long it is."""
    bench.api.index["spec"] |= WANTED
    await settle(bench)
    found = []
    for oldest in (7, 8, 9, 9, 40):
        bench.database = replace(FULL, graph=replace(ENABLED_GRAPH, oldest=oldest))
        await bench.reconcile()
        found.append(bench.api.condition("GraphReady")["reason"])
        world.now += IDLE_LIMIT
    assert found == ["Filling", "Filling", "Filling", "GraphNotProgressing", "Filling"]


def test_the_sync_worker_is_asked_why_it_waits_while_changes_of_the_graph_do(world: World) -> None:
    """A full disk holds them up as it does rows."""
    pods = (PodFacts("mem-sync-x", "sync", running=True), PodFacts("mem-graph-x", "graph", running=True))
    facts = world.observed().database_facts
    assert facts is not None
    asked = [
        observe._workers_to_ask(world.index(), pods, replace(facts, graph=GraphState(pending=pending)))
        for pending in (0, 3)
    ]
    assert asked == [(), pods[:1]]
