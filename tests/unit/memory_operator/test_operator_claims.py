"""One table belongs to one MemoryIndex: who may take it over, and that only what it claimed is undone."""

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from memory_operator.api.spec import ANNOTATION_ALLOWED_NAMESPACES, parse
from memory_operator.clients.kube import EVERY_NAMESPACE, KubeError
from memory_operator.controller.cache import WATCHED, ObjectCache
from memory_operator.controller.entries import entry_of
from memory_operator.controller.events import of_transitions
from memory_operator.controller.observe import Observer
from memory_operator.reconcile.authorization.claims import check_claim, holder_to_read
from memory_operator.reconcile.facts import DeletionFacts, JobFacts, JobState, Peer, Peers
from memory_operator.reconcile.plan import Apply, Plan
from memory_operator.resources import workers
from memory_recall.errors import InvalidInput
from memory_recall.schema.claims_sql import TableClaim
from memory_recall.status import RowCounts
from tests.unit.memory_operator.conftest import (
    CLAIM,
    EMPTY,
    FULL,
    IDENTITY,
    SERVER,
    Cluster,
    World,
    condition,
    deep_update,
)
from tests.unit.memory_operator.test_operator_controller import Bench, bench
from tests.unit.memory_operator.test_operator_deletion import deleted, end

__all__ = ["bench"]  # the fixture
THEIRS = TableClaim(SERVER, "other", "mem", "u-0", "2026-01-01T10:00:00Z", "k-1", cluster_name="pg")
MIGRATED = replace(FULL, identity=IDENTITY, table_schema="public")


def peer(world: World, *, uid: str = "u-0", namespace: str = "team", created: str = "10", **changes: Any) -> Peer:
    manifest = world.manifest(**changes)
    manifest["metadata"] |= {"uid": uid, "namespace": namespace, "creationTimestamp": f"2026-01-01T{created}:00:00Z"}
    manifest["status"]["database"] = {"systemIdentifier": SERVER, "tableSchema": "public"}
    return Peer.of(parse(manifest))


def claimed_by(claim: TableClaim, world: World, *peers: Peer, exists: bool | None = False) -> Plan:
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
    assert "takes the table over from MemoryIndex team/mem" in condition(plan, "SchemaReady")["message"]


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
    assert f"`{THEIRS.ending()}`" in ready["message"]


def test_once_the_owner_of_the_database_has_ended_the_claim_of_a_lost_cluster_the_table_is_taken_over(
    cluster: Cluster,
) -> None:
    """The vectors stay: only the claim is written anew. What was in the way is said once more when it has ended."""
    cluster.until_ready()
    cluster.jobs.clear()
    cluster.change(identity=IDENTITY, claim=replace(THEIRS, kubernetes="k-2"))
    taken = cluster.reconcile().status
    assert cluster.running() == []
    cluster.change(claim=None)
    freed = cluster.reconcile().status
    assert cluster.running() == ["migrate"]
    assert "claims the table" in cluster.condition("SchemaReady")["message"]
    assert taken is not None
    assert freed is not None
    (event,) = (event for event in of_transitions(taken, freed) if event.reason == "NotStalled")
    assert "MemoryIndex other/mem of another Kubernetes cluster" in event.message
    cluster.finish("migrate")
    cluster.change(claim=CLAIM)
    for _ in range(2):  # the sync worker starts again, then it runs
        cluster.reconcile()
    assert cluster.condition("Ready")["status"] == "True"


@pytest.mark.finding("security L2")
@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        json.dumps({**asdict(THEIRS), "name": "x" * 254}),
        *(json.dumps({**asdict(THEIRS), part: "x', run `curl`"}) for part in ("namespace", "name", "uid")),
    ],
)
def test_a_comment_that_is_no_claim_is_malformed_whatever_it_contains(text: str) -> None:
    """Of a claim a person is told who has it, and by which statement it ends."""
    with pytest.raises(InvalidInput):
        TableClaim.from_json(text)


def test_of_two_objects_that_do_not_see_one_another_the_earlier_gives_way_for_good(world: World) -> None:
    """They may be in two Kubernetes clusters; taking turns would be endless."""
    later = replace(THEIRS, created_at="2026-01-01T11:30:00Z")
    plan = claimed_by(later, world)
    assert plan.actions == ()
    assert later.ending() in condition(plan, "Ready")["message"]


