"""From zero pods and back: who wakes an embedder, and how soon that is noticed."""

from dataclasses import replace
from typing import Any

import pytest

from memory_operator.api.reasons import Reason
from memory_operator.reconcile.embedder import WANTED_SECONDS, plan_replicas
from memory_operator.reconcile.facts import DeploymentFacts, Problem
from memory_recall.status import RowCounts
from tests.unit.memory_operator.conftest import FULL, World

ZERO = {"embedder": {"minReplicas": 0, "scaleDownDelaySeconds": 0}}
NO_POD = DeploymentFacts(replicas=0, ready=0, current=True)


def replicas(world: World, **facts: Any) -> int:
    observed = world.observed(embedder=NO_POD, **facts)
    return plan_replicas(world.index(**ZERO), observed, world.now)[0]


def missed(seconds_ago: float) -> dict[str, Any]:
    return {"database": replace(FULL, seconds_since_wanted=seconds_ago)}


@pytest.mark.finding("D11")
def test_a_recall_that_missed_the_embedder_starts_one_pod(world: World) -> None:
    assert replicas(world) == 0
    assert replicas(world, **missed(5)) == 1


def test_a_mark_that_is_not_repeated_is_over(world: World) -> None:
    assert replicas(world, **missed(WANTED_SECONDS)) == 1
    assert replicas(world, **missed(WANTED_SECONDS + 1)) == 0


def test_a_pending_row_starts_a_pod(world: World) -> None:
    assert replicas(world, database=replace(FULL, rows=RowCounts(total=1, pending=1))) == 1


def test_a_database_that_does_not_answer_starts_no_pod_and_stops_none(world: World) -> None:
    away = Problem(Reason.DATABASE_UNREACHABLE, "refused.")
    assert replicas(world, database=away) == 0
    serving = world.observed(embedder=DeploymentFacts(1, 1, current=True), database=away)
    assert plan_replicas(world.index(**ZERO), serving, world.now)[0] == 1


def test_at_zero_the_mark_is_read_every_ten_seconds(world: World) -> None:
    index, observed, _ = world.settled(**ZERO)
    plan = world.decide(index, **vars(replace(observed, embedder=NO_POD)))
    assert plan.requeue_after == 10.0
    assert plan.status is not None
    reasons = {c["type"]: (c["status"], c["reason"]) for c in plan.status["conditions"]}
    assert reasons["Ready"] == ("False", "ScaledToZero")
    assert (reasons["Reconciling"][0], reasons["Stalled"][0]) == ("False", "False")
    assert plan.actions == ()
