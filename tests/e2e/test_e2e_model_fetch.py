"""A model file that is fetched by URL: a Job brings it to a volume, and the pod that serves it may call nobody."""

import json
from typing import Any

import pytest

from devcluster.demo.environment import MODEL
from memory_embedder.models.profiles import PROFILES
from memory_operator.resources.common import Images, container_security, pod_security
from tests.support.cluster.memories import rows
from tests.support.cluster.platform import Platform
from tests.support.cluster.tenants import Tenant
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster
SERVER, PORT = "files", 8000
MEMORIES = rows(12)


def serve_model_files(tenant: Tenant, image: str) -> None:
    """Serve the model files of the embedder's image by plain HTTP inside the tenant's namespace."""
    labels = {"app": SERVER}
    command = ["python3", "-m", "http.server", str(PORT), "--directory", "/models"]
    container = {"name": SERVER, "image": image, "imagePullPolicy": "IfNotPresent", "command": command}
    spec = {
        "securityContext": pod_security(Images()),
        "containers": [{**container, "securityContext": container_security()}],
    }
    meta = {"name": SERVER, "namespace": tenant.name, "labels": labels}
    ports = [{"port": 80, "targetPort": PORT}]
    tenant.cluster.apply(
        {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec},
        {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"selector": labels, "ports": ports}},
    )
    tenant.kubectl("wait", "--for=condition=Ready", f"pod/{SERVER}", "--timeout=240s")


def source(tenant: Tenant, sha256: str) -> dict[str, Any]:
    url = f"http://{SERVER}.{tenant.name}.svc/{MODEL}.gguf"
    return {"http": {"url": url, "sha256": sha256, "volume": {"size": "1Gi"}}}


def claims(tenant: Tenant) -> list[str]:
    found = tenant.kubectl("get", "persistentvolumeclaims", "-o", "jsonpath={.items[*].metadata.name}")
    return found.split()


@pytest.mark.finding("M5")
def test_a_file_is_fetched_and_served_once_its_digest_is_right(platform: Platform, tenant: Tenant) -> None:
    serve_model_files(tenant, platform.embedder_image)
    tenant.store(MEMORIES)
    tenant.apply_index(embedding__source=source(tenant, "0" * 64))
    condition = tenant.wait_condition("EmbedderReady", "ModelNotVerified")
    assert "digest" in condition.message
    assert "mi-embedder" not in tenant.kubectl("get", "deployments", "-o", "name")
    (wrong,) = claims(tenant)

    tenant.apply_index(embedding__source=source(tenant, (PROFILES[MODEL].file_digest or "").removeprefix("sha256:")))
    tenant.wait_ready()
    assert tenant.embedded() == tenant.counts().expected
    (left,) = eventually(lambda: claims(tenant), lambda found: wrong not in found, what="one claim")
    pod = json.loads(tenant.kubectl("get", "pods", "-l", "app.kubernetes.io/component=embedder", "-o", "json"))
    (volume,) = (item for item in pod["items"][0]["spec"]["volumes"] if item["name"] == "model")
    assert volume["persistentVolumeClaim"] == {"claimName": left, "readOnly": True}
    policy = json.loads(tenant.kubectl("get", "networkpolicy", "mi-embedder", "-o", "json"))
    assert "Egress" in policy["spec"]["policyTypes"]
    assert not policy["spec"].get("egress")
