"""cert-manager issues the embedder's certificate, as docs/operator.md says, and renews it twice under recalls."""

import asyncio
import base64
import json
import random
import re
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import yaml

from devcluster.building.binaries import Binaries
from devcluster.building.cert_manager import CERT_MANAGER
from devcluster.demo import objects
from devcluster.node.pki import Authority
from devcluster.settings import REPOSITORY
from tests.support.cluster.memories import rows, sensitive
from tests.support.cluster.tenants import INDEX, KEY, SECRET, Tenant
from tests.support.invented import question
from tests.support.recalling.loop import RecallLoop
from tests.support.recalling.pods import spawn_recalls
from tests.support.waiting import eventually
from tests.world.parts import Figures, World

_NAMESPACE = "cert-manager"
_ISSUER = "cluster-ca"  # the name of the documented Certificate's issuer
_CERTIFICATE = f"{INDEX}-embedder"
_CERTIFICATE_SECRET = f"{_CERTIFICATE}-tls"
_AUTHORITIES = "/var/run/embedder-ca"
_ASKING = Path(__file__).with_name("asking.py").read_text(encoding="utf-8")
_SHOWN = "import ssl, sys; print(ssl.get_server_certificate((sys.argv[1], 8080)))"
_ROWS = rows(60)
_ROTATIONS = 2
_ANSWERS = 10  # of each client, after each rotation


def prove_tls(world: World) -> Figures:
    """Return what was found of the embedder's TLS."""
    tenant = Tenant(world.platform.postgres, "tls", world.platform.image)
    with _cert_manager(world):
        _issue_authority(world)
        tenant.create()
        tenant.store(_ROWS)
        tenant.cluster.apply(_documented_certificate(tenant))
        tenant.kubectl("wait", "--for=condition=Ready", f"certificate/{_CERTIFICATE}", "--timeout=120s")
        tenant.apply_index(embedder__tls={"secretName": _CERTIFICATE_SECRET})
        tenant.wait_ready()
        tenant.wait_embedded(len(_ROWS) - sensitive(_ROWS))
        url = str(tenant.index()["status"]["embedder"]["url"])
        assert url == f"https://{_host(tenant)}:8080", url
        tenant.cluster.apply(_toolbox(tenant, url))
        tenant.kubectl("wait", "--for=condition=Ready", f"pod/{objects.TOOLBOX}", "--timeout=120s")
        figures = asyncio.run(_use(tenant))
        tenant.remove()
        world.cluster.kubectl("delete", "clusterissuers", "--all")
        world.cluster.kubectl("delete", "namespace", _NAMESPACE, "--wait=false")
    assert figures == {**figures, "verified": True, "wrong_ca_refused": True, "recall_errors": 0}, figures
    return figures


@contextmanager
def _cert_manager(world: World) -> Iterator[None]:
    """Run cert-manager's controllers beside the cluster's own for the block."""
    binaries = Binaries(world.settings, (CERT_MANAGER,))
    binaries.ensure(world.reporter)
    for definition in CERT_MANAGER.files:
        file = binaries.directory(CERT_MANAGER.name) / definition
        world.cluster.kubectl("apply", "--server-side", f"--filename={file}")
    world.cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=120s")
    command = [str(binaries.path("cert-manager-controller")), f"--cluster-resource-namespace={_NAMESPACE}"]
    log = world.scratch / "cert-manager.log"
    with (
        log.open("w", encoding="utf-8") as output,
        world.cluster.popen_in_network(command, stdout=output, stderr=subprocess.STDOUT) as process,
    ):
        try:
            yield
            assert process.poll() is None, f"cert-manager ended by itself: {log.read_text(encoding='utf-8')[-2000:]}"
        finally:
            process.kill()


def _issue_authority(world: World) -> None:
    """Have cert-manager issue an authority by itself, and wait until its issuer is ready."""
    authority = {
        "isCA": True,
        "commonName": _ISSUER,
        "secretName": _ISSUER,
        "issuerRef": {"kind": "ClusterIssuer", "name": "self-signed"},
    }
    world.cluster.apply(
        objects.namespace(_NAMESPACE),
        _cert_manager_object("ClusterIssuer", {"name": "self-signed"}, {"selfSigned": {}}),
        _cert_manager_object("Certificate", {"name": _ISSUER, "namespace": _NAMESPACE}, authority),
        _cert_manager_object("ClusterIssuer", {"name": _ISSUER}, {"ca": {"secretName": _ISSUER}}),
    )
    world.cluster.kubectl("wait", "--for=condition=Ready", f"clusterissuer/{_ISSUER}", "--timeout=120s")


