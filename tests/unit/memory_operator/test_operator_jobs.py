"""Jobs of an old configuration: which are replaced by a corrected one, and which are left to end."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from memory_operator.api.reasons import Reason
from memory_operator.reconcile.facts import JobFacts, JobState, PodFacts, Problem
from memory_operator.reconcile.plan import Apply, Delete, Plan
from memory_operator.resources import workers
from memory_operator.resources.common import Images
from memory_recall.status import NO_INDEX, RowCounts
from tests.unit.memory_operator.conftest import EMPTY, FULL, Cluster, World

NO_SCHEMA = replace(EMPTY, extension_version="0.8.7")
CANNOT_PULL = Problem(Reason.IMAGE_PULL_FAILED, "Pod team/p cannot pull image op:broken.")
OTHER_IMAGE = Images(operator="op:broken", embedder="emb:1")
FACTS = {
    "migrate": NO_SCHEMA,
    "index": replace(FULL, index=NO_INDEX),
    "backfill": replace(FULL, rows=RowCounts(total=5000, pending=5000)),
}


def active(component: str, config: str) -> JobFacts:
    return JobFacts(f"mem-{component}-old", component, config, 0, JobState.ACTIVE)


def made(plan: Plan) -> list[str]:
    """The names of the Jobs that the plan makes."""
    applied = [one.manifest for one in plan.actions if isinstance(one, Apply)]
    return [one["metadata"]["name"] for one in applied if one["kind"] == "Job"]


def replaced(plan: Plan, component: str) -> bool:
    """Whether the old Job is deleted and then another one made."""
    kinds = [
        ("delete", action.name) if isinstance(action, Delete) else ("apply", action.manifest["metadata"]["name"])
        for action in plan.actions
        if isinstance(action, Delete) or action.manifest["kind"] == "Job"
    ]
    if not kinds:
        return False
    (first, old), (second, new) = kinds
    assert (first, old, second) == ("delete", f"mem-{component}-old", "apply")
    return new.startswith(f"mem-{component}-") and new != old


def decide(world: World, component: str, config: str, **pod: Any) -> Plan:
    _, settled, _ = world.settled()
    pods = (PodFacts("p", component, **pod),) if pod else ()
    facts = {"database": FACTS[component], "jobs": (active(component, config),), "pods": pods}
    return world.decide(**{**vars(settled), **facts})


@pytest.mark.finding("D8")
@pytest.mark.parametrize("component", FACTS)
def test_a_job_that_cannot_run_is_replaced_once_what_its_pods_are_made_from_is_corrected(
    world: World, component: str
) -> None:
    """As after an image's name was corrected by an upgrade of the chart."""
    old = workers.config_fingerprint(world.index(), OTHER_IMAGE, component)
    assert replaced(decide(world, component, old, problem=CANNOT_PULL), component)
    assert replaced(decide(world, component, old), component), "no pod could be made, as under a quota"


@pytest.mark.parametrize("component", FACTS)
def test_a_job_that_cannot_run_is_reported_and_kept_while_its_configuration_is_the_present_one(
    world: World, component: str
) -> None:
    config = workers.config_fingerprint(world.index(), world.images, component)
    plan = decide(world, component, config, problem=CANNOT_PULL)
    assert not [action for action in plan.actions if isinstance(action, Delete)]
    assert "cannot pull image op:broken" in str(plan.status)


@pytest.mark.parametrize("component", FACTS)
def test_a_job_that_somebody_deletes_in_the_foreground_is_made_anew_only_once_it_is_gone(
    world: World, component: str
) -> None:
    """Its name is taken until its pods have ended, and a write to it would change nothing."""
    (name,) = made(decide(world, component, "none-none"))
    config = workers.config_fingerprint(world.index(), world.images, component)
    _, settled, _ = world.settled()
    going = JobFacts(name, component, config, 0, JobState.ACTIVE, deleting=True)
    plan = world.decide(**{**vars(settled), "database": FACTS[component], "jobs": (going,)})
    assert made(plan) == []
    assert f"Job {name} is being deleted; another one follows." in str(plan.status)


@pytest.mark.finding("D8")
def test_resources_that_cannot_be_scheduled_are_corrected(world: World) -> None:
    greedy = world.index(backfill={"resources": {"requests": {"memory": "900Gi"}}})
    old = workers.config_fingerprint(greedy, world.images, "backfill")
    unschedulable = Problem(Reason.UNSCHEDULABLE, "Insufficient memory.")
    assert replaced(decide(world, "backfill", old, problem=unschedulable), "backfill")


@pytest.mark.parametrize("component", ["index", "backfill"])
def test_an_operator_upgrade_lets_a_running_job_end(world: World, component: str) -> None:
    old = workers.config_fingerprint(world.index(), OTHER_IMAGE, component)
    assert not replaced(decide(world, component, old, running=True), component)


