"""The Kubernetes client distinguishes what is missing from what failed, by an API server's own answers."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kubernetes.aio.client import ApiClient, Configuration

from memory_operator.api.reasons import Reason
from memory_operator.api.spec import FINALIZER
from memory_operator.clients import kube as kube_client
from memory_operator.clients.kube import (
    EVERY_NAMESPACE,
    KindMissingError,
    Kube,
    KubeError,
    NamespaceFullError,
    NameTakenError,
)
from memory_operator.resources import cnpg
from tests.unit.memory_operator.api_server import Answer, Connect, Handler, Sent, connect, failure
from tests.unit.memory_operator.conftest import World

__all__ = ["connect"]  # the fixture
SERVICE: dict[str, Any] = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "team"}}


async def test_a_group_that_is_not_installed_is_a_missing_kind(connect: Connect) -> None:
    kube, _ = await connect(Answer(404, "404 page not found\n"))
    with pytest.raises(KindMissingError):
        await kube.list("Database", "dbaas")


async def test_a_kind_that_its_group_lacks_is_a_missing_kind(connect: Connect) -> None:
    kube, _ = await connect(failure(404, "the server could not find the requested resource"))
    with pytest.raises(KindMissingError):
        await kube.list("Database", "dbaas")


async def test_an_object_that_does_not_exist_is_none(connect: Connect) -> None:
    kube, _ = await connect(failure(404, 'clusters "pg" not found'))
    assert await kube.get("Cluster", "dbaas", "pg") is None


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Answer(502, "bad gateway"), "answered HTTP 502"),
        (Answer(403, {"error": "not from the API server"}), "answered HTTP 403"),
        (Answer(200, "<html>a login page</html>"), "cannot be reached"),
        (failure(410, "too old resource version"), "too old resource version"),
        (failure(429, "the server has received too many requests"), "too many requests"),
        (failure(500, "etcdserver: request timed out"), "etcdserver"),
        (failure(503, "the server is currently unable to handle the request"), "unable to handle"),
    ],
)
async def test_an_answer_that_may_be_another_one_later_says_what_was_asked_and_is_no_refusal(
    connect: Connect, answer: Answer, message: str
) -> None:
    kube, _ = await connect(answer)
    with pytest.raises(KubeError, match=rf"listing Pod in team: .*{message}") as caught:
        await kube.list("Pod", "team")
    assert caught.value.code == (answer.code if answer.code != 200 else 0)
    assert not caught.value.refused
    assert not isinstance(caught.value, KindMissingError)


async def test_an_unreachable_server_is_reported_without_its_address(unused_tcp_port: int) -> None:
    async with ApiClient(Configuration(host=f"http://localhost:{unused_tcp_port}")) as client:
        with pytest.raises(KubeError, match="cannot be reached") as caught:
            await Kube(client, lambda *_: None, lambda _: None).get("Secret", "team", "dsn")
    assert "localhost" not in str(caught.value)


async def test_a_status_that_the_definition_does_not_know_says_which_definition_to_apply(connect: Connect) -> None:
    told = ' "" is invalid: patch: Invalid value: "{the object}": strict decoding error: unknown field "status.later"'
    kube, sent = await connect(failure(422, told))
    with pytest.raises(KubeError, match=r"older than this operator: apply the chart's .*status\.later") as caught:
        await kube.replace_status({"metadata": READ}, {"later": 1})
    assert sent[0].query["fieldValidation"] == "Strict"
    assert "the object" not in caught.value.message


@pytest.mark.parametrize(("code", "refused"), [(400, True), (403, True), (422, True), (409, False), (429, False)])
async def test_only_a_write_that_cannot_succeed_later_counts_as_refused(
    connect: Connect, code: int, refused: bool
) -> None:
    kube, _ = await connect(lambda sent: failure(404 if sent.method == "GET" else code, "no"))
    with pytest.raises(KubeError) as caught:
        await kube.apply(SERVICE)
    assert (caught.value.code, caught.value.refused) == (code, refused)


@pytest.mark.parametrize("name", ["../../other/secrets/dsn", "..", "dsn/status", "%2e%2e", "dsn?watch=1"])
async def test_a_name_never_leads_out_of_its_namespace(connect: Connect, name: str) -> None:
    kube, sent = await connect(Answer(200, {"metadata": {}}))
    assert await kube.get("Secret", "team", name) is None
    assert sent == []


async def test_a_list_gives_each_object_its_kind_and_asks_for_the_labels(connect: Connect) -> None:
    kube, sent = await connect(Answer(200, {"kind": "JobList", "items": [{"metadata": {"name": "a"}}]}))
    assert await kube.list("Job", "team", {"a": "b", "c": "d"}) == [
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}}
    ]
    await kube.list("Job", EVERY_NAMESPACE)
    assert [(one.path, one.query) for one in sent] == [
        ("/apis/batch/v1/namespaces/team/jobs", {"labelSelector": "a=b,c=d", "limit": "20"}),
        ("/apis/batch/v1/jobs", {"limit": "20"}),
    ]


def paged(number: int, size: int) -> Handler:
    """An API server that has so many Jobs of so many bytes, and gives each in an answer of its own."""

    def answer(sent: Sent) -> Answer:
        place = int(sent.query.get("continue", 0))
        metadata = {"continue": str(place + 1)} if place + 1 < number else {}
        item = {"metadata": {"name": f"job-{place}", "uid": f"u-{place}"}, "spec": {"padding": "x" * size}}
        return Answer(200, {"metadata": metadata, "items": [item]})

    return answer


async def test_a_list_is_read_page_by_page_to_its_end(connect: Connect) -> None:
    kube, sent = await connect(paged(3, 1))
    assert [item["metadata"]["name"] for item in await kube.list("Job", "team")] == ["job-0", "job-1", "job-2"]
    assert await kube.uids("Job", "team") == {"u-0", "u-1", "u-2"}
    assert [one.query.get("continue") for one in sent] == [None, "1", "2"] * 2


async def test_objects_that_are_too_large_together_are_not_held_but_can_be_read_one_after_the_other(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may create Jobs in a namespace can make hundreds of a megabyte each with the operator's labels."""
    monkeypatch.setattr(kube_client, "LISTED_BYTES", 2500)
    kube, sent = await connect(paged(9, 1000))
    with pytest.raises(
        NamespaceFullError, match=r"listing Job in team: they take more than .* delete some of them"
    ) as caught:
        await kube.list("Job", "team")
    assert caught.value.namespace == "team"
    assert len(sent) == 3
    read = [item["metadata"]["name"] async for items, _ in kube.pages("Job", "team") for item in items]
    assert read == [f"job-{n}" for n in range(9)]


