"""The API server accepts what helm renders, and a restricted namespace with quota and limits accepts all our pods."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from devcluster.cluster import Cluster
from devcluster.errors import CommandError
from devcluster.install import CHART, OPERATOR_NAMESPACE
from devcluster.retrying import until
from tests.delivery.definitions import PROMETHEUS
from tests.delivery.installed import definitions
from tests.unit.chart.test_pod_policies import GOLDEN_WORKLOADS

COMBINATIONS = sorted((CHART / "ci").glob("*-values.yaml"))
NAMED_NAMESPACES = (OPERATOR_NAMESPACE, "claude-memory", "notes", "dbaas")
RESTRICTED = "restricted"
ACCOUNT = "memory-operator"
QUOTA = {
    "pods": "50",
    "persistentvolumeclaims": "10",
    "requests.cpu": "8",
    "requests.memory": "16Gi",
    "limits.cpu": "16",
    "limits.memory": "32Gi",
    "requests.nvidia.com/gpu": "2",
}
LIMITS = {
    "type": "Container",
    "min": {"cpu": "5m", "memory": "16Mi"},
    "max": {"cpu": "4", "memory": "4Gi"},
    "defaultRequest": {"cpu": "50m", "memory": "128Mi"},
    "default": {"cpu": "1", "memory": "512Mi"},
}


def rendered(cluster: Cluster, *arguments: str) -> str:
    """Render the chart as a user who pipes it into kubectl."""
    return cluster.helm("template", "memory-index", str(CHART), f"--namespace={OPERATOR_NAMESPACE}", *arguments)


@pytest.fixture(scope="module")
def prepared(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with the namespaces that the combinations name, and the Prometheus operator's definitions."""
    before = set(cluster.kubectl("get", "namespaces", "-o", "name").split())
    cluster.apply(*({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in NAMED_NAMESPACES))
    with definitions(cluster, PROMETHEUS):
        yield cluster
    for name in NAMED_NAMESPACES:
        if f"namespace/{name}" not in before:
            cluster.kubectl("delete", "namespace", name, "--wait", "--timeout=240s")


def test_the_api_server_accepts_every_documented_combination(prepared: Cluster, figures: dict[str, Any]) -> None:
    """As a dry run, with unknown and doubled fields refused: every object of every combination would be created."""
    accepted = 0
    for file in COMBINATIONS:
        objects = rendered(prepared, "--values", str(file))
        answer = prepared.kubectl(
            "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", input=objects
        )
        assert len(answer.splitlines()) == len([body for body in yaml.safe_load_all(objects) if body]), file.name
        accepted += 1
    figures["dry_run_combinations"] = accepted


def test_the_dry_run_refuses_what_the_api_server_does_not_know(prepared: Cluster) -> None:
    """Otherwise the test before this one would prove nothing."""
    objects = rendered(prepared, "--set=monitoring.scrape=PodMonitor").replace("podMetricsEndpoints:", "endpoints:")
    with pytest.raises(CommandError, match="endpoints"):
        prepared.kubectl("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", input=objects)


@pytest.fixture(scope="module")
def restricted(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with a namespace that enforces the restricted standard, a quota, and limits of each container."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    made: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": RESTRICTED, "labels": labels}},
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": named("quota"), "spec": {"hard": QUOTA}},
        {"apiVersion": "v1", "kind": "LimitRange", "metadata": named("limits"), "spec": {"limits": [LIMITS]}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": named(ACCOUNT)},
    ]
    shared: list[dict[str, Any]] = [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "gpu-workload"},
            "value": 1000,
        },
        {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "nvidia"},
    ]
    cluster.apply(*made, *shared)
    quota = ("-n", RESTRICTED, "get", "resourcequota", "quota")
    until("the quota is counted", lambda: "hard" in cluster.kubectl_json(*quota).get("status", {}), seconds=240)
    account = ("-n", RESTRICTED, "get", "serviceaccount", "default", "--ignore-not-found", "-o", "name")
    until("the default service account exists", lambda: bool(cluster.kubectl(*account)), seconds=240)
    yield cluster
    cluster.kubectl("delete", "namespace", RESTRICTED, "--wait", "--timeout=240s")
    for kind, name in (("priorityclass", "gpu-workload"), ("runtimeclass", "nvidia")):
        cluster.kubectl("delete", kind, name)


def named(name: str) -> dict[str, str]:
    return {"name": name, "namespace": RESTRICTED}


def pod_of(workload: dict[str, Any]) -> dict[str, Any]:
    """Return the pod that a Deployment's or Job's controller would create from its template."""
    template = workload["spec"]["template"]
    metadata = {**template["metadata"], "generateName": f"{workload['metadata']['name']}-", "namespace": RESTRICTED}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def create(cluster: Cluster, pod: dict[str, Any]) -> dict[str, Any]:
    """Have the API server admit a pod, and return the pod as it would be stored."""
    answer = cluster.kubectl("create", "--dry-run=server", "-f", "-", "-o", "json", input=json.dumps(pod))
    return dict(json.loads(answer))


def operator_workload(cluster: Cluster) -> dict[str, Any]:
    (deployment,) = (b for b in yaml.safe_load_all(rendered(cluster)) if b and b["kind"] == "Deployment")
    return dict(deployment)


def test_a_restricted_namespace_with_quota_and_limits_accepts_every_pod(
    restricted: Cluster, figures: dict[str, Any]
) -> None:
    """The operator, embedders and sync worker, and all Jobs, each with a limit of processors from the LimitRange."""
    workloads = [operator_workload(restricted), *GOLDEN_WORKLOADS]
    for workload in workloads:
        admitted = create(restricted, pod_of(workload))
        for container in admitted["spec"]["containers"]:
            assert {"cpu", "memory"} <= container["resources"]["limits"].keys(), workload["metadata"]["name"]
    figures["restricted_pods_accepted"] = len(workloads)


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ({"securityContext": {"runAsUser": 0}}, "violates PodSecurity"),
        ({"resources": {"requests": {"memory": "5Gi"}, "limits": {"memory": "5Gi"}}}, "maximum memory usage"),
        ({"resources": {"limits": {"nvidia.com/gpu": 3}}}, "exceeded quota"),
    ],
)
def test_the_namespace_refuses_what_it_should(restricted: Cluster, change: dict[str, Any], refusal: str) -> None:
    """Otherwise the test before this one would prove nothing."""
    pod = pod_of(operator_workload(restricted))
    pod["spec"]["containers"][0].update(change)
    with pytest.raises(CommandError, match=refusal):
        create(restricted, pod)
