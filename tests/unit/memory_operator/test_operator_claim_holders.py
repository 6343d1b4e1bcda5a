"""A table is taken over only from an object that the API server says is gone, and not from one that is unseen."""

from dataclasses import replace
from typing import Any

import pytest

from memory_operator.api.spec import parse
from memory_operator.clients.kube import KubeError
from memory_operator.controller.cache import WATCHED, ObjectCache
from memory_operator.controller.entries import entry_of
from memory_operator.controller.observe import Observer
from memory_operator.reconcile.authorization.claims import holder_to_read
from memory_operator.reconcile.facts import Peers
from memory_recall.schema.claims_sql import TableClaim
from tests.unit.memory_operator.conftest import CLAIM, FULL, IDENTITY, SERVER, World, deep_update

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
