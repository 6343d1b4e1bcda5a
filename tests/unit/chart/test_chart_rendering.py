"""The objects that helm renders from the chart."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from memory_operator.app import METRICS_PORT
from memory_operator.reconcile.authorization.permissions import Permitted
from memory_operator.resources.model_fetch import FetchRoute
from memory_operator.settings import Settings
from tests.support.yaml_text import read_documents, read_yaml
from tests.unit.chart.conftest import CHART, Objects, Render, RenderText, setting_paths

DIGEST = "sha256:" + "b2" * 32


def of_kind(objects: Objects, kind: str) -> Objects:
    """The objects of one kind."""
    return [body for body in objects if body["kind"] == kind]


def pod(objects: Objects) -> dict[str, Any]:
    """The operator's pod template."""
    (deployment,) = of_kind(objects, "Deployment")
    return dict(deployment["spec"]["template"])


def environment(objects: Objects) -> dict[str, str]:
    """The operator's environment."""
    return {entry["name"]: entry.get("value", "") for entry in pod(objects)["spec"]["containers"][0]["env"]}


def test_every_object_carries_the_recommended_labels(everything: Objects) -> None:
    wanted = {"name", "instance", "component", "part-of", "version", "managed-by"}
    for body in everything:
        labels = body["metadata"]["labels"]
        assert {f"app.kubernetes.io/{label}" for label in wanted} <= labels.keys(), body["metadata"]["name"]


def test_common_labels_are_on_every_object(render: Render) -> None:
    assert all(body["metadata"]["labels"]["team"] == "home" for body in render({"commonLabels": {"team": "home"}}))


def test_a_label_or_annotation_of_the_values_takes_the_place_of_ours(render_text: RenderText) -> None:
    """A key that occurs twice is refused by tools that read YAML strictly."""
    part_of, port = "app.kubernetes.io/part-of", "prometheus.io/port"
    ours = {"enabled": True, "labels": {part_of: "monitoring"}}
    scraped = {
        "commonLabels": {part_of: "home"},
        "operator": {"podLabels": {part_of: "pods"}, "podAnnotations": {port: "9091"}},
        "monitoring": {"prometheusRule": ours, "alertsConfigMap": ours, "dashboard": ours},
    }
    monitored = {"monitoring": {"scrape": "PodMonitor", "podMonitor": {"labels": {part_of: "monitoring"}}}}
    objects = strictly_parsed(render_text(scraped))
    labelled = [*of_kind(objects, "ConfigMap"), *of_kind(objects, "PrometheusRule")]
    labelled += of_kind(strictly_parsed(render_text(monitored)), "PodMonitor")
    assert [body["metadata"]["labels"][part_of] for body in labelled] == ["monitoring"] * 5
    (deployment,) = of_kind(objects, "Deployment")
    assert deployment["metadata"]["labels"][part_of] == "home"
    template = deployment["spec"]["template"]["metadata"]
    assert (template["labels"][part_of], template["annotations"][port]) == ("pods", "9091")


