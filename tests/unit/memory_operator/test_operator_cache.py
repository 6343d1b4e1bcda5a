"""The cache of watched objects: how fresh its answers are, and that a settled object reads one Secret and no more."""

import asyncio
import gc
import json
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from kopf._cogs.structs.bodies import Body
from kopf._core.engines.indexing import OperatorIndexers

from memory_operator.clients.kube import LISTED_BYTES, KubeError, NamespaceFullError
from memory_operator.controller import cache as cache_of_operator
from memory_operator.controller.cache import (
    LATEST_SECONDS,
    NAMESPACE_BYTES,
    WATCHED,
    WATCHED_OF_CNPG,
    ObjectCache,
)
from memory_operator.controller.controller import Controller
from memory_operator.controller.entries import PEER_BYTES, peer_of
from memory_operator.controller.objects import Objects
from memory_operator.controller.observe import Observer
from memory_operator.reconcile.facts import Peer
from memory_operator.resources.model_fetch import DIRECT
from tests.unit.memory_operator.conftest import CLAIM, EMPTY, FULL, IDENTITY, World
from tests.unit.memory_operator.test_operator_controller import KEY, Bench, bench

__all__ = ["bench"]  # the fixture
KINDS = (*WATCHED, *WATCHED_OF_CNPG)


class Watches:
    """The indexes of kopf, filled as its watches fill them, and a cache over them."""

    def __init__(self) -> None:
        self.indexers = OperatorIndexers()
        self.indexers.ensure([type("Handler", (), {"id": kind})() for kind in KINDS])
        self.seconds = 0.0
        self.cache = ObjectCache(lambda: self.seconds)
        self.cache.use((), {kind: self.indexers[kind].index for kind in KINDS})

    def show(self, kind: str, manifest: dict[str, Any]) -> None:
        key = self.indexers.make_key(Body(manifest))
        self.indexers[kind].replace(key, self.cache.admit(kind, manifest))

    def delete(self, kind: str, manifest: dict[str, Any]) -> None:
        self.cache.forget(kind, manifest["metadata"]["namespace"], manifest["metadata"]["uid"])
        self.indexers[kind].discard(self.indexers.make_key(Body(manifest)))

    def versions(self, kind: str = "Job", owner: str = "mem") -> list[str]:
        found = self.cache.find(kind, ("team", owner))
        assert found is not None
        return [item["metadata"]["resourceVersion"] for item in found]


def controlled_by(api_version: str, kind: str, uid: str) -> list[dict[str, Any]]:
    return [{"apiVersion": api_version, "kind": kind, "name": "x", "uid": uid, "controller": True}]


def job(version: int, name: str = "mem-migrate", uid: str = "j-1") -> dict[str, Any]:
    labels = {"app.kubernetes.io/instance": "mem", "app.kubernetes.io/managed-by": "memory-operator"}
    meta = {
        "namespace": "team", "name": name, "uid": uid, "resourceVersion": str(version), "labels": labels,
        "ownerReferences": controlled_by("memory-index.dev/v1alpha1", "MemoryIndex", "u-1"),
    }  # fmt: skip
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "status": {"version": version}}


@pytest.fixture
def watches() -> Watches:
    return Watches()


def test_our_own_write_counts_until_the_watch_shows_it_or_a_newer_object(watches: Watches) -> None:
    watches.show("Job", job(5))
    watches.cache.remember(job(9))
    assert watches.versions() == ["9"]
    watches.show("Job", job(7))
    assert watches.versions() == ["9"], "an event from before our write"
    watches.show("Job", job(12))
    assert watches.versions() == ["12"]
    watches.delete("Job", job(12))
    assert watches.versions() == [], "our write is not remembered any more"


def test_an_object_that_we_created_counts_before_its_watch_shows_it(watches: Watches) -> None:
    watches.cache.remember(job(5))
    assert watches.versions() == ["5"]
    watches.seconds = LATEST_SECONDS + 1
    assert watches.versions() == [], "no watch has shown it for so long: somebody has deleted it"


