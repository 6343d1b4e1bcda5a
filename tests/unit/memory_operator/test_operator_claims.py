"""One table belongs to one MemoryIndex; a second one does nothing, and its deletion undoes nothing."""

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from memory_operator.api.spec import MemoryIndex, parse
from memory_operator.reconcile.facts import DeletionFacts, Peers
from memory_operator.reconcile.plan import Apply, Plan
from memory_recall.errors import InvalidInput
from memory_recall.schema.claims_sql import TableClaim
from memory_recall.status import RowCounts
from tests.unit.memory_operator.conftest import CLAIM, EMPTY, FULL, IDENTITY, SERVER, Cluster, World
from tests.unit.memory_operator.test_operator_controller import Bench, bench

__all__ = ["bench"]  # the fixture
THEIRS = TableClaim(SERVER, "other", "mem", "u-0", "2026-01-01T10:00:00Z", "k-1", cluster_name="pg")
MIGRATED = replace(FULL, identity=IDENTITY, table_schema="public")


def condition(plan: Plan, kind: str) -> dict[str, Any]:
    assert plan.status is not None
    return next(c for c in plan.status["conditions"] if c["type"] == kind)


def peer(
    world: World, *, uid: str = "u-0", namespace: str = "other", created: str = "10", **changes: Any
) -> MemoryIndex:
    manifest = world.manifest(**changes)
    manifest["metadata"] |= {"uid": uid, "namespace": namespace, "creationTimestamp": f"2026-01-01T{created}:00:00Z"}
    manifest["status"]["database"] = {"systemIdentifier": SERVER, "tableSchema": "public"}
    return parse(manifest)


def claimed_by(claim: TableClaim, world: World, *peers: MemoryIndex, exists: bool | None = False) -> Plan:
    """The plan for a table with this claim; by default its holder is known to be gone."""
    return world.decide(database=replace(MIGRATED, claim=claim), peers=Peers(peers, holder_exists=exists))


def commands(plan: Plan) -> list[list[str]]:
    jobs = [a.manifest for a in plan.actions if isinstance(a, Apply) and a.manifest["kind"] == "Job"]
    return [job["spec"]["template"]["spec"]["containers"][0]["command"] for job in jobs]


