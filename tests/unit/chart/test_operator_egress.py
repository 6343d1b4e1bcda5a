"""The chart's NetworkPolicy lets the operator call every pod that it asks for something."""

import re
from dataclasses import replace
from typing import Any

import pytest

from memory_operator.api.spec import parse
from memory_operator.resources.common import LABEL_COMPONENT, labels
from memory_operator.resources.embedder import NEXT_COMPONENT, PROBE_PORT
from memory_operator.resources.model_fetch import COMPONENT as FETCH_COMPONENT
from memory_operator.resources.network_policies import WORKER_COMPONENTS
from memory_recall.status import RowCounts
from tests.unit.chart.conftest import CHART, Render
from tests.unit.memory_operator.conftest import FULL, World
from tests.unit.memory_operator.test_operator_controller import Bench

COMPONENTS = ("embedder", NEXT_COMPONENT, FETCH_COMPONENT, *WORKER_COMPONENTS)
JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "mem-job", "uid": "j-1", "controller": True}


@pytest.fixture
async def asked() -> list[dict[str, str]]:
    """The labels of the pods that the operator asks during a swap while rows are pending, among pods of all its
    components.
    """
    bench = Bench(World())
    index = World().index()
    bench.api.index["spec"]["embedder"] = {"gpuLayers": 0, "apiKey": {"secretName": "key"}}
    await bench.reconcile()
    bench.api.index["spec"]["embedding"] = {"model": "bge-small-en-v1.5", "dimensions": 384}
    bench.database = replace(FULL, rows=RowCounts(total=10, embedded=7, pending=3))
    owner = {"apiVersion": "memory-index.dev/v1alpha1", "kind": "MemoryIndex", "name": "mem", "uid": "u-1"}
    owners = [{**owner, "controller": True}]
    job = {"uid": "j-1", "labels": labels(index, "swap"), "ownerReferences": owners}
    bench.put("Job", "team", "mem-job", {"metadata": job})
    pods = {f"10.0.0.{number}": labels(index, component) for number, component in enumerate(COMPONENTS, 1)}
    for address, found in pods.items():
        metadata = {"labels": found, "ownerReferences": [JOB]}
        status = {"phase": "Running", "podIP": address}
        bench.put("Pod", "team", f"mem-{found[LABEL_COMPONENT]}-x", {"metadata": metadata, "status": status})
    await bench.observer.observe(parse(bench.api.index))
    return [found for address, found in pods.items() if f"http://{address}:{PROBE_PORT}/metrics" in bench.urls]


def selects(selector: dict[str, Any], found: dict[str, str]) -> bool:
    """Whether a selector of labels with no other operator than `In` selects a pod."""
    expressions = selector.get("matchExpressions", [])
    assert {one["operator"] for one in expressions} <= {"In"}
    named = selector.get("matchLabels", {}).items() <= found.items()
    return named and all(found.get(one["key"]) in one["values"] for one in expressions)


def test_the_operator_may_call_every_pod_that_it_asks_for_its_load(render: Render, asked: list[dict[str, str]]) -> None:
    """Else each reconcile would wait for an answer, and nothing would be known of these pods."""
    assert {found[LABEL_COMPONENT] for found in asked} >= {"embedder", NEXT_COMPONENT, "sync", "backfill", "swap"}
    (policy,) = [one for one in render({"networkPolicy": {"enabled": True}}) if one["kind"] == "NetworkPolicy"]
    rules = [one for one in policy["spec"]["egress"] if {"port": PROBE_PORT, "protocol": "TCP"} in one["ports"]]
    selectors = [peer["podSelector"] for rule in rules for peer in rule["to"]]
    refused = [found for found in asked if not any(selects(one, found) for one in selectors)]
    assert refused == []


def test_the_installation_page_lists_the_ports_of_our_pods_that_the_policy_lets_the_operator_call(
    render: Render,
) -> None:
    """Who writes a policy from the page for a namespace that denies all else would otherwise leave one out."""
    (policy,) = [one for one in render({"networkPolicy": {"enabled": True}}) if one["kind"] == "NetworkPolicy"]
    allowed: dict[str, set[int]] = {"embedders": set(), "workers": set()}
    for rule in policy["spec"]["egress"]:
        for peer in rule.get("to", []):
            (expression,) = peer["podSelector"]["matchExpressions"]
            called = "embedders" if "embedder" in expression["values"] else "workers"
            allowed[called] |= {one["port"] for one in rule["ports"]}
    page = (CHART.parents[1] / "docs" / "install.md").read_text()
    (row,) = re.findall(r"^ *\| the operator \| out: (.*) \|$", page, re.MULTILINE)
    listed = re.findall(r"ports? ([0-9]+(?: and [0-9]+)*) of (embedders|workers)", row)
    assert {called: {int(port) for port in ports.split(" and ")} for ports, called in listed} == allowed