@pytest.mark.parametrize(("exists", "advised"), [(None, True), (True, False)])
def test_a_claim_stays_unless_its_holder_is_known_to_be_gone(world: World, exists: bool | None, advised: bool) -> None:
    plan = claimed_by(THEIRS, world, exists=exists)
    assert plan.actions == ()
    assert condition(plan, "Ready")["reason"] == "TableTaken"
    assert (THEIRS.ending() in condition(plan, "Ready")["message"]) is advised


def test_a_claim_that_came_with_a_dump_from_another_server_binds_nobody(world: World) -> None:
    plan = claimed_by(replace(THEIRS, system_identifier="1"), world, peer(world, created="12"))
    assert len(commands(plan)) == 1


def test_before_the_first_claim_the_older_object_keeps_the_table(world: World) -> None:
    facts = replace(EMPTY, identity=IDENTITY, table_schema="public")
    beside_an_older_one = world.decide(database=facts, peers=Peers((peer(world, created="10"),)))
    assert beside_an_older_one.actions == ()
    assert condition(beside_an_older_one, "Ready")["reason"] == "TableTaken"
    named_with_its_schema = peer(world, created="10", database={"table": "public.memories"})
    assert world.decide(database=facts, peers=Peers((named_with_its_schema,))).actions == ()
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
        rival = replace(rival, table_schema=status["tableSchema"], system_identifier=status["systemIdentifier"])
    if "deleted" in other:
        rival = replace(rival, deleted=True)
    facts = replace(EMPTY, identity=IDENTITY, table_schema="public")
    plan = world.decide(database=facts, peers=Peers((rival,)))
    assert condition(plan, "Ready")["reason"] != "TableTaken"


def test_an_older_object_that_was_never_observed_is_a_rival_where_it_names_the_same_cluster(world: World) -> None:
    unseen = replace(peer(world), table_schema=None, system_identifier="")
    facts = replace(EMPTY, identity=IDENTITY, table_schema="public")
    plan = world.decide(database=facts, peers=Peers((unseen,)))
    assert condition(plan, "Ready")["reason"] == "TableTaken"


def test_an_object_that_the_cluster_does_not_allow_keeps_nobody_from_a_table(world: World) -> None:
    """Else whoever may write a MemoryIndex could name the usual table of any Cluster before its owner does."""
    facts = replace(EMPTY, identity=IDENTITY, table_schema="public")
    for unseen in (peer(world, namespace="other"), replace(peer(world, namespace="other"), system_identifier="")):
        plan = world.decide(database=facts, peers=Peers((unseen,)))
        assert condition(plan, "Ready")["reason"] != "TableTaken"


@pytest.mark.parametrize("own", [{"cluster": None}, {}], ids=["without a Cluster", "with a Cluster"])
def test_an_object_without_a_cluster_keeps_nobody_from_a_table(world: World, own: dict[str, Any]) -> None:
    """Any role on the server is enough for one, and its URI may be wrong for ever, or lead to a server that lies."""
    facts = replace(EMPTY, identity=IDENTITY, table_schema="public")
    older = replace(peer(world), cluster=None)
    index = world.index(database=own)
    for identifier in ("", SERVER):
        observed = world.observed(database=facts, peers=Peers((replace(older, system_identifier=identifier),)))
        assert check_claim(index, replace(observed, cluster=None if own else observed.cluster)) is None


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
    """The Cluster allows both namespaces."""
    (key,) = [key for key in bench.api.objects if key[0] == "Cluster"]
    cluster = bench.api.objects[key]
    annotations = {ANNOTATION_ALLOWED_NAMESPACES: "team,other"}
    bench.api.objects[key] = {**cluster, "metadata": {**cluster["metadata"], "annotations": annotations}}
    older = world.manifest()
    older["metadata"] |= {"namespace": "other", "uid": "u-0", "creationTimestamp": "2026-01-01T10:00:00Z"}
    broken = {**older, "metadata": {**older["metadata"], "name": "broken", "uid": "u-9"}, "spec": {}}
    bench.api.objects |= {("MemoryIndex", "other", "mem"): older, ("MemoryIndex", "other", "broken"): broken}
    await bench.reconcile()
    assert bench.api.condition("Ready")["reason"] == "TableTaken"
    assert bench.api.writes == ["status"]


