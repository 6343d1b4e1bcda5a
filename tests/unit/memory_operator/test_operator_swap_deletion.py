"""An object that is deleted with `Retain` in or after a swap leaves no rule that drops vectors without a word."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from memory_operator.api.reasons import Reason
from memory_operator.api.spec import FINALIZER, MemoryIndex
from memory_operator.reconcile.deletion import FOREGROUND, SETTLED_WITHIN
from memory_operator.reconcile.facts import DeletionFacts, Peers, PodFacts, Problem
from memory_operator.reconcile.plan import Plan
from memory_recall.swap.machine import OPEN_STAGES, Stage
from memory_recall.swap.state_sql import SwapRecord
from tests.unit.memory_operator.conftest import (
    CLAIM,
    FILLED_GRAPH,
    FULL,
    IDENTITY,
    KEPT_GRAPH,
    NEXT_MODEL,
    Cluster,
    World,
    deep_update,
    swap_record,
)
from tests.unit.memory_operator.test_operator_controller import Bench, bench
from tests.unit.memory_operator.test_operator_execution import delete, events
from tests.unit.memory_operator.test_operator_graph_deletion import PAUSES, UNREACHABLE, commands
from tests.unit.memory_operator.test_operator_swap import NEXT, swap

__all__ = ["bench", "swap"]  # the fixtures
ABORTS = [["memory", "swap", "abort", "--yes", "--json"]]
OPEN = {"model": {"active": "all-MiniLM-L6-v2", "next": "bge-small-en-v1.5"}}
FLIPPED = {"model": {"active": "bge-small-en-v1.5", "previous": "all-MiniLM-L6-v2"}}
OBSERVED = {"database": {"extension": {"management": "Observe"}}}  # so that there is no Database object


def deleted(world: World, *finalizers: str, since: timedelta = timedelta(0), **spec: Any) -> MemoryIndex:
    """An index that was to be deleted some time ago."""
    update = {"deleted_at": world.now - since, "finalizers": (FINALIZER, *finalizers)}
    return world.index(**spec).model_copy(update=update)


def end(world: World, index: MemoryIndex, record: SwapRecord | None, **facts: Any) -> Plan:
    database = replace(FULL, swap=record)
    if record and record.stage == Stage.FLIPPED:
        database = replace(database, active_model=NEXT_MODEL)
    observed = world.observed(**{"database": database, **facts})
    return world.conclude(index, DeletionFacts((), observed=observed, undoing_since=index.deleted_at))


def test_an_open_swap_is_given_up_before_the_object_is_gone(swap: Cluster) -> None:
    """Its Job is stopped first; the active model's vectors stay."""
    swap.reconcile()
    swap.reconcile()
    swap.change(next_model=NEXT_MODEL, swap=swap_record("filling"))
    swap.reconcile()
    swap.delete()
    swap.reconcile()
    assert (swap.running(), swap.gone) == ([], False)
    swap.reconcile()
    assert swap.running() == ["swap-abort"]
    assert "second column of a swap that was given up" in swap.condition("Ready")["message"]
    swap.finish("swap-abort")
    swap.change(next_model=None, swap=swap_record("aborted"))
    swap.reconcile()
    assert swap.gone


@pytest.mark.parametrize("stage", sorted(Stage))
def test_an_open_swap_is_given_up_a_flipped_one_is_named_and_of_another_nothing_is_said(
    world: World, stage: Stage
) -> None:
    """To finish a flipped one would drop the former model's vectors, and let vectors of that model in."""
    plan = end(world, deleted(world, embedding=NEXT), swap_record(stage))
    assert commands(plan) == (ABORTS if stage in OPEN_STAGES else [])
    assert plan.finalizer is (None if stage in OPEN_STAGES else False)
    left = " ".join(plan.left_behind)
    assert bool(left) is (stage == Stage.FLIPPED)
    if left:
        assert "memories in database app of Cluster dbaas/pg from all-MiniLM-L6-v2 to bge-small-en-v1.5" in left
        assert "memory swap finish --yes" in left
        assert "written by others than our workers are dropped" in left


def test_the_abort_waits_until_the_swaps_pods_have_ended(world: World) -> None:
    pod = PodFacts("mem-swap-x", "swap", running=True, deleting=True)
    plan = end(world, deleted(world, embedding=NEXT), swap_record("filling"), pods=(pod,))
    assert (plan.finalizer, commands(plan)) == (None, [])


def test_under_foreground_deletion_the_abort_starts_only_after_kubernetes_has_deleted_the_children(
    world: World,
) -> None:
    plan = end(world, deleted(world, FOREGROUND, embedding=NEXT), swap_record("filling"))
    assert (plan.finalizer, plan.actions) == (None, ())


def test_a_swap_is_given_up_after_the_graph_is_paused(world: World) -> None:
    index = deleted(world, embedding=NEXT, graph={"enabled": True})
    database = replace(FULL, swap=swap_record("filling"), graph=FILLED_GRAPH)
    assert commands(end(world, index, None, database=database)) == PAUSES
    assert commands(end(world, index, None, database=replace(database, graph=KEPT_GRAPH))) == ABORTS


