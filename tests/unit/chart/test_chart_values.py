"""Invalid values are refused before anything is installed."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.unit.chart.conftest import CHART, Refuse


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
        ({"rbac": {"create": "yes"}}, "/rbac/create"),
        ({"cnpg": {"manageDatabases": "no"}}, "/cnpg/manageDatabases"),
    ],
)
def test_bad_value_is_refused_by_name(refuse: Refuse, values: Mapping[str, Any], named: str) -> None:
    assert named in refuse(values)


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
