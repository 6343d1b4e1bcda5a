"""What policy engines (Pod Security, Kyverno, Gatekeeper, kube-linter, Polaris) demand, of all pods that are ours.

The operator's pod is rendered from the chart. The pods of a MemoryIndex are those of the golden files, which
`test_operator_resources.py` compares with what the operator builds.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.yaml_text import read_documents, read_yaml
from tests.unit.chart.conftest import CHART, Objects, Render

GOLDEN = Path(__file__).parents[1] / "memory_operator" / "golden"
OPERATOR = "memory-operator"
Workload = dict[str, Any]

GOLDEN_WORKLOADS = [
    body
    for path in sorted(GOLDEN.glob("*.yaml"))
    for loaded in [read_yaml(path.read_text())]
    for body in (loaded if isinstance(loaded, list) else [loaded])
    if body["kind"] in {"Deployment", "Job"}
]


@pytest.fixture(params=[OPERATOR, *range(len(GOLDEN_WORKLOADS))])
def workload(request: pytest.FixtureRequest, render: Render) -> Workload:
    """The operator's Deployment, or a Deployment or Job of a MemoryIndex."""
    if request.param != OPERATOR:
        return dict(GOLDEN_WORKLOADS[request.param])
    (deployment,) = (body for body in render({}) if body["kind"] == "Deployment")
    return deployment


def pod(workload: Workload) -> dict[str, Any]:
    return dict(workload["spec"]["template"]["spec"])


def containers(workload: Workload) -> Iterator[dict[str, Any]]:
    yield from pod(workload).get("initContainers", ())
    yield from pod(workload)["containers"]


def test_the_goldens_hold_every_kind_of_pod() -> None:
    """A new worker cannot escape these tests."""
    components = {body["metadata"]["labels"]["app.kubernetes.io/component"] for body in GOLDEN_WORKLOADS}
    assert components >= {"embedder", "migrate", "backfill", "index", "sync", "swap", "graph", "fetch", "uninstall"}


def test_no_process_runs_as_root_or_under_a_low_number(workload: Workload) -> None:
    """A user number above 10,000 is no user of the node's."""
    security = pod(workload)["securityContext"]
    assert security["runAsNonRoot"] is True
    assert min(security["runAsUser"], security["runAsGroup"], security["fsGroup"]) > 10_000
    assert all("runAsUser" not in container["securityContext"] for container in containers(workload))


@pytest.mark.parametrize(
    ("adapt", "api_versions", "fixed"),
    [
        ("auto", (), True),
        ("auto", ("security.openshift.io/v1",), False),
        ("force", (), False),
        ("disabled", ("security.openshift.io/v1",), True),
    ],
)
def test_users_and_groups_are_left_to_a_cluster_that_assigns_them(
    helm: Path, adapt: str, api_versions: tuple[str, ...], fixed: bool
) -> None:
    """In the operator's pod and, by its setting, in all pods that it starts."""
    flags = [
        f"--set=compatibility.openshift.adaptSecurityContext={adapt}",
        *(f"--api-versions={v}" for v in api_versions),
    ]
    done = subprocess.run([helm, "template", CHART, *flags], capture_output=True, text=True, check=True)
    (deployment,) = (body for body in read_documents(done.stdout) if body["kind"] == "Deployment")
    security = pod(deployment)["securityContext"]
    assert [field in security for field in ("runAsUser", "runAsGroup", "fsGroup")] == [fixed] * 3
    assert security["runAsNonRoot"] is True
    environment = {entry["name"]: entry.get("value") for entry in pod(deployment)["containers"][0]["env"]}
    assert environment["MEMORY_OPERATOR_IMAGES_USER"] == ("fixed" if fixed else "assigned")


