"""An external embedder whose certificate an authority of the user's own has signed: operator and workers verify it."""

import base64
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import test_utils, web

from devcluster.node.pki import Authority
from memory_operator.api.embedder import CaSecret
from memory_operator.api.reasons import Reason
from memory_operator.clients.embedder import EmbedderProbe
from memory_operator.clients.http import NoAnswerError, opened
from memory_operator.controller.observe import Observer
from memory_operator.controller.secret_reader import SecretReader
from memory_operator.reconcile.active_embedder import permitted_embedder
from memory_operator.reconcile.facts import Problem
from memory_operator.resources import workers
from memory_operator.resources.worker_pods import configured_embedder, mounted_secrets
from tests.unit.memory_operator.conftest import CERTIFICATES, World, anywhere
from tests.unit.memory_operator.test_operator_swap_external import FORMER, OTHER, change, settled

CA = CaSecret(name="team-ca", key="root.pem")
NEXT_CA = CaSecret(name="next-ca")
DIRECTORY = "/var/run/memory-index-embedder-ca"


def external(url: str, ca: CaSecret) -> dict[str, Any]:
    return {"external": {"url": url, "caSecret": {"name": ca.name, "key": ca.key}}}


def files(pod: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """The Secret and the key of each file of certificates that a pod sees."""
    (volume,) = [volume for volume in pod["volumes"] if "projected" in volume]
    (mount,) = [one for one in pod["containers"][0]["volumeMounts"] if one["name"] == volume["name"]]
    assert (mount["mountPath"], mount["readOnly"]) == (DIRECTORY, True)
    sources = [source["secret"] for source in volume["projected"]["sources"]]
    return {source["items"][0]["path"]: (source["name"], source["items"][0]["key"]) for source in sources}


def environment(pod: dict[str, Any]) -> dict[str, str]:
    return {item["name"]: item["value"] for item in pod["containers"][0]["env"]}


def test_workers_see_the_authority_and_their_deployment_tells_which_it_is(world: World) -> None:
    index = world.index(embedder=external("https://x.ml.svc", CA))
    sync = workers.sync_deployment(index, world.images, replicas=1)
    pod = sync["spec"]["template"]["spec"]
    assert files(pod) == {"0.crt": ("team-ca", "root.pem")}
    assert environment(pod)["MEMORY_EMBEDDER_CA_FILE"] == DIRECTORY
    found = configured_embedder(sync)
    assert found is not None
    assert found.authority == CA
    assert mounted_secrets(sync["spec"]["template"]) == {"dsn", "team-ca"}


@pytest.mark.parametrize("component", ["migrate", "index"])
def test_a_worker_that_sends_no_text_mounts_no_authority(world: World, component: str) -> None:
    """Its pod starts even if the Secret does not exist."""
    index = world.index(embedder=external("https://x.ml.svc", CA))
    make = {"migrate": workers.migrate_job, "index": workers.index_job}[component]
    pod = make(index, world.images, 0)["spec"]["template"]["spec"]
    assert not [volume for volume in pod["volumes"] if "projected" in volume]
    assert "MEMORY_EMBEDDER_CA_FILE" not in environment(pod)


def test_during_a_swap_the_authorities_of_both_embedders_are_known(world: World) -> None:
    """The sync worker keeps that of the active model's embedder, and neither is taken for a withdrawn Secret."""
    former, following = FORMER.replace("http:", "https:"), OTHER.replace("http:", "https:")
    cluster = settled(world, external(former, CA), former)
    change(cluster, external(following, NEXT_CA))
    cluster.reconcile()
    observed = cluster.observe()
    served_by = permitted_embedder(cluster.index, observed, world.permitted)
    job = workers.swap_job(cluster.index, world.images, 0, active="m", dimensions=384, served_by=served_by)
    found = files(job["spec"]["template"]["spec"])
    assert found == {"0.crt": ("team-ca", "root.pem"), "1.crt": ("next-ca", "ca.crt")}
    sync = cluster.children["Deployment", "mem-sync"]
    assert files(sync["spec"]["template"]["spec"]) == {"0.crt": ("team-ca", "root.pem")}
    assert cluster.replicas("mem-sync") == 1


class Kube:
    """Knows one Secret."""

    def __init__(self, value: str | None) -> None:
        self.value = value

    async def get(self, _kind: str, namespace: str, name: str) -> Any:
        assert namespace == "team"
        if self.value is None or name != "team-ca":
            return None
        return {"metadata": {"name": name}, "data": {"root.pem": base64.b64encode(self.value.encode()).decode()}}


@pytest.mark.parametrize(
    ("value", "reason"),
    [(None, Reason.SECRET_MISSING), ("no certificate", Reason.SECRET_INVALID), (CERTIFICATES, None)],
)
async def test_the_operator_asks_with_the_authority_or_says_what_is_wrong_with_it(
    world: World, value: str | None, reason: Reason | None
) -> None:
    asked: list[str] = []

    async def send(*_arguments: Any, certificates: str = "", **_options: Any) -> Any:
        asked.append(certificates)
        raise NoAnswerError("nobody is there")

    index = world.index(embedder=external("https://x.ml.svc", CA))
    observer = Observer(Kube(value), None, EmbedderProbe(send, world.permitted, anywhere))  # type: ignore[arg-type]
    found = await observer._external(index, SecretReader(observer._kube, "team"))
    assert isinstance(found, Problem)
    assert found.reason is (reason or Reason.EXTERNAL_UNREACHABLE)
    assert asked == ([] if reason else [CERTIFICATES])
    assert reason is None or "spec.embedder.external.caSecret" in found.remedy


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[tuple[str, Authority]]:
    """A server behind TLS, and the authority that has signed its certificate."""
    authority = Authority()
    pair = authority.server("localhost")
    (tmp_path / "tls.crt").write_bytes(pair.certificate)
    (tmp_path / "tls.key").write_bytes(pair.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text="here")

    application = web.Application()
    application.router.add_get("/", answer)
    server = test_utils.TestServer(application, scheme="https")
    await server.start_server(ssl=context)
    yield f"https://localhost:{server.port}/", authority
    await server.close()


async def test_a_server_is_verified_by_the_authority_that_the_object_names(server: tuple[str, Authority]) -> None:
    """And by no other; the name in the URL must be that of the certificate."""
    url, authority = server
    own = authority.certificate.decode()
    async with opened(lambda _address: True) as client:
        for wrong in ("", Authority().certificate.decode()):
            with pytest.raises(NoAnswerError):
                await client.send(url, {}, ["127.0.0.1"], certificates=wrong)
        assert (await client.send(url, {}, ["127.0.0.1"], certificates=own)).body == b"here"
        with pytest.raises(NoAnswerError):
            await client.send(url.replace("localhost", "elsewhere"), {}, ["127.0.0.1"], certificates=own)