def test_a_memory_index_that_is_gone_is_not_brought_back_by_our_last_write_of_its_status(
    watches: Watches, world: World
) -> None:
    manifest = world.manifest()
    manifest["metadata"]["resourceVersion"] = "3"
    watches.show("MemoryIndex", manifest)
    watches.delete("MemoryIndex", manifest)
    watches.cache.remember({**manifest, "metadata": {**manifest["metadata"], "resourceVersion": "4"}})
    assert watches.versions("MemoryIndex") == []


def test_an_object_that_is_not_watched_is_unknown_and_not_missing(watches: Watches) -> None:
    assert watches.cache.find("Secret", KEY) is None
    assert watches.cache.find("Cluster", KEY) is None, "CloudNativePG may not be installed"
    assert watches.cache.find("Job", KEY) == []
    bound = ObjectCache()
    bound.use(("team",), {"Job": {}})
    assert bound.find("Job", ("elsewhere", "mem")) is None


def test_what_nobody_reads_is_not_kept(watches: Watches) -> None:
    pod = {**job(1), "kind": "Pod", "spec": {"containers": []}}
    owners = controlled_by("batch/v1", "Job", "j-1")
    pod["metadata"] = {**pod["metadata"], "managedFields": [{"manager": "kubelet"}], "ownerReferences": owners}
    watches.show("Pod", pod)
    found = watches.cache.find("Pod", KEY)
    assert found is not None
    assert "spec" not in found[0]
    assert "managedFields" not in found[0]["metadata"]


def service(name: str = "s", size: int = 0, **meta: Any) -> dict[str, Any]:
    given = job(1, name, f"uid of {name}")["metadata"]
    return {"apiVersion": "v1", "kind": "Service", "metadata": given | meta, "spec": {"selector": {"x": "y" * size}}}


@pytest.mark.promise("operator-shared-fairly")
@pytest.mark.finding("security S14")
def test_an_object_that_carries_our_labels_and_has_another_controller_takes_no_memory(watches: Watches) -> None:
    watches.show("Service", service(size=1 << 20, ownerReferences=[]))
    watches.show("Service", service("t", ownerReferences=controlled_by("v1", "Service", "u-1")))
    watches.show("Pod", {**job(1), "kind": "Pod"})
    assert watches.cache.find("Service", KEY) == watches.cache.find("Pod", KEY) == []


@pytest.mark.promise("operator-shared-fairly")
@pytest.mark.finding("security S14")
@pytest.mark.parametrize("kind", ["Service", "MemoryIndex", "Cluster"])
def test_annotations_and_fields_that_nobody_reads_take_no_memory(watches: Watches, kind: str) -> None:
    filled = {"x": "y" * (1 << 20), "memory-index.dev/reconcile-at": "z" * (1 << 20)}
    watches.show(kind, {**service("mem", annotations=filled), "kind": kind, "data": filled})
    found = watches.cache.find(kind, KEY)
    assert found is not None
    assert found[0]["metadata"]["annotations"] == {}
    assert "data" not in found[0]


def test_a_consent_for_any_number_of_namespaces_is_kept(watches: Watches) -> None:
    """Left out, it would stop the workers of all of them."""
    consent = {"memory-index.dev/allowed-namespaces": ",".join(f"team-{number:015}" for number in range(1000))}
    watches.show("MemoryIndex", {**service("mem", annotations=consent), "kind": "MemoryIndex"})
    found = watches.cache.find("MemoryIndex", KEY)
    assert found is not None
    assert found[0]["metadata"]["annotations"] == consent


