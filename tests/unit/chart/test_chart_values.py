"""Invalid values are refused before anything is installed, and every value is documented."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.chart.conftest import CHART, Refuse

DOCUMENTATION = Path(__file__).parents[3] / "docs" / "configuration.md"


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"operatr": {}}, "operatr"),
        ({"operator": {"replica": 2}}, "replica"),
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


def leaves(values: Mapping[str, Any], schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Dotted names of the values, as deep as the schema names them."""
    for name, value in values.items():
        inner = f"{path}{name}"
        properties = schema["properties"][name].get("properties") if "properties" in schema else None
        if properties:
            yield from leaves(value, schema["properties"][name], f"{inner}.")
        else:
            yield inner


def test_every_value_is_in_the_schema_and_documented() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    text = DOCUMENTATION.read_text()
    missing = [name for name in leaves(values, schema) if f"`{name}`" not in text]
    assert not missing