@pytest.mark.parametrize(
    "facts",
    [{"database": UNREACHABLE}, {"credentials": Problem(Reason.SECRET_MISSING, "Secret is gone."), "database": None}],
    ids=["database", "secret"],
)
def test_an_abort_that_is_impossible_is_waited_for_two_minutes_and_then_named(
    world: World, facts: dict[str, Any]
) -> None:
    just_before = deleted(world, since=SETTLED_WITHIN - timedelta(seconds=1)).model_copy(update={"status": OPEN})
    waits = end(world, just_before, None, **facts)
    assert (waits.finalizer, waits.actions) == (None, ())
    plan = end(world, deleted(world, since=SETTLED_WITHIN).model_copy(update={"status": OPEN}), None, **facts)
    (left,) = plan.left_behind
    assert plan.finalizer is False
    assert "was not given up" in left
    assert "memory swap abort --yes" in left


def test_a_flipped_swap_is_named_at_once_where_the_database_does_not_answer(world: World) -> None:
    index = deleted(world, embedding=NEXT).model_copy(update={"status": FLIPPED})
    plan = end(world, index, None, database=UNREACHABLE)
    (left,) = plan.left_behind
    assert (plan.finalizer, "from all-MiniLM-L6-v2 to bge-small-en-v1.5" in left) == (False, True)


def test_a_namespace_that_is_being_deleted_keeps_no_object_for_its_swap(world: World) -> None:
    index = deleted(world, embedding=NEXT).model_copy(update={"status": OPEN})
    plan = world.conclude(index, DeletionFacts((), namespace_terminating=True))
    assert plan.finalizer is False
    assert "namespace is being deleted" in plan.left_behind[0]


@pytest.mark.parametrize("stage", ["filling", "flipped"])
@pytest.mark.parametrize("claim", [replace(CLAIM, uid="u-2", name="other"), None], ids=["of another", "none"])
def test_the_swap_of_a_table_that_the_object_never_claimed_is_left_alone(world: World, stage: str, claim: Any) -> None:
    theirs = replace(FULL, swap=swap_record(stage), identity=IDENTITY, claim=claim)
    plan = end(world, deleted(world), None, database=theirs, peers=Peers(holder_exists=False))
    assert (plan.finalizer, commands(plan), plan.left_behind) == (False, [], ())


@pytest.mark.parametrize(
    ("spec", "record", "carried"),
    [
        ({"embedding": NEXT}, None, True),
        ({}, swap_record("filling"), True),
        ({}, swap_record("flipped"), True),
        ({}, swap_record("finished"), False),
        ({}, swap_record("aborted"), False),
    ],
    ids=["to begin", "open", "flipped", "finished", "given up"],
)
def test_the_finalizer_is_there_until_a_swap_is_finished_or_given_up(
    world: World, spec: dict[str, Any], record: SwapRecord | None, carried: bool
) -> None:
    index, observed, _ = world.settled(**OBSERVED)
    index = index.model_copy(update={"spec": world.index(**deep_update(OBSERVED, spec)).spec})
    facts = {**vars(observed), "database": replace(FULL, swap=record)}
    for finalizers in ((), (FINALIZER,)):
        plan = world.decide(index.model_copy(update={"finalizers": finalizers}), **facts)
        assert plan.finalizer is (None if bool(finalizers) is carried else carried)


@pytest.mark.parametrize("models", [OPEN, FLIPPED], ids=["open", "flipped"])
def test_the_finalizer_stays_while_it_is_unknown_whether_a_swap_is_unfinished(
    world: World, models: dict[str, Any]
) -> None:
    index, observed, _ = world.settled(**OBSERVED)
    index = index.model_copy(update={"finalizers": (FINALIZER,), "status": {**index.status, **models}})
    assert world.decide(index, **{**vars(observed), "database": UNREACHABLE}).finalizer is None


@pytest.mark.parametrize(("stage", "previous"), [("flipped", "all-MiniLM-L6-v2"), ("finished", None), ("ready", None)])
def test_the_status_names_the_model_whose_vectors_are_kept_for_the_way_back(
    world: World, stage: str, previous: str | None
) -> None:
    plan = world.decide(database=replace(FULL, swap=swap_record(stage)))
    assert plan.status is not None
    assert plan.status["model"].get("previous") == previous


async def test_the_event_of_a_deleted_object_names_its_flipped_swap(bench: Bench) -> None:
    bench.database = replace(FULL, active_model=NEXT_MODEL, swap=swap_record("flipped"))
    bench.api.index["status"]["model"] = FLIPPED["model"]
    delete(bench, embedding=NEXT)
    await bench.reconcile()
    (event,) = events(bench)
    assert "memory swap finish --yes" in event["message"]
    assert bench.api.index["metadata"]["finalizers"] == []
