"""The manifest for KEDA that docs/scaling ships names what the operator and the embedder really have."""

from typing import Any

from memory_operator.api.embedder import COMPONENT
from memory_operator.api.spec import parse
from memory_operator.resources.common import selector
from memory_operator.resources.embedder import PROBE_PORT
from tests.support.yaml_text import read_documents, read_yaml
from tests.unit.repository.test_layout import ROOT

SHIPPED = read_documents((ROOT / "docs" / "scaling" / "keda.yaml").read_text())


def of_kind(kind: str) -> dict[str, Any]:
    (body,) = (body for body in SHIPPED if body["kind"] == kind)
    return dict(body)


def test_the_service_finds_the_embedder_pods_and_their_metrics() -> None:
    """A Service with other labels or another port would have KEDA see an empty queue for ever."""
    manifest = read_yaml((ROOT / "examples" / "claude-memory.yaml").read_text())
    manifest["metadata"] |= {"uid": "u", "creationTimestamp": "2026-11-28T00:00:00Z"}
    index = parse(manifest)
    service = of_kind("Service")
    assert service["spec"]["selector"] == selector(index, COMPONENT)
    assert [port["port"] for port in service["spec"]["ports"]] == [PROBE_PORT]
    (metrics,) = (entry for entry in of_kind("ScaledObject")["spec"]["triggers"] if entry["type"] == "metrics-api")
    name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
    assert metrics["metadata"]["url"] == f"http://{name}.{namespace}.svc:{PROBE_PORT}/metrics"


def test_the_metric_is_one_of_the_embedder() -> None:
    """The embedder's metrics are listed in the reference, which is made from its code."""
    (metrics,) = (entry for entry in of_kind("ScaledObject")["spec"]["triggers"] if entry["type"] == "metrics-api")
    name, _, _ = metrics["metadata"]["valueLocation"].partition("{")
    assert f"| `{name}` | gauge | `lane` |" in (ROOT / "docs" / "reference" / "metrics.md").read_text()


def test_the_deployment_is_the_embedder_of_the_index() -> None:
    """KEDA scales the Deployment whose number of pods the operator leaves alone under `scaling: External`."""
    index = read_yaml((ROOT / "examples" / "claude-memory.yaml").read_text())
    assert of_kind("ScaledObject")["spec"]["scaleTargetRef"]["name"] == f"{index['metadata']['name']}-{COMPONENT}"