async def test_other_objects_are_read_only_until_the_table_is_claimed(bench: Bench) -> None:
    listed: list[tuple[str, str]] = []
    real = bench.api.list

    async def recording(kind: str, namespace: str, labels: dict[str, str] | None = None) -> list[dict[str, Any]]:
        listed.append((kind, namespace))
        return await real(kind, namespace, labels)

    bench.api.list = recording  # type: ignore[method-assign]
    await bench.reconcile()
    assert ("MemoryIndex", EVERY_NAMESPACE) in listed
    listed.clear()
    bench.database = FULL
    await bench.reconcile()
    assert ("MemoryIndex", EVERY_NAMESPACE) not in listed


HOLDER = TableClaim(SERVER, "a", "x", "u-x", "2025-12-01T00:00:00Z", "k-1", cluster_name="pg")
UNPARSABLE = {"spec": {"database": {"extension": {"management": "FutureMode"}}}}
NAMESPACES = ("a", "team")


def holder(world: World, **changes: Any) -> dict[str, Any]:
    """The object that the claim names, as the API server holds it."""
    meta = {"namespace": "a", "name": "x", "uid": "u-x", "creationTimestamp": HOLDER.created_at}
    return deep_update(world.manifest() | {"metadata": {**meta, "generation": 1}}, changes)