@pytest.mark.parametrize("pending", [0, 500])
def test_a_table_of_another_object_is_left_alone(world: World, pending: int) -> None:
    facts = replace(MIGRATED, claim=THEIRS, rows=RowCounts(total=500, pending=pending))
    plan = world.decide(database=facts, peers=Peers((peer(world),)))
    assert plan.actions == ()
    ready = condition(plan, "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "TableTaken")
    assert "other/mem" in ready["message"]
    assert condition(plan, "Stalled")["status"] == "True"


@pytest.mark.promise("others-tables-untouched")
@pytest.mark.finding("D30")
def test_deleting_the_second_object_undoes_nothing(world: World) -> None:
    index = world.index(deletionPolicy="Delete").model_copy(update={"deleted_at": world.now})
    observed = world.observed(database=replace(MIGRATED, claim=THEIRS), peers=Peers((peer(world),)))
    plan = world.conclude(index, DeletionFacts((), observed=observed))
    assert (plan.finalizer, plan.actions, plan.left_behind) == (False, (), ())


def test_an_object_that_was_created_again_takes_over_the_claim_of_its_former_self(world: World) -> None:
    former = replace(CLAIM, uid="u-0", created_at="2026-01-01T10:00:00Z")
    plan = claimed_by(former, world)
    (command,) = commands(plan)
    assert command[command.index("--replaces") + 1] == "u-0"
    assert TableClaim.from_json(command[command.index("--claim") + 1]) == CLAIM


def test_a_table_of_an_object_that_is_gone_can_be_taken_over_by_a_later_one(world: World) -> None:
    assert condition(claimed_by(THEIRS, world), "Ready")["reason"] != "TableTaken"
    assert len(commands(claimed_by(THEIRS, world))) == 1


@pytest.mark.promise("others-tables-untouched")
@pytest.mark.finding("security S12")
@pytest.mark.parametrize("exists", [None, False])
def test_a_claim_of_another_kubernetes_cluster_ends_only_by_a_persons_word(world: World, exists: bool | None) -> None:
    plan = claimed_by(replace(THEIRS, kubernetes="k-2"), world, exists=exists)
    assert commands(plan) == []
    ready = condition(plan, "Ready")
    assert ready["reason"] == "TableTaken"
    assert "MemoryIndex other/mem of another Kubernetes cluster" in ready["message"]
    assert "`memory migrate --replaces u-0`" in ready["message"]


@pytest.mark.finding("security L2")
@pytest.mark.parametrize("text", ["[" * 100_000, json.dumps({**asdict(THEIRS), "name": "x" * 254})])
def test_a_comment_that_is_no_claim_is_malformed_whatever_it_contains(text: str) -> None:
    with pytest.raises(InvalidInput):
        TableClaim.from_json(text)


def test_of_two_objects_that_do_not_see_one_another_the_earlier_gives_way_for_good(world: World) -> None:
    """They may be in two Kubernetes clusters; taking turns would be endless."""
    later = replace(THEIRS, created_at="2026-01-01T11:30:00Z")
    plan = claimed_by(later, world)
    assert plan.actions == ()
    assert "memory migrate --replaces u-0" in condition(plan, "Ready")["message"]


@pytest.mark.parametrize(("exists", "advised"), [(None, True), (True, False)])
def test_a_claim_stays_unless_its_holder_is_known_to_be_gone(world: World, exists: bool | None, advised: bool) -> None:
    plan = claimed_by(THEIRS, world, exists=exists)
    assert plan.actions == ()
    assert condition(plan, "Ready")["reason"] == "TableTaken"
    assert ("memory migrate --replaces u-0" in condition(plan, "Ready")["message"]) is advised


def test_a_claim_that_came_with_a_dump_from_another_server_binds_nobody(world: World) -> None:
    plan = claimed_by(replace(THEIRS, system_identifier="1"), world, peer(world, created="12"))
    assert len(commands(plan)) == 1


def test_before_the_first_claim_the_older_object_keeps_the_table(world: World) -> None:
    facts = replace(EMPTY, identity=IDENTITY, table_schema="public")
    beside_an_older_one = world.decide(database=facts, peers=Peers((peer(world, created="10"),)))
    assert beside_an_older_one.actions == ()
    assert condition(beside_an_older_one, "Ready")["reason"] == "TableTaken"
    beside_a_younger_one = world.decide(database=facts, peers=Peers((peer(world, created="12"),)))
    assert beside_a_younger_one.actions != ()


@pytest.mark.parametrize(
    "other",
    [
        {"database": {"table": "notes"}},
        {"database": {"name": "other"}},
        {"status": {"systemIdentifier": "1", "tableSchema": "public"}},
        {"status": {"systemIdentifier": SERVER, "tableSchema": "private"}},
        {"deleted": True},
    ],
)
def test_an_older_object_over_another_table_is_no_rival(world: World, other: dict[str, Any]) -> None:
    rival = peer(world, **({"database": other["database"]} if "database" in other else {}))
    if "status" in other:
        status = other["status"]
        rival = rival.model_copy(
            update={"status": {"database": status}, "system_identifier": status["systemIdentifier"]}
        )
    if "deleted" in other:
        rival = rival.model_copy(update={"deleted_at": world.now})
    facts = replace(EMPTY, identity=IDENTITY, table_schema="public")
    plan = world.decide(database=facts, peers=Peers((rival,)))
    assert condition(plan, "Ready")["reason"] != "TableTaken"


def test_an_older_object_that_was_never_observed_is_a_rival_where_it_names_the_same_cluster(world: World) -> None:
    unseen = peer(world).model_copy(update={"status": {}, "system_identifier": ""})
    facts = replace(EMPTY, identity=IDENTITY, table_schema="public")
    plan = world.decide(database=facts, peers=Peers((unseen,)))
    assert condition(plan, "Ready")["reason"] == "TableTaken"


def test_a_ready_object_of_an_earlier_release_claims_its_table_by_one_job(cluster: Cluster) -> None:
    cluster.until_ready()
    cluster.jobs.clear()
    cluster.change(identity=IDENTITY, claim=None)
    cluster.reconcile()
    assert cluster.running() == ["migrate"]
    cluster.finish("migrate")
    cluster.change(claim=CLAIM)
    cluster.writes.clear()
    cluster.reconcile()
    assert cluster.condition("Ready")["status"] == "True"


async def test_an_older_object_of_another_namespace_is_seen(bench: Bench, world: World) -> None:
    older = world.manifest()
    older["metadata"] |= {"namespace": "other", "uid": "u-0", "creationTimestamp": "2026-01-01T10:00:00Z"}
    broken = {**older, "metadata": {**older["metadata"], "name": "broken", "uid": "u-9"}, "spec": {}}
    bench.api.objects |= {("MemoryIndex", "other", "mem"): older, ("MemoryIndex", "other", "broken"): broken}
    await bench.reconcile()
    assert bench.api.condition("Ready")["reason"] == "TableTaken"
    assert bench.api.writes == ["status"]


async def test_other_objects_are_read_only_until_the_table_is_claimed(bench: Bench) -> None:
    listed: list[str] = []
    real = bench.api.list

    async def recording(kind: str, namespace: str, labels: dict[str, str] | None = None) -> list[dict[str, Any]]:
        listed.append(kind)
        return await real(kind, namespace, labels)

    bench.api.list = recording  # type: ignore[method-assign]
    await bench.reconcile()
    assert "MemoryIndex" in listed
    listed.clear()
    bench.database = FULL
    await bench.reconcile()
    assert "MemoryIndex" not in listed
