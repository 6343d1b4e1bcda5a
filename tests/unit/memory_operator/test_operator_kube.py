"""The Kubernetes client distinguishes what is missing from what failed, by an API server's own answers."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest
from lightkube import AsyncClient, KubeConfig
from lightkube.config import models

from memory_operator.api.reasons import Reason
from memory_operator.api.spec import FINALIZER
from memory_operator.clients.kube import KindMissingError, Kube, KubeError, NameTakenError
from memory_operator.resources import cnpg
from tests.unit.memory_operator.conftest import World


def answering(answer: httpx2.Response | httpx2.HTTPError) -> Kube:
    def handle(_: httpx2.Request) -> httpx2.Response:
        if isinstance(answer, httpx2.HTTPError):
            raise answer
        return answer

    return connected(handle)


def connected(handle: Callable[[httpx2.Request], httpx2.Response]) -> Kube:
    config = KubeConfig.from_one(cluster=models.Cluster(server="http://api.test"), user=models.User(token="none"))
    client = AsyncClient(config, field_manager="test", trust_env=False, transport=httpx2.MockTransport(handle))
    return Kube(client, lambda *_: None)


def status(code: int, message: str) -> httpx2.Response:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}
    return httpx2.Response(code, json=body)


async def test_a_group_that_is_not_installed_is_a_missing_kind() -> None:
    kube = answering(httpx2.Response(404, text="404 page not found\n"))
    with pytest.raises(KindMissingError):
        await kube.list("Database", "dbaas")


async def test_a_kind_that_its_group_lacks_is_a_missing_kind() -> None:
    kube = answering(status(404, "the server could not find the requested resource"))
    with pytest.raises(KindMissingError):
        await kube.list("Database", "dbaas")


async def test_an_object_that_does_not_exist_is_none() -> None:
    assert await answering(status(404, 'clusters "pg" not found')).get("Cluster", "dbaas", "pg") is None


async def test_an_answer_without_a_status_object_is_reported_by_its_http_code() -> None:
    kube = answering(httpx2.Response(502, text="bad gateway"))
    with pytest.raises(KubeError, match=r"listing Pod in team: .*HTTP 502"):
        await kube.list("Pod", "team")


async def test_an_unreachable_server_is_reported_without_its_address() -> None:
    kube = answering(httpx2.ConnectError("http://secret-host"))
    with pytest.raises(KubeError, match="cannot be reached") as caught:
        await kube.get("Secret", "team", "dsn")
    assert "secret-host" not in str(caught.value)


async def test_only_a_write_that_cannot_succeed_later_counts_as_refused() -> None:
    manifest = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "team"}}
    refusing, busying = Server(None), Server(None)
    refusing.answer, busying.answer = status(403, "forbidden"), status(429, "too many requests")
    with pytest.raises(KubeError) as refused:
        await refusing.kube.apply(manifest)
    with pytest.raises(KubeError) as busy:
        await busying.kube.apply(manifest)
    assert (refused.value.refused, busy.value.refused) == (True, False)


def live_object(kind: str, **metadata: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": "mem-embedder", "namespace": "team", **metadata}}


OWNER = {"apiVersion": "memory-index.dev/v1alpha1", "kind": "MemoryIndex", "name": "mem", "controller": True}
FOREIGN: dict[str, dict[str, Any]] = {
    "nobody's": {},
    "another controller's": {"ownerReferences": [{**OWNER, "kind": "Application", "uid": "u-9"}]},
    "another index's": {"ownerReferences": [{**OWNER, "name": "other", "uid": "u-9"}]},
    "owned, not controlled": {"ownerReferences": [{**OWNER, "controller": False, "uid": "u-1"}]},
    "with our labels alone": {"labels": {"app.kubernetes.io/managed-by": "memory-operator"}},
}


class Server:
    """An API server that holds one object and counts the patches."""

    def __init__(self, live: dict[str, Any] | None) -> None:
        self.live = live
        self.answer = httpx2.Response(200, json={"metadata": {}})
        self.patches = 0
        config = KubeConfig.from_one(cluster=models.Cluster(server="http://api.test"), user=models.User(token="none"))
        transport = httpx2.MockTransport(self.handle)
        client = AsyncClient(config, field_manager="test", trust_env=False, transport=transport)
        self.kube = Kube(client, lambda *_: None)

    def handle(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "PATCH":
            self.patches += 1
            return self.answer
        return httpx2.Response(200, json=self.live) if self.live else status(404, "not found")


@pytest.mark.parametrize("kind", ["Service", "Deployment", "NetworkPolicy", "Job"])
@pytest.mark.parametrize("theirs", FOREIGN.values(), ids=FOREIGN)
async def test_an_object_that_is_not_ours_is_never_written(kind: str, theirs: dict[str, Any]) -> None:
    server = Server(live_object(kind, **theirs))
    with pytest.raises(NameTakenError) as caught:
        await server.kube.apply(live_object(kind, ownerReferences=[{**OWNER, "uid": "u-1"}]))
    assert server.patches == 0
    assert caught.value.reason is Reason.NAME_TAKEN
    assert caught.value.refused
    assert f"{kind} team/mem-embedder" in caught.value.text


@pytest.mark.parametrize("live", [None, live_object("Service", ownerReferences=[{**OWNER, "uid": "u-1"}])])
async def test_an_object_of_ours_is_written(live: dict[str, Any] | None) -> None:
    server = Server(live)
    await server.kube.apply(live_object("Service", ownerReferences=[{**OWNER, "uid": "u-1"}]))
    assert server.patches == 1


async def test_a_child_of_the_former_object_of_our_name_is_waited_for() -> None:
    server = Server(live_object("Service", ownerReferences=[{**OWNER, "uid": "u-0"}]))
    with pytest.raises(NameTakenError) as caught:
        await server.kube.apply(live_object("Service", ownerReferences=[{**OWNER, "uid": "u-1"}]))
    assert not caught.value.refused, "Kubernetes is about to delete it"
    assert server.patches == 0


def database_manifest(world: World, **metadata: Any) -> dict[str, Any]:
    manifest = cnpg.new_database_object(world.index(), cluster=("dbaas", "pg"), owner="owner", version=None)
    return {**manifest, "metadata": {**manifest["metadata"], **metadata}}


@pytest.mark.parametrize(
    "theirs",
    [
        {"labels": {"app.kubernetes.io/managed-by": "memory-operator"}},
        {"labels": {"memory-index.dev/name": "mem", "memory-index.dev/namespace": "other"}},
        {"annotations": {"memory-index.dev/uid": "u-9"}},
    ],
)
async def test_a_database_object_of_another_index_is_never_written(world: World, theirs: dict[str, Any]) -> None:
    server = Server(database_manifest(world, **theirs))
    with pytest.raises(NameTakenError):
        await server.kube.apply(database_manifest(world))
    assert server.patches == 0


async def test_a_database_object_of_an_earlier_release_is_adopted(world: World) -> None:
    """It has both labels and no uid yet."""
    server = Server(database_manifest(world, annotations={}))
    await server.kube.apply(database_manifest(world))
    assert server.patches == 1


def test_names_of_database_objects_do_not_collide(world: World) -> None:
    def name(namespace: str, index: str) -> str:
        return cnpg.object_name(world.index().model_copy(update={"namespace": namespace, "name": index}))

    assert name("a-b", "c") != name("a", "b-c")


def recording(answer: httpx2.Response) -> tuple[Kube, list[httpx2.Request]]:
    requests: list[httpx2.Request] = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        requests.append(request)
        return answer

    return connected(handle), requests


READ = {
    "namespace": "team", "name": "mem", "resourceVersion": "7",
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
    finalizers: list[str] | None, present: bool, written: list[str]
) -> None:
    """Server-side apply would remove nothing that a restored backup or `kubectl create` brought."""
    kube, requests = recording(httpx2.Response(200, json={"metadata": {}}))
    await kube.set_finalizer({"metadata": {**READ, "finalizers": finalizers}}, present=present)
    assert requests[0].headers["content-type"] == "application/json-patch+json"
    assert json.loads(requests[0].content) == [
        {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "add", "path": "/metadata/finalizers", "value": written},
    ]


async def test_an_object_that_has_changed_meanwhile_is_read_again_before_its_finalizers_are_written() -> None:
    kube, _ = recording(status(422, "the server rejected our request due to an error in our request"))
    with pytest.raises(KubeError) as caught:
        await kube.set_finalizer({"metadata": READ}, present=False)
    assert (caught.value.code, caught.value.refused) == (409, False)


async def test_an_object_that_has_vanished_needs_no_finalizer_removed() -> None:
    kube, _ = recording(status(404, "not found"))
    await kube.set_finalizer({"metadata": READ}, present=False)


@pytest.mark.parametrize(
    ("answer", "terminating"),
    [
        (httpx2.Response(200, json={"metadata": {"name": "team"}}), False),
        (httpx2.Response(200, json={"metadata": {"name": "team", "deletionTimestamp": "2026-01-01T00:00:00Z"}}), True),
        (status(404, "not found"), True),
        (status(403, "forbidden"), False),
    ],
)
async def test_a_namespace_is_terminating_where_that_can_be_read(answer: httpx2.Response, terminating: bool) -> None:
    kube, requests = recording(answer)
    assert await kube.is_terminating("team") is terminating
    assert requests[0].url.path == "/api/v1/namespaces/team"


def test_an_error_passes_through_a_context_manager_unchanged() -> None:
    @contextmanager
    def transparent() -> Iterator[None]:
        yield

    error = KubeError("listing Pod in team", 500, "etcd is slow")
    with pytest.raises(KubeError) as caught, transparent():
        raise error
    assert caught.value is error
