"""Memory text stays where it belongs: in the database and, for rows that may be embedded, in the embedder's memory.

A word that exists nowhere else is put into an ordinary row, a sensitive row, a row that is too long, and a question.
Afterwards it is searched for wherever an operator of a cluster could come across it.
"""

import json
from collections.abc import Iterator

import pytest

from devcluster.install import OPERATOR_NAMESPACE
from tests.e2e.conftest import open_tenant
from tests.support.cluster.memories import Row, rows
from tests.support.cluster.platform import Platform
from tests.support.cluster.tenants import Tenant

pytestmark = pytest.mark.cluster
CANARY = "zugzwangblume"
FILLER = "and so it went on and on " * 300


@pytest.fixture(scope="module")
def marked(platform: Platform, request: pytest.FixtureRequest) -> Iterator[Tenant]:
    """An index over marked rows that was backfilled, queried, and truncated one row."""
    for tenant in open_tenant(platform, request, "privacy"):
        tenant.store(
            [
                *rows(20),
                Row(501, f"{CANARY} in an ordinary row"),
                Row(502, f"{CANARY} in a secret row", is_sensitive=True),
                Row(503, f"{CANARY} {FILLER}"),
            ]
        )
        tenant.start_toolbox()
        tenant.apply_index()
        tenant.wait_ready()
        answer = tenant.memory("recall", f"where is the {CANARY}", "--everyone", "--mode", "hybrid")
        found = [row["id"] for row in answer["memories"]]
        assert 501 in found, "the marked row was never read, so its absence elsewhere would prove nothing"
        yield tenant


@pytest.mark.promise("no-text-or-secret-in-outputs")
def test_no_log_contains_memory_text(marked: Tenant) -> None:
    for namespace in (marked.name, OPERATOR_NAMESPACE):
        pods = marked.cluster.kubectl("-n", namespace, "get", "pods", "-o", "name").split()
        assert pods
        for pod in pods:
            log = marked.cluster.kubectl("-n", namespace, "logs", pod, "--all-containers")
            assert CANARY not in log, pod


@pytest.mark.promise("no-text-or-secret-in-outputs")
def test_no_event_status_or_pod_field_contains_memory_text(marked: Tenant) -> None:
    for kinds in ("events", "memoryindexes", "pods,jobs,deployments", "databases.postgresql.cnpg.io"):
        assert CANARY not in marked.cluster.kubectl("get", kinds, "-A", "-o", "json"), kinds


@pytest.mark.promise("no-text-or-secret-in-outputs")
def test_no_metrics_page_contains_memory_text(marked: Tenant) -> None:
    pages = 0
    for pod in json.loads(marked.cluster.kubectl("get", "pods", "-A", "-o", "json"))["items"]:
        space, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        if space not in {marked.name, OPERATOR_NAMESPACE} or pod["status"]["phase"] != "Running":
            continue
        ports = [port for one in pod["spec"]["containers"] for port in one.get("ports", ())]
        for number in {port["containerPort"] for port in ports if port.get("name") == "metrics"}:
            raw = f"/api/v1/namespaces/{space}/pods/{name}:{number}/proxy/metrics"
            assert CANARY not in marked.cluster.kubectl("get", "--raw", raw), name
            pages += 1
    assert pages >= 2, "embedder and operator have a metrics page"