class StrictLoader(yaml.SafeLoader):
    """Refuses a mapping in which a key occurs twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        assert len(keys) == len(set(keys)), sorted({key for key in keys if keys.count(key) > 1})
        return super().construct_mapping(node, deep)


def strictly_parsed(text: str) -> Objects:
    """The objects of a YAML text."""
    return [body for body in yaml.load_all(text, StrictLoader) if body]


def test_namespaced_objects_name_their_namespace(everything: Objects) -> None:
    """`helm template | kubectl apply` puts everything where helm would."""
    cluster_wide = ("ClusterRole", "ClusterRoleBinding")
    assert all(body["metadata"].get("namespace") for body in everything if body["kind"] not in cluster_wide)


def test_each_template_makes_one_kind_of_object() -> None:
    for path in (CHART / "templates").glob("*.yaml"):
        kinds = [line for line in path.read_text().splitlines() if line.startswith("kind: ")]
        assert len(kinds) == 1, path.name


def test_only_one_operator_runs_at_a_time(render: Render) -> None:
    (deployment,) = of_kind(render({}), "Deployment")
    assert deployment["metadata"]["name"] == "memory-operator"
    assert deployment["spec"]["replicas"] == 1


@pytest.mark.promise("restricted-pods")
def test_operator_meets_the_restricted_pod_standard(render: Render) -> None:
    spec = pod(render({}))["spec"]
    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"livenessProbe", "readinessProbe", "resources"} <= container.keys()


def test_digest_wins_over_tag(render: Render) -> None:
    repository = "registry.example:5000/memory/operator"
    by_tag = render({"operator": {"image": {"repository": repository, "tag": "1.2"}}})
    by_digest = render({"operator": {"image": {"repository": repository, "tag": "1.2", "digest": DIGEST}}})
    assert pod(by_tag)["spec"]["containers"][0]["image"] == f"{repository}:1.2"
    assert pod(by_digest)["spec"]["containers"][0]["image"] == f"{repository}@{DIGEST}"
    assert environment(by_digest)["MEMORY_OPERATOR_IMAGES_OPERATOR"] == f"{repository}@{DIGEST}"


@pytest.mark.parametrize(
    ("own", "warned"), [((), ("operator", "embedder")), (("operator",), ("embedder",)), (("operator", "embedder"), ())]
)
def test_the_notes_name_each_image_that_no_registry_has(
    helm: Path, own: tuple[str, ...], warned: tuple[str, ...]
) -> None:
    """Who sets one repository and forgets the other learns it before a pod fails to pull its image."""
    values = {name: {"image": {"repository": f"registry.example/{name}"}} for name in own}
    command = [helm, "install", "memory-index", str(CHART), "--dry-run=client", "--values", "-"]
    done = subprocess.run(command, input=yaml.safe_dump(values), capture_output=True, text=True, check=True)
    _, notes = done.stdout.split("NOTES:")
    named = {name for name in ("operator", "embedder") if f"set {name}.image.repository" in notes}
    assert named == set(warned)


def test_images_follow_the_chart_version_by_default(render: Render) -> None:
    version = read_yaml((CHART / "Chart.yaml").read_text())["appVersion"]
    assert environment(render({}))["MEMORY_OPERATOR_IMAGES_EMBEDDER"] == f"localhost/memory-embedder:{version}"


def test_placement_and_pull_settings_reach_the_pod(render: Render) -> None:
    toleration = {"key": "dedicated", "operator": "Exists"}
    values = {
        "imagePullSecrets": [{"name": "registry"}],
        "operator": {
            "priorityClassName": "infra",
            "nodeSelector": {"kubernetes.io/arch": "amd64"},
            "tolerations": [toleration],
            "podAnnotations": {"note": "x"},
        },
    }
    template = pod(render(values))
    assert template["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    assert template["spec"]["priorityClassName"] == "infra"
    assert template["spec"]["nodeSelector"] == {"kubernetes.io/arch": "amd64"}
    assert template["spec"]["tolerations"] == [toleration]
    assert template["metadata"]["annotations"]["note"] == "x"


def test_watched_namespaces_are_passed_to_the_operator(render: Render) -> None:
    assert environment(render({}))["MEMORY_OPERATOR_NAMESPACES"] == ""
    assert environment(render({"watchNamespaces": ["a", "b"]}))["MEMORY_OPERATOR_NAMESPACES"] == "a,b"


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_the_operator_accepts_every_setting_of_the_chart(
    render: Render, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    """No value that the schema of the chart allows stops the operator at its start."""
    values = {
        "watchNamespaces": ["a", "b"],
        "operator": {"logLevel": level, "logFormat": "console", "resyncSeconds": 25},
    }
    for name, value in environment(render(values)).items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert (settings.namespaces, settings.log.level, settings.resync_seconds) == (("a", "b"), level, 25)
    assert settings.images.operator.startswith("localhost/memory-operator:")


def test_the_operator_logs_json_in_a_cluster_and_lines_for_a_person_elsewhere(
    render: Render, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Settings().log.format == "console"
    monkeypatch.setenv("MEMORY_OPERATOR_LOG_FORMAT", environment(render({}))["MEMORY_OPERATOR_LOG_FORMAT"])
    assert Settings().log.format == "json"


@pytest.mark.finding("D19")
def test_replicas_elect_one_by_a_lease_of_the_release(render: Render, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = render({"operator": {"replicas": 2}, "fullnameOverride": "other"})
    (deployment,) = (body for body in objects if body["kind"] == "Deployment")
    assert deployment["spec"]["replicas"] == 2
    rolling = deployment["spec"]["strategy"]["rollingUpdate"]
    assert rolling["maxSurge"] == 1, "a new pod may start beside the old one, which holds the Lease"
    for name, value in environment(objects).items():
        monkeypatch.setenv(name, value)
    assert Settings().lease == "memory-index-system/other"


@pytest.mark.promise("pod-fields-by-permission")
@pytest.mark.finding("M6")
def test_nothing_is_permitted_to_authors_by_default(render: Render, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORY_OPERATOR_PERMITTED", environment(render({}))["MEMORY_OPERATOR_PERMITTED"])
    assert Settings().permitted == Permitted()


def test_what_the_values_permit_reaches_the_operator(render: Render, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        "imagePrefixes": ["registry.example/team/"],
        "priorityClasses": ["gpu-workload"],
        "runtimeClasses": ["nvidia"],
        "podAnnotationPrefixes": ["prometheus.io/"],
        "podLabelPrefixes": ["team.example/"],
        "environmentVariables": ["OMP_WAIT_POLICY"],
        "externalHosts": [".example.com", "embedder.ml.svc"],
        "databaseHosts": [".db.example", "10.0.0.7"],
    }
    monkeypatch.setenv(
        "MEMORY_OPERATOR_PERMITTED", environment(render({"permitted": values}))["MEMORY_OPERATOR_PERMITTED"]
    )
    assert Settings().permitted == Permitted(
        image_prefixes=("registry.example/team/",),
        priority_classes=("gpu-workload",),
        runtime_classes=("nvidia",),
        pod_annotation_prefixes=("prometheus.io/",),
        pod_label_prefixes=("team.example/",),
        environment_variables=("OMP_WAIT_POLICY",),
        external_hosts=(".example.com", "embedder.ml.svc"),
        database_hosts=(".db.example", "10.0.0.7"),
    )


def test_a_rollback_to_a_release_that_stops_the_operator_first_is_possible(render: Render) -> None:
    """Server-side apply leaves defaults of the API server, and `Recreate` beside `rollingUpdate` is refused."""
    (deployment,) = of_kind(render({}), "Deployment")
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_the_operator_learns_its_own_namespace(render: Render) -> None:
    """Embedders let it call them from there."""
    variables = pod(render({}))["spec"]["containers"][0]["env"]
    (lease,) = [entry["value"] for entry in variables if entry["name"] == "MEMORY_OPERATOR_LEASE"]
    assert Settings(lease=lease).namespace == "memory-index-system"


@pytest.mark.finding("D23")
def test_further_egress_is_added_to_the_network_policy(render: Render) -> None:
    rule = {"to": [{"ipBlock": {"cidr": "192.0.2.7/32"}}], "ports": [{"port": 8443, "protocol": "TCP"}]}
    (bare,) = of_kind(render({"networkPolicy": {"enabled": True}}), "NetworkPolicy")
    (policy,) = of_kind(render({"networkPolicy": {"enabled": True, "extraEgress": [rule]}}), "NetworkPolicy")
    assert policy["spec"]["egress"] == [*bare["spec"]["egress"], rule]


def test_every_variable_is_a_setting_of_the_operator(render: Render) -> None:
    known = {f"MEMORY_OPERATOR_{path.upper()}" for path in setting_paths(Settings)}
    assert environment(render({})).keys() == known


def test_the_pod_declares_the_ports_that_the_operator_listens_on(render: Render) -> None:
    (container,) = pod(render({}))["spec"]["containers"]
    assert {port["name"]: port["containerPort"] for port in container["ports"]} == {
        "metrics": METRICS_PORT,
    }


@pytest.mark.parametrize(
    ("scrape", "annotated", "monitors"), [("Annotations", True, 0), ("PodMonitor", False, 2), ("None", False, 0)]
)
def test_metrics_are_scraped_in_one_way_only(render: Render, scrape: str, *, annotated: bool, monitors: int) -> None:
    objects = render({"monitoring": {"scrape": scrape}})
    assert ("prometheus.io/scrape" in pod(objects)["metadata"]["annotations"]) is annotated
    assert len(of_kind(objects, "PodMonitor")) == monitors


def test_pod_monitor_keeps_the_namespace_of_the_metric(render: Render) -> None:
    """An alert must name the namespace of the MemoryIndex, not that of the operator."""
    monitors = of_kind(render({"monitoring": {"scrape": "PodMonitor"}}), "PodMonitor")
    by_name = {body["metadata"]["name"]: body["spec"]["podMetricsEndpoints"][0] for body in monitors}
    assert by_name["memory-operator"]["honorLabels"] is True


def test_both_kinds_of_prometheus_get_the_same_alerts(everything: Objects) -> None:
    (rule,) = of_kind(everything, "PrometheusRule")
    (file,) = [body for body in of_kind(everything, "ConfigMap") if body["metadata"]["name"].endswith("-alerts")]
    assert read_yaml(file["data"]["memory-index.rules.yaml"]) == rule["spec"]
    assert all(
        {"summary", "description"} <= alert["annotations"].keys() for alert in rule["spec"]["groups"][0]["rules"]
    )


def test_dashboard_is_found_by_its_label(render: Render) -> None:
    (dashboard,) = of_kind(render({}), "ConfigMap")
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert not of_kind(render({"monitoring": {"dashboard": {"enabled": False}}}), "ConfigMap")


def test_how_model_files_are_fetched_reaches_the_operator(render: Render, monkeypatch: pytest.MonkeyPatch) -> None:
    """By default directly."""
    proxy = {"url": "http://proxy.example:3128", "noProxy": [".home.example"], "hosts": [".hf.co"]}
    given = {"fetch": {"proxy": proxy, "caBundle": {"configMap": "corporate-ca"}}}
    for values, route in (
        ({}, FetchRoute()),
        (given, FetchRoute("http://proxy.example:3128", (".home.example",), (".hf.co",), "corporate-ca")),
    ):
        monkeypatch.setenv("MEMORY_OPERATOR_FETCH", environment(render(values))["MEMORY_OPERATOR_FETCH"])
        assert Settings().fetch == route


def test_network_policy_lets_out_only_what_the_operator_needs(everything: Objects) -> None:
    (policy,) = of_kind(everything, "NetworkPolicy")
    ports = {port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]}
    assert ports == {53, 5353, 443, 6443, 5432, 8080, 9090}
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]


def test_names_are_resolved_through_openshifts_port_too(everything: Objects) -> None:
    """Its name servers listen on 5353 behind their Service, and policies see the port of the pod."""
    (policy,) = of_kind(everything, "NetworkPolicy")
    found = {(port["port"], port["protocol"]) for port in policy["spec"]["egress"][0]["ports"]}
    assert found == {(number, protocol) for number in (53, 5353) for protocol in ("UDP", "TCP")}


def test_templates_are_named_by_the_object_they_make() -> None:
    names: set[str] = {path.name for path in Path(CHART / "templates").glob("*.yaml")}
    assert {"deployment.yaml", "serviceaccount.yaml", "clusterrole.yaml", "role.yaml", "podmonitor.yaml"} <= names


@pytest.mark.parametrize("name", ["2024", "true", "null", "0x1f", "on"])
def test_a_name_that_yaml_reads_otherwise_stays_a_text(helm: Path, name: str) -> None:
    """Kubernetes takes these names for namespaces and objects, and refuses numbers and truth values in their place."""
    values = {
        "fullnameOverride": name,
        "watchNamespaces": [name],
        "databaseNamespaces": ["dbaas", f"{name}0"],
        "cnpg": {"authoritySecrets": [name]},
        "serviceAccount": {"name": name},
        "operator": {"priorityClassName": name, "replicas": 2},
        "networkPolicy": {"enabled": True},
        "monitoring": {"scrape": "PodMonitor", "prometheusRule": {"enabled": True}},
    }
    command = [str(helm), "template", name, str(CHART), "--namespace", name, "--values", "-"]
    done = subprocess.run(command, input=yaml.safe_dump(values), capture_output=True, text=True, check=True)
    objects = read_documents(done.stdout)
    assert not [(body["kind"], path) for body in objects for path in other_than_texts(body)]
    service_account = pod(objects)["spec"]["serviceAccountName"]
    assert (service_account, pod(objects)["spec"]["priorityClassName"]) == (name, name)
    assert {body["metadata"]["namespace"] for body in of_kind(objects, "Role")} == {name, "dbaas", f"{name}0"}


def other_than_texts(node: Any, path: str = "") -> Iterator[str]:
    """Paths below a node, of what has to be a text by its key, and is none."""
    if isinstance(node, list):
        for inner in node:
            yield from other_than_texts(inner, path)
    elif isinstance(node, dict):
        for key, inner in node.items():
            within = key in {"labels", "matchLabels", "annotations", "resourceNames", "matchNames"}
            if within:
                values = inner.values() if isinstance(inner, dict) else inner
                yield from (f"{path}.{key}" for value in values if not isinstance(value, str))
            elif key in {"name", "namespace", "value", "serviceAccountName", "priorityClassName"}:
                if not isinstance(inner, str):
                    yield f"{path}.{key}"
            else:
                yield from other_than_texts(inner, f"{path}.{key}")


@pytest.mark.finding("security S10")
def test_the_operator_is_told_the_address_of_its_node(render: Render) -> None:
    """It never connects to that address for the author of an object."""
    named = {entry["name"]: entry for entry in pod(render({}))["spec"]["containers"][0]["env"]}
    assert named["MEMORY_OPERATOR_NODE"]["valueFrom"] == {"fieldRef": {"fieldPath": "status.hostIP"}}
