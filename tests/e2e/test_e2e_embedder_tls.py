"""An embedder that speaks HTTPS: workers embed through it, callers verify it, and nobody else's authority will do."""

import json
from collections.abc import Iterator

import pytest

from devcluster.node.pki import Authority, Pair
from tests.e2e.conftest import open_tenant
from tests.support.cluster.memories import rows
from tests.support.cluster.platform import Platform
from tests.support.cluster.tenants import INDEX, Tenant

pytestmark = pytest.mark.cluster
MEMORIES = rows(12)
SECRET = "embedder-tls"
FOLDER = "/tmp/{name}"  # noqa: S108  (an emptyDir of the pod)


def tls_secret(pair: Pair, authority: bytes) -> dict[str, object]:
    """Return a Secret as cert-manager writes it."""
    data = {"tls.crt": pair.certificate.decode(), "tls.key": pair.key.decode(), "ca.crt": authority.decode()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": SECRET},
        "stringData": data,
    }


@pytest.fixture(scope="module")
def served(platform: Platform, request: pytest.FixtureRequest) -> Iterator[Tenant]:
    """A tenant whose index is Ready with an embedder that speaks HTTPS; its toolbox has two authorities in folders."""
    for tenant in open_tenant(platform, request, "tls"):
        tenant.store(MEMORIES)
        ours, other = Authority(), Authority()
        pair = ours.server(f"{INDEX}-embedder.{tenant.name}.svc")
        tenant.kubectl("apply", "-f", "-", input=json.dumps(tls_secret(pair, ours.certificate)))
        tenant.start_toolbox()
        tenant.apply_index(embedder__tls={"secretName": SECRET})
        tenant.wait_ready()
        for name, authority in (("ours", ours), ("other", other)):
            script = f"mkdir {FOLDER.format(name=name)} && cat > {FOLDER.format(name=name)}/ca.crt"
            tenant.kubectl("exec", "-i", "toolbox", "--", "sh", "-c", script, input=authority.certificate.decode())
        yield tenant


def test_every_row_is_embedded_through_it_and_its_address_says_https(served: Tenant) -> None:
    status = served.index()["status"]
    assert status["embedder"]["url"] == f"https://{INDEX}-embedder.{served.name}.svc:8080"
    public = sum(not one.is_sensitive for one in MEMORIES)
    assert status["rows"]["embedded"] == public
    assert served.embedded() == public


@pytest.mark.parametrize(("authority", "degraded"), [("ours", False), ("other", True)])
def test_a_recall_is_by_meaning_only_where_the_caller_has_the_right_authority(
    served: Tenant, authority: str, degraded: bool
) -> None:
    settings = {
        "MEMORY_EMBEDDER_URL": f"https://{INDEX}-embedder.{served.name}.svc:8080",
        "MEMORY_EMBEDDER_CA_FILE": FOLDER.format(name=authority),
    }
    answer = served.memory("recall", MEMORIES[0].content, "--everyone", settings=settings)
    assert bool(answer["degraded"]) is degraded
    assert answer["memories"]