async def test_what_exists_is_asked_for_without_transferring_the_objects(connect: Connect) -> None:
    kube, sent = await connect(Answer(200, {"items": [{"metadata": {"uid": "u-1"}}, {"metadata": {"uid": "u-2"}}]}))
    assert await kube.uids("Pod", EVERY_NAMESPACE, {"a": "b"}) == {"u-1", "u-2"}
    assert (sent[0].path, sent[0].query) == ("/api/v1/pods", {"labelSelector": "a=b", "limit": "500"})
    assert sent[0].accept.startswith("application/json;as=PartialObjectMetadataList")


async def test_an_object_that_has_changed_meanwhile_is_not_replaced(connect: Connect) -> None:
    lease = {"kind": "Lease", "metadata": {"name": "memory-operator", "namespace": "system", "resourceVersion": "7"}}
    kube, sent = await connect(failure(409, "the object has been modified"))
    with pytest.raises(KubeError) as caught:
        await kube.replace(lease)
    assert (caught.value.code, caught.value.refused) == (409, False)
    assert (sent[0].method, sent[0].path) == (
        "PUT", "/apis/coordination.k8s.io/v1/namespaces/system/leases/memory-operator"
    )  # fmt: skip
    assert sent[0].body == lease


async def test_the_object_that_a_write_returns_is_passed_on(connect: Connect) -> None:
    kube, _ = await connect(lambda sent: Answer(200, {"metadata": {"uid": "u-1", "resourceVersion": sent.method}}))
    answers: list[Any] = []
    kube._on_answer = answers.append
    live = {**SERVICE, "metadata": {**SERVICE["metadata"], "ownerReferences": []}}
    await kube.apply(live)
    await kube.replace_status({"metadata": READ}, {})
    await kube.set_finalizer({"metadata": READ}, present=True)
    assert answers == [{"metadata": {"uid": "u-1", "resourceVersion": "PATCH"}}] * 3


@pytest.mark.finding("security L3")
async def test_a_status_is_written_to_the_object_that_was_read_and_never_to_another_of_its_name(
    connect: Connect,
) -> None:
    """For another write of a status than a patch that tests it, the API server ignores the uid."""
    kube, sent = await connect(failure(422, "the server rejected our request due to an error in our request"))
    with pytest.raises(KubeError) as caught:
        await kube.replace_status({"metadata": READ}, {"conditions": []})
    assert (caught.value.code, caught.value.refused) == (409, False)
    assert sent[0].path == "/apis/memory-index.dev/v1alpha1/namespaces/team/memoryindexes/mem/status"
    assert (sent[0].content_type, sent[0].query["fieldManager"]) == ("application/json-patch+json", "memory-operator")
    assert sent[0].body == [
        {"op": "test", "path": "/metadata/uid", "value": "u-1"},
        {"op": "add", "path": "/status", "value": {"conditions": []}},
    ]


