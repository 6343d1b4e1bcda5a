"""`spec.embedder.tls`: the embedder serves a certificate of a Secret, and everybody who calls it verifies it."""

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from devcluster.node.pki import Authority
from memory_embedder.http.certificate import CertificateFault
from memory_embedder.settings import EmbedderSettings
from memory_operator.api.spec import FINALIZER, parse
from memory_operator.clients.certificates import serving_certificate
from memory_operator.clients.embedder import parse_metrics
from memory_operator.clients.http import Answer, NoAnswerError, NotVerifiedError, opened
from memory_operator.clients.kube import KubeError
from memory_operator.reconcile import embedder_tls
from memory_operator.reconcile.embedder_tls import names_host
from memory_operator.reconcile.facts import EmbedderLoad, Problem, ServingCertificate
from memory_operator.reconcile.plan import Apply
from memory_operator.resources import workers
from memory_operator.resources.embedder import embedder_url
from memory_operator.resources.worker_pods import configured_embedder, mounted_secrets
from memory_recall.status import RowCounts
from tests.unit.memory_operator.conftest import FULL, NEXT_MODEL, START, Cluster, World, condition
from tests.unit.memory_operator.test_operator_controller import Bench, bench
from tests.unit.memory_operator.test_operator_embedder_authority import environment, server
from tests.unit.memory_operator.test_operator_shared_embedder import CARD, owner

__all__ = ["bench", "server"]  # fixtures

TLS = {"embedder": {"tls": {"secretName": "serving"}}}
HOST = "mem-embedder.team.svc"
NEXT_HOST = "mem-embedder-next.team.svc"
URL = f"https://{HOST}:8080"
SHARED_URL = "https://shared-embedder.ai.svc:8080"
VALID = ServingCertificate("team/serving", (HOST, NEXT_HOST), START - timedelta(days=1), START + timedelta(days=90))
SIGNER = Authority(START)


def encoded(**files: bytes) -> dict[str, str]:
    return {key: base64.b64encode(value).decode() for key, value in files.items()}


def secret(host: str = HOST, signer: Authority = SIGNER, *without: str, **more: bytes) -> dict[str, Any]:
    """A Secret as cert-manager writes it."""
    pair = signer.server(host)
    files = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": signer.certificate, **more}
    return {"metadata": {"name": "serving"}, "data": encoded(**{k: v for k, v in files.items() if k not in without})}


def settled(world: World, **facts: Any) -> Cluster:
    """An object that has come to rest with a certificate in its Secret."""
    cluster = Cluster(world, world.manifest(**TLS))
    world.now = START
    real = world.observed
    world.observed = lambda **given: real(**{"certificate": VALID, **facts, **given})  # type: ignore[method-assign]
    cluster.until_ready()
    cluster.reconcile()
    return cluster


def test_the_pod_mounts_certificate_and_key_alone_and_the_status_says_https(world: World) -> None:
    """The key of the authority, should it be in the Secret, and other files of it are not mounted."""
    cluster = settled(world)
    pod = cluster.children["Deployment", "mem-embedder"]["spec"]["template"]["spec"]
    (volume,) = [one["secret"] for one in pod["volumes"] if one["name"] == "tls"]
    (mount,) = [one for one in pod["containers"][0]["volumeMounts"] if one["name"] == "tls"]
    assert (volume["secretName"], mount["readOnly"]) == ("serving", True)
    assert [item["key"] for item in volume["items"]] == ["tls.crt", "tls.key"]
    command = pod["containers"][0]["command"]
    for option, file in (("--tls-certificate-file", "tls.crt"), ("--tls-key-file", "tls.key")):
        assert command[command.index(option) + 1] == f"{mount['mountPath']}/{file}"
        assert option.removeprefix("--").replace("-", "_") in EmbedderSettings.model_fields
    assert {probe["httpGet"].get("scheme", "HTTP") for probe in (
        pod["containers"][0][name] for name in ("startupProbe", "livenessProbe", "readinessProbe")
    )} == {"HTTP"}  # fmt: skip
    assert cluster.manifest["status"]["embedder"]["url"] == URL
    assert environment(cluster.children["Deployment", "mem-sync"]["spec"]["template"]["spec"])[
        "MEMORY_EMBEDDER_URL"
    ] == URL  # fmt: skip


