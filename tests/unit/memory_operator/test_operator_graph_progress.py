"""A sync worker that gets nowhere with the queue of the concept graph is what the condition GraphReady says."""

from dataclasses import replace
from datetime import timedelta

import pytest

from memory_operator.reconcile.facts import DeploymentFacts
from memory_operator.reconcile.indexing.backfill import IDLE_LIMIT
from memory_operator.reconcile.indexing.graph import pending_changes
from memory_recall.graph import GraphState
from tests.unit.memory_operator.conftest import ENABLED_GRAPH, FILLED_GRAPH, FULL, World
from tests.unit.memory_operator.test_operator_controller import Bench, bench
from tests.unit.memory_operator.test_operator_graph import ALTERED, WANTED, conditions, reason
from tests.unit.memory_operator.test_operator_reporting import settle

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
