"""A specification that is corrected during a swap: what is said of the former model, and what becomes of its swap."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from memory_operator.api.reasons import Reason
from memory_operator.reconcile.core import reconcile
from memory_operator.reconcile.facts import JobState, PodFacts, Problem
from memory_operator.reconcile.plan import Apply, Delete, Plan
from memory_operator.resources.workers import config_fingerprint, work_of
from memory_recall.embedding.profiles import served_digest
from memory_recall.swap.machine import OPEN_STAGES, Stage
from tests.unit.memory_operator.conftest import (
    NEXT_MODEL,
    START,
    Cluster,
    World,
    condition,
    deep_update,
    swap_record,
)
from tests.unit.memory_operator.situation_table import CUSTOM, FILE
from tests.unit.memory_operator.test_operator_swap import HOME, NEXT, arguments, change, flip, swap
from tests.unit.memory_operator.test_operator_swap_external import OTHER, OWN, external, own, settled
from tests.unit.memory_operator.test_operator_swap_external import change as change_embedder

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


def fill(cluster: Cluster, **model: Any) -> None:
    """Let the swap's Job begin to fill the second column."""
    cluster.reconcile()
    cluster.reconcile()
    assert cluster.running() == ["swap"]
    record = replace(swap_record("filling"), to_model=replace(NEXT_MODEL, **model))
    cluster.change(next_model=record.to_model, swap=record)
    cluster.reconcile()


def decide(cluster: Cluster, *pods: PodFacts) -> Plan:
    """The plan with these pods, without executing it."""
    world, observed = cluster.world, replace(cluster.observe(), pods=pods)
    return reconcile(cluster.index, observed, world.images, world.now, world.intervals, permitted=world.permitted)


def jobs(plan: Plan) -> list[tuple[str, str]]:
    """What the plan does with Jobs, and the command of those that it makes."""
    deleted = [("delete", "") for one in plan.actions if isinstance(one, Delete) and one.kind == "Job"]
    applied = [one.manifest for one in plan.actions if isinstance(one, Apply) and one.manifest["kind"] == "Job"]
    return [
        *deleted,
        *(("apply", " ".join(one["spec"]["template"]["spec"]["containers"][0]["command"])) for one in applied),
    ]


RUNNING = PodFacts("mem-swap-x", "swap", running=True)
ENDING = PodFacts("mem-swap-x", "swap", running=True, deleting=True)


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


def test_a_swap_to_a_model_that_is_no_longer_specified_is_given_up_before_the_next_one_begins(swap: Cluster) -> None:
    """Its Job goes first, although it runs; then the second column; then the specified model takes its turn."""
    fill(swap)
    change(swap, embedding=THIRD)
    plan = decide(swap, RUNNING)
    assert jobs(plan) == [("delete", "")]
    swap.reconcile()
    assert ("Deployment", "mem-embedder-next") not in swap.children, "it serves the model that is given up"
    assert jobs(decide(swap, ENDING)) == [], "two processes must not deal with one swap"
    swap.reconcile()
    assert swap.running() == ["swap-abort"]
    swap.finish("swap-abort")
    swap.change(next_model=None, swap=swap_record("aborted"))
    swap.reconcile()
    assert "bge-large-en-v1.5" in arguments(swap, "mem-embedder-next")
    swap.reconcile()
    assert swap.running() == ["swap"]


@pytest.mark.parametrize("stage", sorted(OPEN_STAGES))
def test_a_swap_to_another_model_is_given_up_in_every_stage_before_the_flip(swap: Cluster, stage: Stage) -> None:
    fill(swap)
    swap.finish("swap", JobState.FAILED, Problem(Reason.EMBEDDER_UNAVAILABLE, "away"))
    swap.change(swap=swap_record(stage, NUMBERS))
    change(swap, embedding=THIRD)
    swap.reconcile()
    assert swap.running() == ["swap-abort"]


def test_a_model_that_has_become_active_meanwhile_is_swapped_for_the_specified_one_and_not_given_up(
    swap: Cluster,
) -> None:
    """The Job may flip at the moment in which it is stopped."""
    fill(swap)
    change(swap, embedding=THIRD)
    swap.reconcile()
    swap.change(active_model=NEXT_MODEL, next_model=None, swap=swap_record("flipped"))
    swap.reconcile()
    swap.reconcile()
    (swapping,) = swap.jobs.values()
    assert swapping.component == "swap"
    assert "bge-small-en-v1.5 for bge-large-en-v1.5" in swap.condition("ModelActive")["message"]


@pytest.mark.parametrize(
    ("model", "given_up"),
    [
        ({}, False),
        ({"digest": "sha256:" + "a" * 64}, False),
        ({"digest": "sha256:" + "b" * 64}, True),
        ({"dimensions": 256}, True),
    ],
    ids=["the same", "the same file", "another file", "other dimensions"],
)
def test_a_swap_is_given_up_for_another_file_or_length_of_vectors_of_the_same_model(
    swap: Cluster, model: dict[str, Any], given_up: bool
) -> None:
    """`memory swap start` would refuse to go on with it."""
    file = {"claimName": "models", "path": "m.gguf", "digest": "sha256:" + "a" * 64}
    change(swap, embedding={**NEXT, "source": {"pvc": file}})
    fill(swap, **model)
    swap.reconcile()
    assert swap.running() == (["swap-abort"] if given_up else ["swap"])