def _cert_manager_object(kind: str, metadata: dict[str, str], spec: objects.Object) -> objects.Object:
    return {"apiVersion": "cert-manager.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


def _documented_certificate(tenant: Tenant) -> objects.Object:
    """Return the Certificate of docs/operator.md, for the names of the tenant."""
    page = (REPOSITORY / "docs" / "operator.md").read_text(encoding="utf-8")
    (text,) = (block for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "kind: Certificate" in block)
    named = text.replace("claude-memory-embedder", _CERTIFICATE).replace("claude-memory", tenant.name)
    return dict(yaml.safe_load(named))


def _toolbox(tenant: Tenant, url: str) -> objects.Object:
    """Return the toolbox with the authority's certificates, as docs/operator.md has callers mount them."""
    pod = objects.toolbox(tenant.name, image=tenant.image, secret=SECRET, key=KEY, embedder_url=url)
    (container,) = pod["spec"]["containers"]
    container["env"].append({"name": "MEMORY_EMBEDDER_CA_FILE", "value": _AUTHORITIES})
    container["volumeMounts"].append({"name": "embedder-ca", "mountPath": _AUTHORITIES, "readOnly": True})
    pod["spec"]["volumes"].append({"name": "embedder-ca", "configMap": {"name": f"{INDEX}-embedder-ca"}})
    return pod


async def _use(tenant: Tenant) -> Figures:
    """Recall while the certificate is renewed, and return what was found."""
    generator = random.Random(3)  # noqa: S311  (the same questions in every run)
    questions = [question(one.content, generator) for one in _ROWS if not one.is_sensitive][:20]
    rotations, verified = 0, []
    async with RecallLoop("present", partial(spawn_recalls, tenant), questions) as loop:
        await loop.wait_until_complete()
        for _ in range(_ROTATIONS):
            await asyncio.to_thread(_renew, tenant)
            rotations += 1
            verified.append(await asyncio.to_thread(_answer, tenant, _issued(tenant, "ca.crt")))
            await loop.wait_for_answers(_ANSWERS)
        faults = loop.faults()
    assert faults == [], faults
    refused = _answer(tenant, Authority().certificate.decode())
    assert "certificate that is not accepted" in refused, refused
    return {
        "verified": set(verified) == {"embedded"},
        "wrong_ca_refused": refused.startswith("EmbedderUnavailable"),
        "rotations_under_load": rotations,
        "recall_errors": len(faults),
    }


def _renew(tenant: Tenant) -> None:
    """Have cert-manager renew the certificate, as `cmctl renew` does, and wait until the embedder shows the new one."""
    former = _issued(tenant, "tls.crt")
    renewal = {
        "type": "Issuing",
        "status": "True",
        "reason": "ManuallyTriggered",
        "message": "Certificate re-issuance manually triggered",
        "lastTransitionTime": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
    }
    patch = json.dumps([{"op": "add", "path": "/status/conditions/-", "value": renewal}])
    tenant.kubectl("patch", "certificate", _CERTIFICATE, "--subresource=status", "--type=json", f"--patch={patch}")
    renewed = eventually(
        lambda: _issued(tenant, "tls.crt"), lambda found: found != former, what="another certificate in the Secret"
    )
    shown = ("exec", objects.TOOLBOX, "--", "python", "-c", _SHOWN, _host(tenant))
    eventually(
        lambda: ssl.PEM_cert_to_DER_cert(tenant.kubectl(*shown)),
        lambda found: found == ssl.PEM_cert_to_DER_cert(renewed),
        what="the embedder shows the renewed certificate",
        poll=2.0,
    )


def _answer(tenant: Tenant, authorities: str) -> str:
    """Return what comes of a question over a new connection that is verified by these certificates."""
    return tenant.kubectl("exec", "-i", objects.TOOLBOX, "--", "python", "-c", _ASKING, input=authorities).strip()


def _issued(tenant: Tenant, key: str) -> str:
    secret = tenant.cluster.read(f"/api/v1/namespaces/{tenant.name}/secrets/{_CERTIFICATE_SECRET}")
    return base64.b64decode(secret["data"][key]).decode()


def _host(tenant: Tenant) -> str:
    return f"{_CERTIFICATE}.{tenant.name}.svc"