@pytest.mark.promise("operator-shared-fairly")
@pytest.mark.finding("security S14")
def test_a_namespace_beyond_its_limit_is_refused_alone_and_read_from_the_api_server_afterwards(
    watches: Watches,
) -> None:
    large = [service(f"s{number}", size=1 << 20) for number in range(NAMESPACE_BYTES >> 20)]
    for item in large:
        watches.show("Service", item)
    with pytest.raises(NamespaceFullError, match=r"namespace team: .* 32 MiB"):
        watches.cache.find("Service", KEY)
    kept = watches.indexers["Service"].index
    assert sum(len(entry.content) for owner in kept for entry in kept[owner]) <= NAMESPACE_BYTES
    assert watches.cache.find("MemoryIndex", KEY) is None, "its status must say why"
    assert watches.cache.find("Service", ("other", "mem")) == []
    for item in large[:2]:
        watches.delete("Service", item)
    assert watches.cache.find("Service", KEY) is None, "one of its objects was not kept"
    watches.show("Service", large[-1])
    assert len(watches.cache.find("Service", KEY) or ()) == len(large) - 2, "all of them are kept now"


def in_namespace(namespace: str, size: int) -> dict[str, Any]:
    return service("s", size=size, namespace=namespace, uid=f"uid in {namespace}")