@pytest.mark.parametrize("model", [{"digest": "sha256:" + "b" * 64}, {"dimensions": 256}], ids=["file", "dimensions"])
def test_what_an_external_embedder_serves_never_gives_a_swap_up_again_and_again(
    world: World, model: dict[str, Any]
) -> None:
    """The next swap would record the same, since the embedder alone decides it."""
    cluster = settled(world, own(), OWN)
    change_embedder(cluster, external(OTHER))
    fill(cluster, **model)
    for _ in range(3):
        cluster.reconcile()
    assert cluster.running() == ["swap"]


@pytest.mark.parametrize("edit", [{"swap": OTHER_GATE}, {"embedder": {"tls": {"secretName": "tls"}}}], ids=str)
def test_a_running_swap_is_stopped_and_goes_on_where_its_gate_or_address_is_changed(
    swap: Cluster, edit: dict[str, Any]
) -> None:
    """By the former gate it could flip, and to the former address it would send texts."""
    fill(swap)
    (former,) = swap.jobs
    change(swap, embedding=NEXT, **edit)
    assert jobs(decide(swap, RUNNING)) == [("delete", "")]
    swap.reconcile()
    assert (swap.running(), former in swap.jobs) == ([], False)
    assert jobs(decide(swap, ENDING)) == [], "the two would hold each other up"


def test_the_options_of_a_third_party_embedder_belong_to_the_work_of_a_swap(world: World) -> None:
    embedder = {"external": {"url": "https://b.example:8443", "api": "OpenAI", "model": "served"}}
    other = deep_update(embedder, {"external": {"model": "another"}})
    works = {
        work_of(config_fingerprint(world.index(embedder=one, embedding=NEXT), world.images, "swap"))
        for one in (embedder, other)
    }
    assert len(works) == 2


def test_an_abort_that_is_no_longer_wanted_is_stopped_before_a_swap_begins(swap: Cluster) -> None:
    """It would undo the swap that begins."""
    fill(swap)
    change(swap, embedding=THIRD)
    swap.reconcile()
    swap.reconcile()
    assert swap.running() == ["swap-abort"]
    change(swap, embedding=NEXT)
    plan = decide(swap, PodFacts("mem-swap-abort-x", "swap-abort", running=True))
    assert jobs(plan) == [("delete", "")]
    swap.reconcile()
    assert swap.running() == []
    for _ in range(2):
        swap.reconcile()
    assert swap.running() == ["swap"]


@pytest.mark.parametrize("prefix", ["", "passage: "])
def test_a_swap_to_a_file_of_ones_own_is_not_given_up_for_the_way_in_which_it_is_served(
    swap: Cluster, prefix: str
) -> None:
    """The embedder's digest of such a file tells its pooling and prefixes, too; another prefix is another model."""
    change(swap, embedding=CUSTOM["embedding"])
    fill(swap, name="custom", digest=served_digest(FILE, "custom", "mean", "", prefix))
    swap.reconcile()
    assert swap.running() == (["swap-abort"] if prefix else ["swap"])


def of_the_next_embedder(cluster: Cluster) -> list[str]:
    return sorted(kind for kind, name in cluster.children if name == "mem-embedder-next")


def test_naming_the_active_model_again_while_the_next_file_is_fetched_leaves_nothing_of_the_second_embedder(
    swap: Cluster,
) -> None:
    """It has a Service and a NetworkPolicy then, and no Deployment yet."""
    source = {"http": {"url": "https://models.example/m.gguf", "sha256": "a" * 64}}
    change(swap, embedding={**NEXT, "source": source})
    swap.reconcile()
    assert of_the_next_embedder(swap) == ["NetworkPolicy", "Service"]
    change(swap)
    swap.reconcile()
    assert of_the_next_embedder(swap) == []


def test_a_hand_over_whose_last_deletions_failed_leaves_nothing_of_the_second_embedder(swap: Cluster) -> None:
    """As where the operator ends, or the API server does not answer, after the Deployment was deleted."""
    swap.reconcile()
    swap.reconcile()
    flip(swap)
    swap.change(active_model=replace(NEXT_MODEL, embedder_url=HOME))
    swap.reconcile()
    del swap.children["Deployment", "mem-embedder-next"]
    assert of_the_next_embedder(swap) == ["NetworkPolicy", "Service"]
    swap.reconcile()
    assert of_the_next_embedder(swap) == []


@pytest.mark.parametrize("given_up", [True, False])
def test_a_swap_that_waits_for_a_pod_which_does_not_end_names_it(swap: Cluster, *, given_up: bool) -> None:
    """As on a node that is lost, where Kubernetes keeps a deleted pod until the node is back or its object is gone."""
    fill(swap)
    change(swap, **({} if given_up else {"embedding": NEXT, "swap": OTHER_GATE}))
    swap.reconcile()
    assert swap.running() == []
    plan = decide(swap, replace(ENDING, ending_since=swap.world.now - timedelta(minutes=1)))
    said = condition(plan, "ModelActive")
    assert (said["status"], said["reason"]) == ("False", "PodNotEnding")
    assert "Pod team/mem-swap-x is deleted and does not end." in said["message"]
