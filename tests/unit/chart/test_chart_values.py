"""Invalid values are refused before anything is installed."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.unit.chart.conftest import Refuse


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
