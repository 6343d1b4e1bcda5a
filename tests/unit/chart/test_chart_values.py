"""Invalid values are refused before anything is installed."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from memory_operator.reconcile.authorization.permissions import Permitted
from memory_operator.settings import Settings
from tests.support.yaml_text import read_documents, read_yaml
from tests.unit.chart.conftest import CHART, Refuse, RenderText

# What the templates cannot do without.
REQUIRED = {
    "fullnameOverride",
    "cnpg",
    "cnpg.manageDatabases",
    "operator",
    "operator.image",
    "operator.image.repository",
    "operator.image.pullPolicy",
    "operator.replicas",
    "operator.resyncSeconds",
    "operator.logFormat",
    "operator.logLevel",
    "operator.podDisruptionBudget",
    "operator.podDisruptionBudget.enabled",
    "embedder",
    "embedder.image",
    "embedder.image.repository",
    "serviceAccount",
    "serviceAccount.create",
    "rbac",
    "rbac.create",
    "rbac.aggregate",
    "monitoring",
    "monitoring.scrape",
    "monitoring.podMonitor",
    "monitoring.podMonitor.interval",
    "monitoring.prometheusRule",
    "monitoring.prometheusRule.enabled",
    "monitoring.alertsConfigMap",
    "monitoring.alertsConfigMap.enabled",
    "monitoring.dashboard",
    "monitoring.dashboard.enabled",
    "networkPolicy",
    "networkPolicy.enabled",
    "networkPolicy.apiServerPorts",
}


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"operatr": {}}, "operatr"),
        ({"operator": {"replica": 2}}, "replica"),
        ({"fullnameOverride": "a" * 51}, "/fullnameOverride"),
        ({"commonLabels": {"app.kubernetes.io/name": "x"}}, "/commonLabels/app.kubernetes.io~1name"),
        (
            {"operator": {"podLabels": {"app.kubernetes.io/instance": "x"}}},
            "/operator/podLabels/app.kubernetes.io~1inst",
        ),
        ({"operator": {"replicas": 0}}, "/operator/replicas"),
        ({"operator": {"image": {"repository": "memory-operator"}}}, "/operator/image/repository"),
        ({"operator": {"image": {"repository": "registry.example/op:1.0"}}}, "/operator/image/repository"),
        ({"operator": {"image": {"digest": "b2b2"}}}, "/operator/image/digest"),
        ({"operator": {"image": {"pullPolicy": "Sometimes"}}}, "/operator/image/pullPolicy"),
        ({"operator": {"resyncSeconds": 0}}, "/operator/resyncSeconds"),
        ({"operator": {"resyncSeconds": 90}}, "/operator/resyncSeconds"),
        ({"operator": {"logLevel": "chatty"}}, "/operator/logLevel"),
        ({"operator": {"resources": {"limit": {}}}}, "limit"),
        ({"watchNamespaces": "claude-memory"}, "/watchNamespaces"),
        ({"watchNamespaces": ["Claude Memory"]}, "/watchNamespaces/0"),
        ({"imagePullSecrets": ["registry"]}, "/imagePullSecrets/0"),
        ({"monitoring": {"scrape": "annotations"}}, "/monitoring/scrape"),
        ({"monitoring": {"podMonitor": {"interval": "often"}}}, "/monitoring/podMonitor/interval"),
        # A rule of a NetworkPolicy that names no port lets everything through.
        ({"networkPolicy": {"apiServerPorts": []}}, "/networkPolicy/apiServerPorts"),
        ({"networkPolicy": {"postgresPorts": [70000]}}, "/networkPolicy/postgresPorts/0"),
        ({"networkPolicy": {"extraEgress": ["all"]}}, "/networkPolicy/extraEgress/0"),
        ({"permitted": {"images": []}}, "images"),
        ({"permitted": {"imagePrefixes": ["registry.example"]}}, "/permitted/imagePrefixes/0"),
        ({"permitted": {"runtimeClasses": ["*"]}}, "/permitted/runtimeClasses/0"),
        ({"permitted": {"podAnnotationPrefixes": [""]}}, "/permitted/podAnnotationPrefixes/0"),
        ({"permitted": {"podLabelPrefixes": [""]}}, "/permitted/podLabelPrefixes/0"),
        ({"permitted": {"environmentVariables": ["MEMORY_TABLE"]}}, "/permitted/environmentVariables/0"),
        ({"permitted": {"externalHosts": ["https://embed.example"]}}, "/permitted/externalHosts/0"),
        ({"permitted": {"externalHosts": ["[fd00::7]"]}}, "/permitted/externalHosts/0"),
        ({"permitted": {"databaseHosts": ["db.example:5432"]}}, "/permitted/databaseHosts/0"),
        ({"fetch": {"proxy": {"url": "http://user:pass@proxy.example:3128"}}}, "/fetch/proxy/url"),
        ({"fetch": {"proxy": {"hosts": ["https://models.example"]}}}, "/fetch/proxy/hosts/0"),
        ({"rbac": {"create": "yes"}}, "/rbac/create"),
        ({"cnpg": {"manageDatabases": "no"}}, "/cnpg/manageDatabases"),
    ],
)
def test_bad_value_is_refused_by_name(refuse: Refuse, values: Mapping[str, Any], named: str) -> None:
    assert named in refuse(values)


@pytest.mark.parametrize(
    "values", [{"databaseNamespaces": ["dbaas"]}, {"cnpg": {"authoritySecrets": ["pg-cluster-ca"]}}], ids=str
)
def test_bounds_that_would_bound_nothing_are_refused(
    render_text: RenderText, refuse: Refuse, values: Mapping[str, Any]
) -> None:
    """Whoever names the databases' namespaces would not expect rights in all others."""
    assert "name the namespaces of the MemoryIndex objects in watchNamespaces" in refuse(values)
    assert "name the namespaces of the MemoryIndex objects in watchNamespaces" in refuse(
        {**values, "watchNamespaces": []}
    )
    assert render_text({**values, "watchNamespaces": ["notes"]})