@pytest.mark.parametrize(
    ("component", "spec"),
    [
        ("index", {"index": {"m": 32}}),
        ("migrate", {"database": {"existingVectors": "Keep"}}),
        ("backfill", {"embedder": {"external": {"url": "http://e.ml.svc:8080"}}}),
        ("backfill", {"backfill": {"parallelism": 3}}),
    ],
)
def test_a_running_job_is_replaced_where_other_work_is_wanted(
    world: World, component: str, spec: dict[str, Any]
) -> None:
    old = workers.config_fingerprint(world.index(**spec), world.images, component)
    assert replaced(decide(world, component, old, running=True), component)


@pytest.mark.parametrize(
    "asked", [{"api": "TEI"}, {"api": "OpenAI", "model": "org/other"}, {"api": "MemoryIndex"}], ids=str
)
def test_a_running_backfill_is_replaced_where_the_embedder_at_its_address_is_to_be_asked_otherwise(
    world: World, asked: dict[str, str]
) -> None:
    """It would fill the table with vectors of the former interface, or of another model there."""
    before, after = (
        world.index(embedder={"external": {"url": "http://e.ml.svc:8080", **one}}) for one in ({"api": "OpenAI"}, asked)
    )
    works = {workers.work_of(workers.config_fingerprint(one, world.images, "backfill")) for one in (before, after)}
    assert len(works) == 2


def test_a_running_backfill_ends_its_work_for_the_former_configuration(world: World) -> None:
    old = workers.config_fingerprint(world.index(backfill={"batchSize": 8}), world.images, "backfill")
    assert not replaced(decide(world, "backfill", old, running=True), "backfill")


def test_a_pod_that_is_being_deleted_keeps_no_outdated_job(world: World) -> None:
    old = workers.config_fingerprint(world.index(backfill={"batchSize": 8}), world.images, "backfill")
    assert replaced(decide(world, "backfill", old, running=True, deleting=True), "backfill")


def test_a_configuration_that_comes_back_gets_a_job_of_another_name(world: World) -> None:
    """The name of its former Job is taken until that one is collected."""
    config = workers.config_fingerprint(world.index(), world.images, "migrate")
    former = JobFacts("mem-migrate-1", "migrate", config, 0, JobState.FAILED, finished_at=world.now)
    other = active("migrate", workers.config_fingerprint(world.index(), OTHER_IMAGE, "migrate"))
    plan = world.decide(database=NO_SCHEMA, jobs=(former, other))
    (made,) = [a.manifest for a in plan.actions if isinstance(a, Apply) and a.manifest["kind"] == "Job"]
    assert made["metadata"]["annotations"]["memory-index.dev/sequence"] == "1"


@pytest.mark.parametrize("failed_for", [Reason.EXISTING_VECTORS, Reason.LOCK_NOT_AVAILABLE])
def test_a_migration_that_needs_a_decision_is_not_repeated_until_the_specification_decides(
    world: World, failed_for: Reason
) -> None:
    """The condition names the table, and the remedy the field; every other failure is repeated after its delay."""
    _, settled, _ = world.settled()
    exchanged = replace(FULL, schema_differences="the table's OID")
    failure = Problem(failed_for, "public.memories holds vectors that may be of another model.", "Set existingVectors.")
    config = workers.config_fingerprint(world.index(), world.images, "migrate")
    former = JobFacts("mem-migrate-1", "migrate", config, 0, JobState.FAILED, world.now - timedelta(days=1), failure)

    def migrations(spec: dict[str, Any], **database: Any) -> tuple[int, str]:
        facts = {**vars(settled), "database": replace(exchanged, **database), "jobs": (former,)}
        plan = world.decide(world.index(**spec), **facts)
        made = [action for action in plan.actions if isinstance(action, Apply) and action.manifest["kind"] == "Job"]
        return len(made), str(plan.status)

    made, status = migrations({})
    if failed_for is not Reason.EXISTING_VECTORS:
        assert made == 1
        return
    assert made == 0
    assert "public.memories holds vectors" in status
    assert "Set existingVectors." in status
    assert "'reason': 'ExistingVectors'" in status
    assert migrations({"database": {"existingVectors": "Discard"}})[0] == 1
    assert migrations({}, rows=RowCounts(total=100, pending=100))[0] == 1, "somebody has removed the vectors"


def test_the_first_fill_that_an_older_operator_ended_is_not_repeated(cluster: Cluster) -> None:
    cluster.until_ready()
    cluster.change(index=NO_INDEX, rows=RowCounts(total=500, embedded=477, pending=3, sensitive=20))
    cluster.world.images = Images(operator="op:2", embedder="emb:1")
    cluster.reconcile()
    assert cluster.running() == ["index"]