def test_every_container_has_no_rights_and_a_read_only_root(workload: Workload) -> None:
    """The runtime's seccomp profile applies, no capability is left, and none can be regained."""
    assert pod(workload)["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in containers(workload):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_nothing_of_the_node_is_shared(workload: Workload) -> None:
    """No namespace, path or port of the node, and no list of the namespace's Services in the environment."""
    spec = pod(workload)
    assert not {"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"} & spec.keys()
    assert not any("hostPath" in volume for volume in spec["volumes"])
    assert not any("hostPort" in port for container in containers(workload) for port in container.get("ports", ()))
    assert spec["enableServiceLinks"] is False


def test_only_the_operator_has_a_token_of_the_api_server(workload: Workload) -> None:
    """No other process of ours talks to it."""
    spec = pod(workload)
    assert spec["automountServiceAccountToken"] is (workload["metadata"]["name"] == OPERATOR)
    assert ("serviceAccountName" in spec) is spec["automountServiceAccountToken"]


def test_no_secret_is_in_an_environment(workload: Workload) -> None:
    """Secrets are mounted as files, which `kubectl describe` and crash reports do not show."""
    for container in containers(workload):
        assert "envFrom" not in container
        assert not any("secretKeyRef" in entry.get("valueFrom", {}) for entry in container.get("env", ()))
    modes = [volume["secret"]["defaultMode"] for volume in pod(workload)["volumes"] if "secret" in volume]
    assert all(mode == 0o440 for mode in modes)


def test_scratch_space_is_bounded(workload: Workload) -> None:
    """An emptyDir without a limit can fill the node's disk."""
    assert all(volume["emptyDir"].get("sizeLimit") for volume in pod(workload)["volumes"] if "emptyDir" in volume)


def test_every_container_states_its_processors_and_memory(workload: Workload) -> None:
    """But where the author of the MemoryIndex has stated resources, which pass untouched."""
    for container in containers(workload):
        resources = container["resources"]
        if "nvidia.com/gpu" not in resources.get("limits", {}):
            assert {"cpu", "memory"} <= resources["requests"].keys()
            assert "memory" in resources["limits"]


def test_images_are_named_with_a_tag_that_is_not_latest(workload: Workload) -> None:
    """And with a pull policy."""
    for container in containers(workload):
        assert container["image"].rpartition(":")[2] not in {"latest", "", container["image"]}
        assert container["imagePullPolicy"] == "IfNotPresent"


def test_ports_are_named_and_state_no_surprise(workload: Workload) -> None:
    """Probes and monitors refer to a port by its name."""
    for container in containers(workload):
        named = {port["name"] for port in container.get("ports", ())}
        probes = [probe for kind, probe in container.items() if kind.endswith("Probe")]
        assert {probe["httpGet"]["port"] for probe in probes} <= named


def test_what_runs_for_ever_is_probed(workload: Workload) -> None:
    """The sync worker has no liveness probe: the operator itself says whether it gets on (`SyncNotProgressing`)."""
    if workload["kind"] == "Deployment":
        (container,) = pod(workload)["containers"]
        component = workload["metadata"]["labels"]["app.kubernetes.io/component"]
        assert "readinessProbe" in container
        assert ("livenessProbe" in container) is (component != "sync")


def test_what_ends_has_an_end(workload: Workload) -> None:
    """A Job is bounded in time and in attempts, and is removed when it is over.

    Those of a swap and of the migrations stay, because what they refused would be tried again every hour otherwise.
    They say so by a time of their own, since policies add one where there is none.
    """
    if workload["kind"] == "Job":
        assert workload["spec"]["activeDeadlineSeconds"] > 0
        assert workload["spec"]["backoffLimit"] >= 0
        kept = workload["metadata"]["labels"]["app.kubernetes.io/component"] in {"swap", "migrate"}
        assert workload["spec"]["ttlSecondsAfterFinished"] == (2**31 - 1 if kept else 3600)


def test_kubectl_finds_our_container_beside_an_injected_one(workload: Workload) -> None:
    """The runbooks run `memory` in the pod of the sync worker and name no container."""
    (container,) = pod(workload)["containers"]
    annotations = workload["spec"]["template"]["metadata"]["annotations"]
    assert annotations["kubectl.kubernetes.io/default-container"] == container["name"]


def test_workload_and_pods_carry_the_recommended_labels(workload: Workload) -> None:
    """`kubectl get -l app.kubernetes.io/part-of=memory-index` finds all that is ours but what names are for."""
    wanted = {f"app.kubernetes.io/{label}" for label in ("name", "instance", "component", "managed-by")}
    for labels in (workload["metadata"]["labels"], workload["spec"]["template"]["metadata"]["labels"]):
        assert wanted <= labels.keys()


def of_kind(objects: Objects, kind: str) -> Objects:
    return [body for body in objects if body["kind"] == kind]


def test_an_account_gives_no_token_unasked(render: Render) -> None:
    """A pod that names the operator's account gets no token by default."""
    (account,) = of_kind(render({}), "ServiceAccount")
    assert account["automountServiceAccountToken"] is False


def test_several_replicas_are_spread_and_evicted_one_by_one(render: Render) -> None:
    """And a single one is neither, so that it never keeps a node from being drained."""
    several, one = render({"operator": {"replicas": 2}}), render({})
    (deployment,) = of_kind(several, "Deployment")
    (budget,) = of_kind(several, "PodDisruptionBudget")
    own = deployment["spec"]["selector"]["matchLabels"]
    (spread,) = deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert (spread["topologyKey"], spread["labelSelector"]["matchLabels"]) == ("kubernetes.io/hostname", own)
    assert budget["spec"]["maxUnavailable"] == 1
    assert budget["spec"]["selector"]["matchLabels"] == own
    assert "topologySpreadConstraints" not in of_kind(one, "Deployment")[0]["spec"]["template"]["spec"]
    assert of_kind(one, "PodDisruptionBudget") == []


def test_a_spread_of_ones_own_keeps_its_selector(render: Render) -> None:
    """And the operator's pods are counted where it has none."""
    zones = {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}
    chosen = {**zones, "labelSelector": {"matchLabels": {"a": "b"}}}
    (deployment,) = of_kind(render({"operator": {"topologySpreadConstraints": [zones, chosen]}}), "Deployment")
    first, second = deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert first == {**zones, "labelSelector": deployment["spec"]["selector"]}
    assert second == chosen


def test_a_budget_can_be_left_out(render: Render) -> None:
    """For clusters in which somebody else writes them."""
    values = {"operator": {"replicas": 2, "podDisruptionBudget": {"enabled": False}}}
    assert of_kind(render(values), "PodDisruptionBudget") == []
