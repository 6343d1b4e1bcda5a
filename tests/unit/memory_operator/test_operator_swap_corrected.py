"""A specification that is corrected during a swap: what is said of the former model, and what becomes of its swap."""

from dataclasses import replace
from datetime import timedelta

import pytest

from memory_operator.api.reasons import Reason
from memory_operator.reconcile.facts import JobState, Problem
from tests.unit.memory_operator.conftest import NEXT_MODEL, START, Cluster, swap_record
from tests.unit.memory_operator.test_operator_swap import NEXT, change, swap

__all__ = ["swap"]  # the fixture
THIRD = {"model": "bge-large-en-v1.5", "dimensions": 1024}
NUMBERS = "active 0.800, next 0.500"
OTHER_GATE = {"gate": {"configMap": {"name": "labels"}, "maxRecallDrop": 0.5}}


def refuse(cluster: Cluster) -> None:
    """Let the gate refuse the next model, so that the swap is recorded as refused and its Job has failed."""
    cluster.reconcile()
    cluster.reconcile()
    cluster.finish("swap", JobState.FAILED, Problem(Reason.SWAP_REFUSED, NUMBERS))
    cluster.change(swap=swap_record("refused", NUMBERS, "refused"), next_model=NEXT_MODEL)
    cluster.reconcile()
    assert NUMBERS in cluster.condition("Stalled")["message"]


def said(cluster: Cluster) -> str:
    return " ".join(condition["message"] for condition in cluster.manifest["status"]["conditions"])


def test_a_model_is_never_said_to_have_been_refused_with_the_numbers_of_another_one(swap: Cluster) -> None:
    """Its Job has failed, for another reason."""
    refuse(swap)
    change(swap, embedding=THIRD)
    for _ in range(5):
        swap.reconcile()
        if "swap" in swap.running():
            swap.finish("swap", JobState.FAILED, Problem(Reason.SWAP_IN_PROGRESS, "A swap to another is under way."))
    swap.reconcile()
    assert NUMBERS not in said(swap)


@pytest.mark.parametrize("reason", [Reason.INVALID_INPUT, Reason.EMBEDDER_UNAVAILABLE, Reason.OOM_KILLED])
def test_a_job_that_failed_before_its_changed_gate_is_reported_and_tried_again(swap: Cluster, reason: Reason) -> None:
    refuse(swap)
    change(swap, embedding=NEXT, swap=OTHER_GATE)
    swap.reconcile()
    swap.finish("swap", JobState.FAILED, Problem(reason, "queries.jsonl, line 3, is no JSON."))
    swap.reconcile()
    found = swap.condition("ModelActive")
    assert (found["reason"], "line 3" in found["message"]) == (reason.code, True)
    assert NUMBERS not in said(swap)
    swap.world.now += timedelta(minutes=10)
    swap.reconcile()
    assert swap.running() == ["swap"]


@pytest.mark.parametrize(("created", "again"), [(-60, False), (60, True)], ids=["before the refusal", "after it"])
def test_a_failed_job_whose_pods_are_gone_ended_at_the_gate_only_if_it_is_older_than_the_refusal(
    swap: Cluster, created: int, again: bool
) -> None:
    """As after the node of its pods was removed; the database still tells when the gate refused the model."""
    refuse(swap)
    (name,) = swap.jobs
    lost = Problem(Reason.JOB_FAILED, "no pod of it is left.")
    swap.jobs[name] = replace(swap.jobs[name], failure=lost, created_at=START + timedelta(seconds=created))
    swap.world.now += timedelta(minutes=10)
    swap.reconcile()
    assert swap.running() == (["swap"] if again else [])
    assert (NUMBERS in said(swap)) is not again