BROKEN: dict[str, tuple[dict[str, Any] | None, str, str]] = {
    "missing": (None, "SecretMissing", "spec.embedder.tls.secretName"),
    "no certificate": (secret(HOST, SIGNER, "tls.crt"), "SecretKeyMissing", "key tls.crt"),
    "no key": (secret(HOST, SIGNER, "tls.key"), "SecretKeyMissing", "key tls.key"),
    "unparsable": (secret(**{"tls.crt": b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"}),
                   "SecretInvalid", "holds no certificate in PEM form"),
    "no text": (secret(**{"tls.crt": b"\xff\xfe"}), "SecretInvalid", "is not text"),
    "expired": (secret(HOST, Authority(START - timedelta(days=400))), "CertificateInvalid", "has expired on 2025-11"),
    "of the future": (secret(HOST, Authority(START + timedelta(days=2))), "CertificateInvalid", "valid only from"),
    "of another host": (secret("elsewhere.team.svc"), "CertificateInvalid", f"Add {HOST} to its DNS names"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_certificate_that_cannot_be_served_is_said_before_a_pod_is_started_with_it(world: World, name: str) -> None:
    """The message names the Secret, and a pod that serves goes on with what it has."""
    found, reason, says = BROKEN[name]
    fact = serving_certificate(found, "team/serving")
    index = world.index(**TLS)
    plan = world.decide(index, certificate=fact)
    said = condition(plan, "EmbedderReady")
    assert (said["status"], said["reason"]) == ("False", reason)
    assert says in said["message"]
    assert "team/serving" in said["message"]
    applied = [one.manifest for one in plan.actions if isinstance(one, Apply)]
    assert ("Deployment", "mem-embedder") not in [(one["kind"], one["metadata"]["name"]) for one in applied]
    cluster = settled(world)
    before = cluster.children["Deployment", "mem-embedder"]
    cluster.manifest["spec"]["embedder"]["resources"] = {"limits": {"memory": "3Gi"}}
    world.observed = lambda **given: World.observed(world, **{**given, "certificate": fact})  # type: ignore[method-assign]
    cluster.reconcile()
    after = cluster.children["Deployment", "mem-embedder"]
    assert after["spec"]["template"] == before["spec"]["template"]
    assert cluster.condition("EmbedderReady")["reason"] == reason


@pytest.mark.parametrize("fault", CertificateFault)
def test_what_a_pod_reports_of_its_certificate_is_the_condition(world: World, fault: CertificateFault) -> None:
    """The embedder alone sees whether the key belongs to the certificate; every fault that it knows has its words."""
    metrics = "".join(
        f'memory_embedder_certificate_refused{{fault="{one}"}} {float(one is fault)}\n' for one in CertificateFault
    )
    load = parse_metrics("mem-embedder-x", metrics)
    cluster = settled(world)
    observed = {**vars(cluster.observe()), "loads": (load,)}
    said = condition(world.decide(cluster.index, **observed), "EmbedderReady")
    assert (said["status"], said["reason"]) == ("False", "CertificateInvalid")
    assert f"Pod mem-embedder-x does not use Secret team/serving: {embedder_tls._FAULTS[fault]}." in said["message"]
    assert condition(world.decide(cluster.index, **vars(cluster.observe())), "EmbedderReady")["status"] == "True"


def test_a_pod_cannot_put_words_of_its_own_into_the_condition(world: World) -> None:
    cluster = settled(world)
    observed = {**vars(cluster.observe()), "loads": (EmbedderLoad("x", certificate_fault="call 555"),)}
    assert condition(world.decide(cluster.index, **observed), "EmbedderReady")["status"] == "True"


@pytest.mark.parametrize(
    ("names", "named"),
    [
        ((HOST,), True),
        (("*.team.svc",), True),
        ((), False),
        (("*.svc",), False),
        (("*",), False),
        (("mem-embedder.other.svc", "*.embedder.team.svc"), False),
    ],
)
def test_a_wildcard_stands_for_one_label(names: tuple[str, ...], *, named: bool) -> None:
    assert names_host(names, HOST) is named


def test_a_swap_names_the_host_that_the_certificate_lacks_before_it_starts_the_next_embedder(world: World) -> None:
    cluster = settled(world)
    world.observed = lambda **given: World.observed(  # type: ignore[method-assign]
        world, **{**given, "certificate": replace(VALID, hosts=(HOST,))}
    )
    cluster.manifest["spec"]["embedding"] = {"model": NEXT_MODEL.name, "dimensions": 384}
    cluster.reconcile()
    said = cluster.condition("ModelActive")
    assert said["reason"] == "CertificateInvalid"
    assert f"Add {NEXT_HOST} to its DNS names" in said["message"]
    assert ("Deployment", "mem-embedder-next") not in cluster.children
    assert cluster.condition("EmbedderReady")["status"] == "True"
    world.observed = lambda **given: World.observed(world, **{**given, "certificate": VALID})  # type: ignore[method-assign]
    cluster.reconcile()
    assert ("Deployment", "mem-embedder-next") in cluster.children
    following = cluster.children["Deployment", "mem-embedder-next"]["spec"]["template"]["spec"]
    assert "--tls-key-file" in following["containers"][0]["command"]


def test_tls_that_is_switched_on_makes_no_stranger_of_the_objects_own_embedder(world: World) -> None:
    """Its former URL, which the sync worker still calls, is no external embedder that needs a permission."""
    cluster = settled(world)
    del cluster.manifest["spec"]["embedder"]["tls"]
    for _ in range(3):
        plan = cluster.reconcile()
    assert cluster.manifest["status"]["embedder"]["url"] == URL.replace("https", "http")
    assert cluster.replicas("mem-sync") == 1
    assert condition(plan, "Ready")["status"] == "True"


class Serving:
    """Answers as the embedders of these URLs, and records by which certificates they were verified."""

    def __init__(self, *urls: str) -> None:
        self.urls = urls
        self.verified: list[tuple[str, str]] = []
        self.refuses: Callable[[], NoAnswerError] | None = None

    async def __call__(self, url: str, *_: Any, certificates: str = "", **_options: Any) -> Answer:
        if not url.startswith(self.urls):
            return Answer(503, b"")
        self.verified.append((url, certificates))
        if self.refuses:
            raise self.refuses()
        return Answer(200, json.dumps({"data": [CARD]}).encode())


def use(bench: Bench, serving: Serving) -> None:
    bench.probe._send = serving
    bench.database = replace(FULL, rows=RowCounts(total=100, embedded=90, sensitive=10))


def sync_pod(bench: Bench) -> Any:
    return bench.api.objects["Deployment", "team", "mem-sync"]["spec"]["template"]["spec"]


def authority_file(bench: Bench) -> str:
    """The certificates that the sync worker sees in its folder."""
    pod = sync_pod(bench)
    assert environment(pod)["MEMORY_EMBEDDER_CA_FILE"] == "/var/run/memory-index-embedder-ca"
    (volume,) = [one["projected"] for one in pod["volumes"] if "projected" in one]
    (source,) = [source["configMap"] for source in volume["sources"]]
    data: dict[str, str] = bench.api.objects["ConfigMap", "team", source["name"]]["data"]
    (item,) = source["items"]
    return data[item["key"]]


def put_serving(bench: Bench, found: dict[str, Any], namespace: str = "team") -> None:
    bench.put("Secret", namespace, "serving", found)
    bench.observer.authorities._certificates.clear()


def deployed(bench: Bench) -> None:
    """Let the embedder's Deployment have a ready pod."""
    live = bench.api.objects["Deployment", "team", "mem-embedder"]
    live["metadata"]["generation"] = 1
    live["status"] = {"replicas": 1, "readyReplicas": 1, "updatedReplicas": 1, "observedGeneration": 1}


async def test_operator_and_workers_verify_the_embedder_by_the_authority_of_its_secret(bench: Bench) -> None:
    """Of the Secret, the workers see the certificates alone, and a rotated authority is copied anew."""
    serving = Serving(URL)
    use(bench, serving)
    bench.api.index["spec"]["embedder"] |= TLS["embedder"]
    put_serving(bench, secret())
    await bench.reconcile(2)
    deployed(bench)
    await bench.reconcile(2)
    assert serving.verified[-1] == (f"{URL}/v1/models", SIGNER.certificate.decode())
    assert bench.api.condition("EmbedderReady")["status"] == "True"
    assert authority_file(bench) == SIGNER.certificate.decode()
    assert mounted_secrets(bench.api.objects["Deployment", "team", "mem-sync"]["spec"]["template"]) == {"dsn"}
    following = Authority(START)
    put_serving(bench, secret(signer=following))
    await bench.reconcile(2)
    assert authority_file(bench) == following.certificate.decode()
    bench.api.objects.pop(("Secret", "team", "serving"))
    bench.observer.authorities._certificates.clear()
    pod = sync_pod(bench)
    await bench.reconcile(2)
    assert authority_file(bench) == following.certificate.decode(), "what cannot be read stays as it was copied"
    assert sync_pod(bench) == pod
    assert bench.api.condition("EmbedderReady")["reason"] == "SecretMissing"


async def test_without_an_authority_in_the_secret_the_public_ones_verify_the_embedder(bench: Bench) -> None:
    serving = Serving(URL)
    use(bench, serving)
    bench.api.index["spec"]["embedder"] |= TLS["embedder"]
    put_serving(bench, secret(HOST, SIGNER, "ca.crt"))
    await bench.reconcile(2)
    deployed(bench)
    await bench.reconcile(2)
    assert serving.verified[-1] == (f"{URL}/v1/models", "")
    assert "MEMORY_EMBEDDER_CA_FILE" not in environment(sync_pod(bench))
    assert not [name for kind, _, name in bench.api.objects if kind == "ConfigMap" and "embedder" in name]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (NotVerifiedError("self-signed certificate"), "EmbedderNotVerified"),
        (NoAnswerError("no connection"), "Available"),
    ],
)
async def test_a_certificate_that_callers_do_not_accept_is_the_condition_and_silence_is_not(
    bench: Bench, error: NoAnswerError, reason: str
) -> None:
    """Whether pods serve is known from the pods; an operator outside the cluster reaches no Service."""
    serving = Serving(URL)
    serving.refuses = lambda: error
    use(bench, serving)
    bench.api.index["spec"]["embedder"] |= TLS["embedder"]
    put_serving(bench, secret())
    await bench.reconcile(2)
    deployed(bench)
    await bench.reconcile(1)
    said = bench.api.condition("EmbedderReady")
    assert said["reason"] == reason
    if reason == "EmbedderNotVerified":
        assert "self-signed certificate" in said["message"]
        assert "ca.crt" in said["message"]


async def test_an_authority_that_is_no_certificate_is_said(bench: Bench) -> None:
    use(bench, Serving(URL))
    bench.api.index["spec"]["embedder"] |= TLS["embedder"]
    put_serving(bench, secret(**{"ca.crt": b"none"}))
    await bench.reconcile(2)
    said = bench.api.condition("EmbedderReady")
    assert said["reason"] == "SecretInvalid"
    assert "remove its key ca.crt" in said["message"]


async def test_a_shared_embedder_with_tls_is_called_and_verified_from_the_other_namespace(
    bench: Bench, world: World
) -> None:
    """The certificates of the authority, and nothing else of the owner's Secret, come into the namespace."""
    serving = Serving(SHARED_URL)
    use(bench, serving)
    bench.api.index["spec"]["embedder"] = {"ref": {"name": "shared", "namespace": "ai"}}
    bench.api.objects["MemoryIndex", "ai", "shared"] = owner(world, **TLS)
    put_serving(bench, secret("shared-embedder.ai.svc"), "ai")
    await bench.reconcile(3)
    assert serving.verified[-1] == (f"{SHARED_URL}/v1/models", SIGNER.certificate.decode())
    assert bench.api.condition("EmbedderReady")["status"] == "True"
    assert bench.api.index["status"]["embedder"]["url"] == SHARED_URL
    assert environment(sync_pod(bench))["MEMORY_EMBEDDER_URL"] == SHARED_URL
    assert authority_file(bench) == SIGNER.certificate.decode()
    (copied,) = [one for (kind, _, name), one in bench.api.objects.items() if name == "mem-embedder-ca"]
    assert copied["data"] == {"ai.shared.crt": SIGNER.certificate.decode()}
    seen_by_owner = await bench.observer.observe(parse(owner(world, **TLS)))
    assert seen_by_owner.referring == ("team/mem",)


@pytest.mark.promise("embedder-by-consent")
async def test_without_consent_nothing_of_the_owners_secret_is_read(bench: Bench, world: World) -> None:
    use(bench, Serving(SHARED_URL))
    bench.api.index["spec"]["embedder"] = {"ref": {"name": "shared", "namespace": "ai"}}
    bench.api.objects["MemoryIndex", "ai", "shared"] = owner(world, None, **TLS)
    put_serving(bench, secret("shared-embedder.ai.svc"), "ai")
    real, read = bench.api.get, []

    async def recording(kind: str, namespace: str, name: str) -> Any:
        read.append((kind, namespace, name))
        return await real(kind, namespace, name)

    bench.api.get = recording  # type: ignore[method-assign]
    await bench.reconcile(2)
    assert bench.api.condition("Ready")["reason"] == "ConsentMissing"
    assert ("Secret", "ai", "serving") not in read


async def test_a_swap_away_from_a_shared_embedder_keeps_the_authorities_of_both(bench: Bench, world: World) -> None:
    serving = Serving(SHARED_URL, URL)
    use(bench, serving)
    bench.api.index["spec"]["embedder"] = {"ref": {"name": "shared", "namespace": "ai"}}
    bench.api.objects["MemoryIndex", "ai", "shared"] = owner(world, **TLS)
    put_serving(bench, secret("shared-embedder.ai.svc"), "ai")
    await bench.reconcile(3)
    own = Authority(START)
    put_serving(bench, secret(signer=own))
    bench.api.index["spec"] |= {
        "embedding": {"model": "bge-small-en-v1.5", "dimensions": 384},
        "embedder": {"gpuLayers": 0, **TLS["embedder"]},
    }
    await bench.reconcile(3)
    (copied,) = [one for (_, _, name), one in bench.api.objects.items() if name == "mem-embedder-ca"]
    assert copied["data"] == {
        "ai.shared.crt": SIGNER.certificate.decode(), "team.mem.crt": own.certificate.decode(),
    }  # fmt: skip
    assert authority_file(bench) == SIGNER.certificate.decode(), "the sync worker still calls the shared one"
    assert bench.api.condition("EmbedderReady")["message"].startswith(f"The external embedder at {SHARED_URL} answers")
    assert bench.api.objects["Deployment", "team", "mem-sync"]["spec"]["replicas"] == 1
    index = await bench.observer.resolved(parse(bench.api.index))
    sync = bench.api.objects["Deployment", "team", "mem-sync"]
    job = workers.swap_job(index, world.images, 0, active="m", dimensions=384, served_by=configured_embedder(sync))
    (volume,) = [one["projected"] for one in job["spec"]["template"]["spec"]["volumes"] if "projected" in one]
    assert [source["configMap"]["items"][0] for source in volume["sources"]] == [
        {"key": "ai.shared.crt", "path": "0.crt"}, {"key": "team.mem.crt", "path": "1.crt"},
    ]  # fmt: skip
    assert embedder_url(index) == URL


async def test_why_a_certificate_is_not_accepted_is_told_in_openssls_words(server: tuple[str, Authority]) -> None:
    url, authority = server
    async with opened(lambda _address: True) as client:
        with pytest.raises(NotVerifiedError, match=r"^unable to get local issuer certificate$"):
            await client.send(url, {}, ["127.0.0.1"], certificates=Authority().certificate.decode())
        elsewhere = url.replace("localhost", "elsewhere.svc")
        with pytest.raises(NotVerifiedError, match=r"not valid for 'elsewhere\.svc'"):
            await client.send(elsewhere, {}, ["127.0.0.1"], certificates=authority.certificate.decode())


def test_the_time_of_a_certificate_is_read_as_utc() -> None:
    found = serving_certificate(secret(signer=Authority(datetime(2026, 5, 1, tzinfo=UTC))), "team/serving")
    assert not isinstance(found, Problem)
    assert found.not_after == datetime(2027, 5, 1, tzinfo=UTC)
    assert HOST in found.hosts


async def test_a_deletion_does_not_wait_for_the_secret_of_an_embedder(bench: Bench) -> None:
    bench.api.index["spec"]["embedder"] |= TLS["embedder"]
    put_serving(bench, secret())
    await bench.reconcile(2)
    real = bench.api.get

    async def failing(kind: str, namespace: str, name: str) -> Any:
        if (kind, name) == ("Secret", "serving"):
            raise KubeError("reading Secret team/serving", 500, "broken", refused=False)
        return await real(kind, namespace, name)

    bench.api.get = failing  # type: ignore[method-assign]
    bench.observer.authorities._certificates.clear()
    assert FINALIZER in bench.api.index["metadata"]["finalizers"]
    bench.api.index["metadata"]["deletionTimestamp"] = START.isoformat()
    await bench.reconcile(3)
    assert FINALIZER not in bench.api.index["metadata"]["finalizers"]