def without(path: str) -> dict[str, Any]:
    """Values in which a key has no value, as where everything below it was commented out."""
    head, _, rest = path.partition(".")
    return {head: without(rest) if rest else None}


def paths(values: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Yield the dotted name of every value and of every section of values."""
    for name, value in values.items():
        yield f"{above}{name}"
        if isinstance(value, dict):
            yield from paths(value, f"{above}{name}.")


@pytest.mark.parametrize("path", list(paths(read_yaml((CHART / "values.yaml").read_text()))))
def test_a_key_without_a_value_is_refused_by_name_or_stands_for_nothing(
    render_text: RenderText, refuse: Refuse, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Helm removes such a key with its default. Neither a template nor the operator's start may fail by it."""
    values = {"networkPolicy": {"enabled": True}, "watchNamespaces": ["notes"], **without(path)}
    if path in REQUIRED:
        assert f"missing property '{path.rpartition('.')[2]}'" in refuse(values)
        return
    objects = read_documents(render_text(values))
    (deployment,) = [body for body in objects if body["kind"] == "Deployment"]
    for variable in deployment["spec"]["template"]["spec"]["containers"][0]["env"]:
        monkeypatch.setenv(variable["name"], variable.get("value", "192.0.2.1"))  # a pod's kubelet sets the others
    assert Settings().permitted == Permitted()


def test_no_limit_of_the_schema_is_ignored() -> None:
    """In draft 7 of JSON Schema nothing counts that stands beside a `$ref`."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    assert [rule for rule in rules(schema) if "$ref" in rule and len(rule) > 1] == []


def rules(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield every object of a schema."""
    if isinstance(schema, dict):
        yield schema
    for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from rules(part)