async def test_a_status_that_breaks_the_definition_is_refused_for_good(connect: Connect) -> None:
    kube, _ = await connect(failure(422, 'MemoryIndex.memory-index.dev "mem" is invalid: status.rows: Invalid value'))
    with pytest.raises(KubeError, match="is invalid") as caught:
        await kube.replace_status({"metadata": READ}, {"rows": 1})
    assert (caught.value.code, caught.value.refused) == (422, True)


def live_object(kind: str, **metadata: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": "mem-embedder", "namespace": "team", "uid": "u-live", **metadata}}


OWNER = {"apiVersion": "memory-index.dev/v1alpha1", "kind": "MemoryIndex", "name": "mem", "controller": True}
FOREIGN: dict[str, dict[str, Any]] = {
    "nobody's": {},
    "another controller's": {"ownerReferences": [{**OWNER, "kind": "Application", "uid": "u-9"}]},
    "another index's": {"ownerReferences": [{**OWNER, "name": "other", "uid": "u-9"}]},
    "owned, not controlled": {"ownerReferences": [{**OWNER, "controller": False, "uid": "u-1"}]},
    "with our labels alone": {"labels": {"app.kubernetes.io/managed-by": "memory-operator"}},
}


async def holding(connect: Connect, live: dict[str, Any] | None) -> tuple[Kube, list[Sent]]:
    """Connect to a server that holds one object or none."""
    found = Answer(200, live) if live else failure(404, "not found")
    return await connect(lambda sent: Answer(200, {"metadata": {}}) if sent.method == "PATCH" else found)


def patches(sent: list[Sent]) -> int:
    return sum(one.method == "PATCH" for one in sent)


@pytest.mark.finding("D17")
@pytest.mark.finding("H5")
@pytest.mark.finding("L10")
@pytest.mark.parametrize("kind", ["Service", "Deployment", "NetworkPolicy", "Job"])
@pytest.mark.parametrize("theirs", FOREIGN.values(), ids=FOREIGN)
async def test_an_object_that_is_not_ours_is_never_written(connect: Connect, kind: str, theirs: dict[str, Any]) -> None:
    kube, sent = await holding(connect, live_object(kind, **theirs))
    with pytest.raises(NameTakenError) as caught:
        await kube.apply(live_object(kind, ownerReferences=[{**OWNER, "uid": "u-1"}]))
    assert patches(sent) == 0
    assert caught.value.reason is Reason.NAME_TAKEN
    assert caught.value.refused
    assert f"{kind} team/mem-embedder" in caught.value.text


@pytest.mark.parametrize("live", [None, live_object("Service", ownerReferences=[{**OWNER, "uid": "u-1"}])])
async def test_an_object_of_ours_is_written(connect: Connect, live: dict[str, Any] | None) -> None:
    kube, sent = await holding(connect, live)
    await kube.apply(live_object("Service", ownerReferences=[{**OWNER, "uid": "u-1"}]))
    assert patches(sent) == 1


@pytest.mark.finding("security L3")
async def test_a_write_of_an_object_that_was_read_names_its_uid(connect: Connect) -> None:
    """The API server refuses the write if another object has the name by now."""
    ours = {"ownerReferences": [{**OWNER, "uid": "u-1"}]}
    kube, sent = await holding(connect, live_object("Service", **ours))
    await kube.apply({"kind": "Service", "metadata": {"name": "mem-embedder", "namespace": "team", **ours}})
    assert [one.body["metadata"]["uid"] for one in sent if one.method == "PATCH"] == ["u-live"]
    await kube.patch("Job", "team", "mem-backfill", "u-9", {"spec": {"suspend": True}})
    assert (sent[-1].content_type, sent[-1].body) == (
        "application/merge-patch+json", {"metadata": {"uid": "u-9"}, "spec": {"suspend": True}},
    )  # fmt: skip


@pytest.mark.finding("security L3")
async def test_a_write_of_an_object_that_was_not_found_can_only_create_it(connect: Connect) -> None:
    """No object has this resourceVersion, so the API server refuses the write if one was made in between."""
    kube, sent = await holding(connect, None)
    await kube.apply({"kind": "Service", "metadata": {"name": "mem-embedder", "namespace": "team"}})
    assert [one.body["metadata"]["resourceVersion"] for one in sent if one.method == "PATCH"] == ["1"]


async def test_a_child_of_the_former_object_of_our_name_is_waited_for(connect: Connect) -> None:
    kube, sent = await holding(connect, live_object("Service", ownerReferences=[{**OWNER, "uid": "u-0"}]))
    with pytest.raises(NameTakenError) as caught:
        await kube.apply(live_object("Service", ownerReferences=[{**OWNER, "uid": "u-1"}]))
    assert not caught.value.refused, "Kubernetes is about to delete it"
    assert patches(sent) == 0


def database_manifest(world: World, **metadata: Any) -> dict[str, Any]:
    manifest = cnpg.new_database_object(world.index(), cluster=("dbaas", "pg"), owner="owner", version=None)
    return {**manifest, "metadata": {**manifest["metadata"], **metadata}}


@pytest.mark.finding("D17")
@pytest.mark.finding("H5")
@pytest.mark.parametrize(
    "theirs",
    [
        {"labels": {"app.kubernetes.io/managed-by": "memory-operator"}},
        {"labels": {"memory-index.dev/name": "mem", "memory-index.dev/namespace": "other"}},
        {"annotations": {"memory-index.dev/uid": "u-9"}},
        {"annotations": {}},
    ],
    ids=["ours by one label", "another namespace's", "another uid", "our labels without a uid"],
)
async def test_a_database_object_of_another_index_is_never_written(
    connect: Connect, world: World, theirs: dict[str, Any]
) -> None:
    kube, sent = await holding(connect, database_manifest(world, **theirs))
    with pytest.raises(NameTakenError):
        await kube.apply(database_manifest(world))
    assert patches(sent) == 0


async def test_a_database_object_of_ours_is_written(connect: Connect, world: World) -> None:
    kube, sent = await holding(connect, database_manifest(world, uid="u-live"))
    await kube.apply(database_manifest(world))
    assert patches(sent) == 1


@pytest.mark.finding("D17")
@pytest.mark.finding("H5")
@pytest.mark.finding("L10")
def test_names_of_database_objects_do_not_collide(world: World) -> None:
    def name(namespace: str, index: str) -> str:
        return cnpg.object_name(world.index().model_copy(update={"namespace": namespace, "name": index}))

    assert name("a-b", "c") != name("a", "b-c")


READ = {
    "namespace": "team", "name": "mem", "uid": "u-1", "resourceVersion": "7",
    "finalizers": ["backup.example/keep", FINALIZER],
}  # fmt: skip


@pytest.mark.parametrize(
    ("finalizers", "present", "written"),
    [
        (READ["finalizers"], False, ["backup.example/keep"]),
        ([FINALIZER], False, []),
        (["backup.example/keep"], True, ["backup.example/keep", FINALIZER]),
        (None, True, [FINALIZER]),
    ],
)
async def test_the_finalizer_is_written_by_a_patch_of_the_list_that_was_read_whoever_owns_it(
    connect: Connect, finalizers: list[str] | None, present: bool, written: list[str]
) -> None:
    """Server-side apply would remove nothing that a restored backup or `kubectl create` brought."""
    kube, sent = await connect(Answer(200, {"metadata": {}}))
    await kube.set_finalizer({"metadata": {**READ, "finalizers": finalizers}}, present=present)
    assert sent[0].content_type == "application/json-patch+json"
    assert sent[0].body == [
        {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "add", "path": "/metadata/finalizers", "value": written},
    ]


async def test_an_object_that_has_changed_meanwhile_is_read_again_before_its_finalizers_are_written(
    connect: Connect,
) -> None:
    kube, _ = await connect(failure(422, "the server rejected our request due to an error in our request"))
    with pytest.raises(KubeError) as caught:
        await kube.set_finalizer({"metadata": READ}, present=False)
    assert (caught.value.code, caught.value.refused) == (409, False)


async def test_an_object_that_has_vanished_needs_no_finalizer_removed(connect: Connect) -> None:
    kube, _ = await connect(failure(404, "not found"))
    await kube.set_finalizer({"metadata": READ}, present=False)


@pytest.mark.parametrize(
    ("answer", "terminating"),
    [
        (Answer(200, {"metadata": {"name": "team"}}), False),
        (Answer(200, {"metadata": {"name": "team", "deletionTimestamp": "2026-01-01T00:00:00Z"}}), True),
        (failure(404, "not found"), True),
        (failure(403, "forbidden"), False),
    ],
)
async def test_a_namespace_is_terminating_where_that_can_be_read(
    connect: Connect, answer: Answer, terminating: bool
) -> None:
    kube, sent = await connect(answer)
    assert await kube.is_terminating("team") is terminating
    assert sent[0].path == "/api/v1/namespaces/team"


def test_an_error_passes_through_a_context_manager_unchanged() -> None:
    @contextmanager
    def transparent() -> Iterator[None]:
        yield

    error = KubeError("listing Pod in team", 500, "etcd is slow")
    with pytest.raises(KubeError) as caught, transparent():
        raise error
    assert caught.value is error
