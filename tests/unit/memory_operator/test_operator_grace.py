"""What others may still deliver stalls only after its grace period, counted from where it began to be missed."""

from typing import Any

import pytest

from memory_operator.api.reasons import DELIVERED_BY_OTHERS, Reason
from memory_operator.reconcile.facts import DeploymentFacts, PodFacts, Problem
from memory_operator.reconcile.plan import Plan
from tests.unit.memory_operator.conftest import World

LOADING = DeploymentFacts(replicas=1, ready=0, current=True)


def missing(reason: Reason) -> dict[str, Any]:
    return {"credentials": Problem(reason, "It is missing.")}


def unschedulable() -> dict[str, Any]:
    return {"pods": (PodFacts("p", "embedder", problem=Problem(Reason.UNSCHEDULABLE, "no node.")),)}


def status_of(plan: Plan, kind: str) -> str:
    assert plan.status is not None
    return next(str(c["status"]) for c in plan.status["conditions"] if c["type"] == kind)


@pytest.mark.finding("D16")
@pytest.mark.parametrize("reason", sorted(DELIVERED_BY_OTHERS, key=lambda reason: reason.code), ids=str)
def test_it_is_worked_on_for_the_whole_period_and_then_stalls(world: World, reason: Reason) -> None:
    plan = world.decide(**missing(reason))
    for _ in range(39):
        assert (status_of(plan, "Reconciling"), status_of(plan, "Stalled")) == ("True", "False")
        assert plan.requeue_after == 3.0, "the end of the period is no event"
        plan = world.decide_again(plan, 3, **missing(reason))
    plan = world.decide_again(plan, 3, **missing(reason))
    assert (status_of(plan, "Reconciling"), status_of(plan, "Stalled")) == ("False", "True")


def test_what_only_a_person_can_mend_stalls_at_once(world: World) -> None:
    assert status_of(world.decide(**missing(Reason.SECRET_INVALID)), "Stalled") == "True"


def test_another_missing_thing_has_a_period_of_its_own(world: World) -> None:
    plan = world.decide(**missing(Reason.SECRET_MISSING))
    plan = world.decide_again(plan, 119, **missing(Reason.SECRET_MISSING))
    plan = world.decide_again(plan, 1, **missing(Reason.SECRET_KEY_MISSING))
    assert status_of(plan, "Stalled") == "False"
    plan = world.decide_again(plan, 120, **missing(Reason.SECRET_KEY_MISSING))
    assert status_of(plan, "Stalled") == "True"


def test_the_time_of_a_slow_start_does_not_count_as_time_without_a_node(world: World) -> None:
    """The condition was false for the whole time, but for another reason."""
    plan = world.decide(embedder=LOADING)
    plan = world.decide_again(plan, 600, embedder=LOADING)
    plan = world.decide_again(plan, 1, embedder=LOADING, **unschedulable())
    assert status_of(plan, "Stalled") == "False"


def test_what_has_stalled_and_is_there_again_starts_anew(world: World) -> None:
    plan = world.decide(**missing(Reason.SECRET_MISSING))
    plan = world.decide_again(plan, 120, **missing(Reason.SECRET_MISSING))
    assert status_of(plan, "Stalled") == "True"
    plan = world.decide_again(plan, 60)
    plan = world.decide_again(plan, 60, **missing(Reason.SECRET_MISSING))
    assert status_of(plan, "Stalled") == "False"
