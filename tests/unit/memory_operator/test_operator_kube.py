"""The Kubernetes client distinguishes what is missing from what failed, by an API server's own answers."""

from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import pytest
from lightkube import AsyncClient, KubeConfig
from lightkube.config import models

from memory_operator.clients.kube import KindMissingError, Kube, KubeError


def answering(answer: httpx2.Response | httpx2.HTTPError) -> Kube:
    def handle(_: httpx2.Request) -> httpx2.Response:
        if isinstance(answer, httpx2.HTTPError):
            raise answer
        return answer

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
    with pytest.raises(KubeError) as refused:
        await answering(status(403, "forbidden")).apply(manifest)
    with pytest.raises(KubeError) as busy:
        await answering(status(429, "too many requests")).apply(manifest)
    assert (refused.value.refused, busy.value.refused) == (True, False)


def test_an_error_passes_through_a_context_manager_unchanged() -> None:
    @contextmanager
    def transparent() -> Iterator[None]:
        yield

    error = KubeError("listing Pod in team", 500, "etcd is slow")
    with pytest.raises(KubeError) as caught, transparent():
        raise error
    assert caught.value is error