class Kube:
    """Knows one MemoryIndex at most, or fails; keeps what was read, and lists nothing."""

    def __init__(self, answer: dict[str, Any] | KubeError | None) -> None:
        self.answer = answer
        self.read: list[tuple[str, str, str]] = []

    async def namespace_uid(self, namespace: str) -> str:
        assert namespace == "kube-system"
        return "k-1"

    async def get(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        self.read.append((kind, namespace, name))
        if isinstance(self.answer, KubeError):
            raise self.answer
        return self.answer


async def peers(
    world: World,
    kube: Kube,
    *listed: dict[str, Any],
    claim: TableClaim | None = HOLDER,
    namespaces: tuple[str, ...] = NAMESPACES,
) -> Peers:
    """What is observed of the other objects, where the watch of namespace `a` has listed these."""
    cache, own = ObjectCache(), world.manifest()
    found = {"a": {("a", "x"): [entry_of("MemoryIndex", item) for item in listed]}, "team": {}}
    found["team"] = {("team", "mem"): [entry_of("MemoryIndex", own)]}
    for namespace, index in found.items():
        cache.use([namespace], {kind: index if kind == "MemoryIndex" else {} for kind in WATCHED})
    observer = Observer(kube, None, None, namespaces, cache)  # type: ignore[arg-type]  # only what is needed here
    return await observer._peers(parse(own), replace(FULL, identity=IDENTITY, claim=claim))


def outcome(world: World, found: Peers) -> str:
    plan = world.decide(database=replace(FULL, identity=IDENTITY, claim=HOLDER), peers=found)
    assert plan.status is not None
    reason: str = plan.status["conditions"][0]["reason"]
    assert (plan.actions == ()) is (reason == "TableTaken")
    return reason


@pytest.mark.promise("others-tables-untouched")
async def test_a_holder_that_its_watch_has_not_listed_yet_keeps_the_table(world: World) -> None:
    kube = Kube(holder(world))
    assert outcome(world, await peers(world, kube)) == "TableTaken"
    assert kube.read == [("MemoryIndex", "a", "x")], "one object is read, and no list"


async def test_a_listed_holder_is_not_read_again(world: World) -> None:
    kube = Kube(None)
    assert outcome(world, await peers(world, kube, holder(world))) == "TableTaken"
    assert kube.read == []


@pytest.mark.promise("others-tables-untouched")
async def test_a_holder_that_this_operator_cannot_parse_keeps_the_table(world: World) -> None:
    later = holder(world, **UNPARSABLE)
    found = await peers(world, Kube(later), later)
    assert outcome(world, found) == "TableTaken"
    assert found.holder_exists


@pytest.mark.parametrize("uid", [None, "u-x2"], ids=["none of the name", "created again"])
async def test_the_table_of_a_holder_that_is_gone_is_taken_over(world: World, uid: str | None) -> None:
    found = holder(world, metadata={"uid": uid}) if uid else None
    assert outcome(world, await peers(world, Kube(found))) != "TableTaken"


async def test_a_holder_that_may_not_be_read_keeps_the_table(world: World) -> None:
    forbidden = KubeError("reading MemoryIndex a/x", 403, "forbidden", refused=True)
    found = await peers(world, Kube(forbidden))
    assert found.holder_exists is None
    assert outcome(world, found) == "TableTaken"


async def test_while_the_api_server_does_not_answer_nothing_is_decided(world: World) -> None:
    with pytest.raises(KubeError):
        await peers(world, Kube(KubeError("reading MemoryIndex a/x", 503, "overloaded")))


async def test_a_holder_in_a_namespace_that_is_not_configured_is_not_read(world: World) -> None:
    kube = Kube(None)
    assert outcome(world, await peers(world, kube, namespaces=("team",))) == "TableTaken"
    assert kube.read == []


async def test_a_namespace_whose_objects_are_not_watched_is_not_asked_for_them(world: World) -> None:
    """It is being deleted, and the operator may no longer read it; a claim in it is asked for by its name."""
    found = await peers(world, Kube(holder(world)), namespaces=("a", "team", "going"))
    assert found == Peers((), holder_exists=True)


@pytest.mark.parametrize("part", ["namespace", "name"])
def test_no_object_is_read_for_a_claim_that_names_none(world: World, part: str) -> None:
    """Anybody who may change the database can write a claim, and a request without a name would be for a list."""
    named = replace(FULL, identity=IDENTITY, claim=HOLDER)
    assert holder_to_read(world.index(), named, known=(), namespaces=(), kubernetes="k-1") == HOLDER
    nameless = replace(named, claim=replace(HOLDER, **{part: ""}))
    assert holder_to_read(world.index(), nameless, known=(), namespaces=(), kubernetes="k-1") is None


@pytest.mark.parametrize(
    "claim", [CLAIM, None, replace(HOLDER, system_identifier="1")], ids=["own", "none", "of another server"]
)
async def test_no_holder_is_read_where_no_claim_is_in_the_way(world: World, claim: TableClaim | None) -> None:
    kube = Kube(None)
    await peers(world, kube, claim=claim)
    assert kube.read == []


@pytest.mark.finding("security S12")
async def test_an_object_of_another_kubernetes_cluster_is_not_looked_for_in_this_one(world: World) -> None:
    kube = Kube(None)
    found = await peers(world, kube, claim=replace(HOLDER, kubernetes="k-2"))
    assert (kube.read, found.holder_exists) == ([], None)


ENDED = replace(CLAIM, uid="u-0", name="former", created_at="2026-01-01T10:00:00Z")


@pytest.mark.parametrize("spec", [{"suspend": True}, {"embedding": {"dimensions": 1024}}, {}])
@pytest.mark.parametrize("claim", [None, ENDED, replace(CLAIM, system_identifier="1")], ids=["none", "ended", "copied"])
def test_a_table_that_the_object_never_claimed_keeps_its_vectors_and_the_object_goes(
    world: World, spec: dict[str, Any], claim: TableClaim | None
) -> None:
    """Migrated by the command line, or left by an object that was deleted with `Retain`; a Job would be refused."""
    index = deleted(world, deletionPolicy="Delete", **spec)
    found = replace(FULL, identity=IDENTITY, claim=claim)
    plan = end(world, index, database=found, peers=Peers(holder_exists=False))
    assert (plan.finalizer, plan.actions) == (False, ())
    (stays,) = plan.left_behind
    assert "table memories stays in database app" in stays
    assert "memory migrate --to base" in stays


def test_migrations_whose_claim_the_running_job_has_dropped_are_undone_to_the_end(world: World) -> None:
    """The claim goes with our own tables, before the revision."""
    index = deleted(world, deletionPolicy="Delete")
    config = workers.config_fingerprint(index, world.images, "uninstall")
    running = JobFacts("mem-uninstall-x", "uninstall", config, 0, JobState.ACTIVE)
    found = replace(FULL, identity=IDENTITY, claim=None)
    plan = end(world, index, database=found, jobs=(running,))
    assert plan.finalizer is None
    assert "Job mem-uninstall-x drops" in condition(plan, "Ready")["message"]
    taken = end(world, index, database=replace(found, claim=replace(CLAIM, uid="u-2")), jobs=(running,))
    assert (taken.finalizer, taken.actions) == (False, ())