@pytest.mark.promise("operator-shared-fairly")
@pytest.mark.finding("security S14")
@pytest.mark.finding("security S3")
def test_small_namespaces_are_served_whatever_many_large_ones_take_together(
    watches: Watches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may create namespaces stays below the limit of each, and takes all of the memory with twelve."""
    monkeypatch.setattr(cache_of_operator, "TOTAL_BYTES", 100_000)
    monkeypatch.setattr(cache_of_operator, "SMALL_BYTES", 5_000)
    watches.show("Service", in_namespace("team", 1_000))
    large = [in_namespace(f"large-{number}", 20_000) for number in range(12)]
    for item in large:
        watches.show("Service", item)
    watches.show("Service", in_namespace("later", 4_000))
    for namespace in ("team", "later"):
        assert len(watches.cache.find("Service", (namespace, "mem")) or ()) == 1, "it is cached as before"
    index = watches.indexers["Service"].index
    assert sum(len(entry.content) for owner in index for entry in index[owner]) <= 100_000

    def refused(item: dict[str, Any]) -> bool:
        try:
            watches.cache.find("Service", (item["metadata"]["namespace"], "mem"))
        except NamespaceFullError:
            return True
        return False

    assert sum(map(refused, large)) >= 7
    for item in large[1:]:
        watches.delete("Service", item)
    assert not refused(large[0])
    watches.show("Service", large[0])
    assert len(watches.cache.find("Service", ("large-0", "mem")) or ()) == 1, "there is room for it again"


@pytest.mark.promise("operator-shared-fairly")
def test_a_small_namespace_that_others_displace_is_read_from_the_api_server(
    watches: Watches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_of_operator, "TOTAL_BYTES", 10_000)
    monkeypatch.setattr(cache_of_operator, "SMALL_BYTES", 5_000)
    for namespace, size in (("team", 3_000), ("a", 2_500), ("b", 2_500), ("c", 2_500)):
        watches.show("Service", in_namespace(namespace, size))
    assert watches.cache.find("Service", KEY) is None, "the largest is not kept, and not refused either"
    assert watches.cache.find("Service", ("a", "mem"))
    watches.cache.admit("Service", in_namespace("team", 100))
    assert watches.cache.find("Service", KEY) is None, "kopf still has the entry that was dropped"


def naming(namespace: str, name: str = "mem", *, table: str = "memories", size: int = 0) -> dict[str, Any]:
    """A MemoryIndex that names the table, with a status of this size."""
    manifest = World().manifest(database={"table": table})
    manifest["metadata"] |= {"namespace": namespace, "name": name, "uid": f"uid of {namespace}/{name}"}
    manifest["status"]["conditions"] = [{"type": "Ready", "status": "Unknown", "message": "x" * size}]
    return manifest


async def named_in(watches: Watches) -> list[str]:
    """The namespaces of the objects that name the table, learnt without an API server."""
    found = await Objects(None, watches.cache).naming(("app", "memories"), ())  # type: ignore[arg-type]
    return sorted(peer.namespace for peer in found)


def held(watches: Watches) -> int:
    index = watches.indexers["MemoryIndex"].index
    return sum(entry.size for owner in index for entry in index[owner])


@pytest.mark.promise("others-tables-untouched")
async def test_an_object_that_was_not_kept_is_among_those_that_name_a_table(
    watches: Watches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be the older one, to which the table belongs."""
    monkeypatch.setattr(cache_of_operator, "TOTAL_BYTES", 10_000)
    displaced = naming("displaced", size=4_000)
    watches.show("MemoryIndex", displaced)
    assert watches.cache.find("MemoryIndex", ("displaced", "mem")) is not None
    for namespace in ("kept", "small"):
        watches.show("MemoryIndex", naming(namespace, size=1_500))
    assert watches.cache.find("MemoryIndex", ("displaced", "mem")) is None, "its content was dropped"
    assert await named_in(watches) == ["displaced", "kept", "small"]
    watches.show("MemoryIndex", displaced)
    assert await named_in(watches) == ["displaced", "kept", "small"], "it is shown while there is no room for it"
    watches.delete("MemoryIndex", displaced)
    assert await named_in(watches) == ["kept", "small"]


@pytest.mark.promise("operator-shared-fairly")
async def test_nobody_waits_for_the_objects_of_a_namespace_that_has_too_many(
    watches: Watches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read from the API server, they could take longer than a reconcile may: no table would get its first claim."""
    monkeypatch.setattr(cache_of_operator, "NAMESPACE_BYTES", 50_000)
    watches.show("MemoryIndex", naming("team"))
    for number in range(30):
        watches.show("MemoryIndex", naming("large", f"m{number}", size=5_000))
    assert watches.cache.find("MemoryIndex", ("large", "m0")) is None
    assert await named_in(watches) == ["large"] * 30 + ["team"]
    assert held(watches) < 50_000 + 31 * PEER_BYTES, "of most objects, only what they say about their table is kept"


def longest_names(number: int) -> str:
    """The JSON of a MemoryIndex whose names are as long as the definition allows; none is that of another object."""
    name, text = f"{number:063}", f"{number:063}".replace("0", "\N{OLD ITALIC LETTER A}")
    cluster = {"name": name.zfill(253), "namespace": name}
    manifest = World().manifest(database={"table": f"{text}.{text}", "name": name, "cluster": cluster})
    manifest["metadata"] |= {"namespace": name, "name": name.zfill(253), "uid": name[:36]}
    manifest["status"]["database"] = {"systemIdentifier": text[:32], "tableSchema": text}
    return json.dumps(manifest)


@pytest.mark.promise("operator-shared-fairly")
def test_what_an_object_says_about_its_table_takes_no_more_memory_than_it_counts_for() -> None:
    """Else the limits would let in more than the operator has memory for."""
    texts = [longest_names(number) for number in range(200)]
    kept: list[Peer | None] = [peer_of(json.loads(texts[0]))] * len(texts)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number, text in enumerate(texts):
            kept[number] = peer_of(json.loads(text))
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert None not in kept
    assert PEER_BYTES / 2 < (after - before) / len(texts) <= PEER_BYTES


@pytest.mark.promise("operator-shared-fairly")
async def test_what_objects_say_about_their_tables_is_dropped_where_the_largest_namespace_has_nothing_else_to_drop(
    watches: Watches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_of_operator, "NAMESPACE_BYTES", 10_000)
    monkeypatch.setattr(cache_of_operator, "TOTAL_BYTES", 20 * PEER_BYTES)
    watches.show("MemoryIndex", naming("team"))
    for number in range(30):
        watches.show("MemoryIndex", naming("large", f"m{number}"))
        assert held(watches) <= 20 * PEER_BYTES
    named = await named_in(watches)
    assert named.count("large") < 20
    assert "team" in named
    assert watches.cache.find("MemoryIndex", ("team", "mem")) is not None, "a small namespace is kept as before"


@pytest.mark.promise("operator-shared-fairly")
async def test_no_object_is_decoded_to_learn_which_name_a_table(
    watches: Watches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One author may make very many objects, and decoding all of them would stop the operator."""
    for number in range(3):
        table = "public.memories" if number else "memories"
        watches.show("MemoryIndex", naming(f"same-{number}", table=table))
        watches.show("MemoryIndex", naming(f"other-{number}", table="notes"))
    monkeypatch.delattr(json, "loads")
    assert await named_in(watches) == ["same-0", "same-1", "same-2"]


@pytest.mark.parametrize(
    "spec",
    [
        None, ["x"], {"database": ["x"]}, {"database": {"table": None}}, {"database": {"name": "app", "table": 7}},
        {"database": {"name": "app", "cluster": "pg"}}, {"embedder": ["x"]}, {"embedder": {"ref": "mem"}},
    ],
)  # fmt: skip
async def test_an_object_that_no_definition_of_ours_allows_is_counted_and_names_no_table(
    watches: Watches, spec: Any
) -> None:
    """A failure here would take the object out of kopf's index, and its size out of what its namespace takes."""
    watches.show("MemoryIndex", {**naming("team"), "spec": spec})
    assert len(watches.cache.find("MemoryIndex", KEY) or ()) == 1
    assert watches.cache.uids("MemoryIndex", "team") == {"uid of team/mem"}
    assert await named_in(watches) == []


@pytest.mark.parametrize(
    "status",
    [
        "x", ["x"], {"database": "x"}, {"database": ["x"]}, {"database": {"systemIdentifier": 7}},
        {"database": {"systemIdentifier": None}}, {"database": {"clusterName": ["x"]}},
        {"database": {"tableSchema": {"x": 1}}},
    ],
)  # fmt: skip
async def test_an_object_with_a_malformed_status_is_counted_and_names_the_table_of_its_specification(
    watches: Watches, status: Any
) -> None:
    """What its status does not say is unknown, since whoever may write the status of an object may leave it so."""
    watches.show("MemoryIndex", {**naming("team"), "status": status})
    assert len(watches.cache.find("MemoryIndex", KEY) or ()) == 1
    assert watches.cache.uids("MemoryIndex", "team") == {"uid of team/mem"}
    (peer,) = await Objects(None, watches.cache).naming(("app", "memories"), ())  # type: ignore[arg-type]
    assert (peer.namespace, peer.system_identifier, peer.table_schema) == ("team", "", None)


@pytest.mark.promise("operator-shared-fairly")
async def test_an_object_that_was_not_kept_counts_no_more_once_it_is_gone(watches: Watches) -> None:
    """Its deletion may be shown by the watch, or found by comparison alone."""

    class Lists:
        async def uids(self, kind: str, _namespace: str, _labels: dict[str, str] | None) -> frozenset[str]:
            return frozenset({"uid of small"}) if kind == "Service" else frozenset()

    watches.show("Service", service("small"))
    watches.show("Service", service("large", size=NAMESPACE_BYTES))
    watches.show("Service", service("larger", size=NAMESPACE_BYTES))
    watches.delete("Service", service("larger"))
    with pytest.raises(NamespaceFullError):
        watches.cache.find("Service", KEY)
    await Objects(Lists(), watches.cache)._compare("Service", "")  # type: ignore[arg-type]
    (found,) = watches.cache.find("Service", KEY) or ()
    assert found["metadata"]["name"] == "small"


class Pages:
    """An API server whose answers have one object and a size each; counts the lists that are read at the same time."""

    def __init__(self, size: int, **items: dict[str, Any]) -> None:
        self.size, self.items = size, items
        self.reading = self.most = 0
        self.read: list[str] = []

    async def pages(self, kind: str, namespace: str, *_: Any) -> AsyncIterator[tuple[list[dict[str, Any]], int]]:
        self.read.append(namespace)
        self.reading += 1
        self.most = max(self.most, self.reading)
        await asyncio.sleep(0)
        if kind in self.items:
            yield [self.items[kind]], self.size
        self.reading -= 1


@pytest.mark.promise("operator-shared-fairly")
@pytest.mark.parametrize("size", [0, LISTED_BYTES // 2])
async def test_the_objects_of_all_kinds_together_are_limited_where_the_api_server_is_asked(size: int) -> None:
    """Each list alone is within its limit: by what is kept, or by what is read."""
    item = service(size=0 if size else NAMESPACE_BYTES // 2)
    objects = Objects(Pages(size, Service=item, Job=item, Pod=item), ObjectCache())  # type: ignore[arg-type]
    assert len((await objects.children(("Service",), *KEY))["Service"]) == 1
    with pytest.raises(NamespaceFullError, match="namespace team: they take more than") as caught:
        await objects.children(("Service", "Job", "Pod"), *KEY)
    assert caught.value.namespace == "team"


@pytest.mark.promise("operator-shared-fairly")
async def test_objects_that_the_api_server_is_asked_for_are_read_one_list_after_the_other_and_reduced() -> None:
    filled = service(annotations={"x": "y" * 9}) | {"data": {"x": "y"}}
    kube = Pages(0, Service=filled, Job=filled | {"metadata": {**filled["metadata"], "ownerReferences": []}})
    objects = Objects(kube, ObjectCache())  # type: ignore[arg-type]
    found, _ = await asyncio.gather(*(objects.children(("Service", "Job"), *KEY) for _ in range(2)))
    assert kube.most == 1
    assert found["Job"] == [], "no MemoryIndex controls it"
    (item,) = found["Service"]
    assert (item["metadata"]["annotations"], "data" in item) == ({}, False)


async def test_an_object_whose_deletion_no_watch_has_shown_is_found_by_comparison(watches: Watches) -> None:
    """After an interruption Kubernetes may have forgotten the deletion, and kopf keeps the object in its index."""

    class Lists:
        async def uids(self, kind: str, _namespace: str, _labels: dict[str, str] | None) -> frozenset[str]:
            watches.show("Job", job(8, "mem-index", "j-3"))  # while the list is under way
            return frozenset({"j-2"}) if kind == "Job" else frozenset()

    watches.show("Job", job(5))
    watches.show("Job", job(6, "mem-backfill", "j-2"))
    await Objects(Lists(), watches.cache)._compare("Job", "")  # type: ignore[arg-type]
    assert watches.versions() == ["6", "8"]
    watches.show("Job", job(9, uid="j-4"))
    assert sorted(watches.versions()) == ["6", "8", "9"], "the object was made anew"


async def test_a_comparison_that_fails_changes_nothing_and_does_not_end_the_operator(watches: Watches) -> None:
    class Failing:
        async def uids(self, kind: str, _namespace: str, _labels: dict[str, str] | None) -> frozenset[str]:
            raise KubeError(f"listing {kind}", 503, "not now")

    watches.show("Job", job(5))
    await Objects(Failing(), watches.cache)._compare("Job", "")  # type: ignore[arg-type]
    assert watches.versions() == ["5"]


class Counted:
    """Counts the reads that reach the API server, and lets the watches show every write at once, or not."""

    def __init__(self, bench: Bench, world: World) -> None:
        self.bench, self.watches = bench, Watches()
        self.reads: list[str] = []
        self.version = 100
        self.late: list[tuple[str, dict[str, Any]]] | None = None
        for (kind, _, _), item in bench.api.objects.items():
            self.arrive(kind, item)
        api = bench.api
        self.observer = Observer(self, bench.inspect, bench.probe, cache=self.watches.cache)  # type: ignore[arg-type]
        bench.controller = Controller(
            kube=self,  # type: ignore[arg-type]
            observer=self.observer,
            queue=bench.queue,
            images=world.images,
            route=DIRECT,
            intervals=world.intervals,
            permitted=world.permitted,
            metrics=bench.metrics,
            clock=lambda: world.now,
        )
        self.delete, self.create, self.is_terminating = api.delete, api.create, api.is_terminating
        self.namespace_uid = api.namespace_uid

    def arrive(self, kind: str, item: dict[str, Any]) -> None:
        """Give an object a newer version and show it to the watch, at once or once `delayed` has ended."""
        self.version += 1
        item["metadata"]["resourceVersion"] = str(self.version)
        item["metadata"].setdefault("uid", f"u-{kind}-{item['metadata']['name']}")
        item["kind"] = kind
        if kind in KINDS:
            self.watches.show(kind, item) if self.late is None else self.late.append((kind, item))

    @contextmanager
    def delayed(self) -> Iterator[None]:
        self.late, late = [], None
        yield
        self.late, late = None, self.late
        for kind, item in late:
            self.watches.show(kind, item)

    async def get(self, kind: str, namespace: str, name: str) -> Any:
        self.reads.append(kind)
        return await self.bench.api.get(kind, namespace, name)

    async def list(self, kind: str, namespace: str, labels: Any = None) -> Any:
        self.reads.append(f"{kind}s")
        return await self.bench.api.list(kind, namespace, labels)

    async def apply(self, manifest: dict[str, Any]) -> dict[str, Any]:
        stored = await self.bench.api.apply(manifest)
        self._answered(manifest["kind"], manifest["metadata"]["namespace"], manifest["metadata"]["name"])
        return stored

    async def replace_status(self, manifest: dict[str, Any], status: dict[str, Any]) -> None:
        await self.bench.api.replace_status(manifest, status)
        self._answered("MemoryIndex", *KEY)

    async def set_finalizer(self, manifest: dict[str, Any], *, present: bool) -> None:
        await self.bench.api.set_finalizer(manifest, present=present)
        self.bench.api.index["metadata"]["finalizers"] = manifest["metadata"]["finalizers"]
        self._answered("MemoryIndex", *KEY)

    def _answered(self, kind: str, namespace: str, name: str) -> None:
        item = self.bench.api.objects[kind, namespace, name]
        self.arrive(kind, item)
        self.watches.cache.remember(item)


@pytest.fixture
def counted(bench: Bench, world: World) -> Counted:
    bench.database = replace(FULL, identity=IDENTITY, claim=CLAIM)
    return Counted(bench, world)


async def test_a_secret_that_several_facts_are_about_is_read_once_in_an_observation(counted: Counted) -> None:
    """The embedder's key is looked at for the embedder that runs, and for the one that is specified."""
    bench = counted.bench
    key = {"metadata": {"labels": {"memory-index.dev/allow": "api-key"}}, "data": {"apiKey": "a2V5"}}
    bench.put("Secret", "team", "key", key)
    bench.api.index["spec"]["embedder"] = {"apiKey": {"secretName": "key"}}
    counted.arrive("MemoryIndex", bench.api.index)
    await bench.reconcile(3)
    counted.reads.clear()
    await bench.reconcile()
    assert counted.reads == ["Secret", "Secret"], "that of the connection URI, and that of the key"


@pytest.mark.finding("D20")
async def test_a_settled_object_reads_one_secret_and_connects_once_and_writes_nothing(counted: Counted) -> None:
    """It holds the connection URI; the certificates of the Cluster's authority were read a moment ago."""
    bench = counted.bench
    await bench.reconcile(3)
    counted.reads.clear()
    bench.dsns.clear()
    bench.api.writes.clear()
    await bench.reconcile()
    assert counted.reads == ["Secret"]
    assert len(bench.dsns) == 1
    assert bench.api.writes == []


async def test_no_object_is_applied_twice_while_the_watches_are_late(counted: Counted) -> None:
    bench = counted.bench
    bench.database = EMPTY
    with counted.delayed():
        await bench.reconcile()
        assert bench.api.writes == [
            "finalizer",
            "Database",
            "ConfigMap",
            "NetworkPolicy",
            "NetworkPolicy",
            "Service",
            "Deployment",
            "status",
        ]
        bench.api.writes.clear()
        await bench.reconcile(3)
        assert set(bench.api.writes) <= {"status"}


async def test_a_new_object_is_acknowledged_once_while_the_watches_are_late(counted: Counted) -> None:
    bench = counted.bench
    bench.api.index["status"] = {}
    counted.arrive("MemoryIndex", bench.api.index)
    with counted.delayed():
        await bench.reconcile()
        assert bench.api.writes == ["status"]
        await bench.reconcile()
    assert bench.dsns, "the second reconcile observes"
