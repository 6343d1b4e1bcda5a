"""Every panel and alert reads series that our processes export, by labels that these series have."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from memory_embedder.scheduling.lanes import Lane
from memory_embedder.telemetry.metrics import Metrics as EmbedderMetrics
from memory_embedder.telemetry.metrics import QueueReading
from memory_operator.controller.metrics import Metrics as OperatorMetrics
from memory_recall.cli.workers import INDEX_MIN_RECALL
from memory_recall.indexing.progress import WorkerMetrics
from tests.support.yaml_text import read_yaml
from tests.unit.chart.conftest import CHART

Series = Mapping[str, frozenset[str]]

# Added by Prometheus or by its scrape configuration.
TARGET_LABELS = frozenset({"namespace", "pod", "exported_namespace"})
NAME = re.compile(r"\bmemory_[a-z_]+\b")
SELECTOR = re.compile(r"(memory_[a-z_]+)\{([^}]*)\}")
GROUPING = re.compile(r"\b(?:by|on|ignoring|without) \(([^)]*)\)")


def exported(registry: CollectorRegistry) -> dict[str, frozenset[str]]:
    """Series names of a registry with their labels."""
    found = {
        name: frozenset({*getattr(collector, "_labelnames", ()), *(("le",) if name.endswith("_bucket") else ())})
        for name, collector in registry._names_to_collectors.items()
    }
    # A collector without label names of its own makes its samples when it is collected.
    sampled = {sample.name: frozenset(sample.labels) for family in registry.collect() for sample in family.samples}
    return {**found, **sampled}


@pytest.fixture(scope="module")
def series() -> Series:
    """All that embedder, operator and workers export."""
    embedder = EmbedderMetrics(Lane)
    nothing = dict.fromkeys(Lane, 0)
    embedder.observe_queues(lambda: QueueReading(queued=nothing, inflight=nothing, tokens_per_second=0.0))
    registries = (embedder.registry, OperatorMetrics().registry, WorkerMetrics().registry)
    return {name: labels for registry in registries for name, labels in exported(registry).items()}


def dashboard_queries() -> Iterator[tuple[str, str]]:
    """Panel title and query."""
    dashboard: dict[str, Any] = json.loads((CHART / "files" / "dashboard.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
    for variable in dashboard["templating"]["list"]:
        yield variable["name"], variable.get("definition", "")


def alert_queries() -> Iterator[tuple[str, str]]:
    """Alert name and query."""
    rules = read_yaml((CHART / "files" / "alerts.yaml").read_text())
    for rule in rules["groups"][0]["rules"]:
        yield rule["alert"], rule["expr"]


QUERIES = [*dashboard_queries(), *alert_queries()]


@pytest.mark.parametrize("query", [query for _, query in QUERIES], ids=[title for title, _ in QUERIES])
def test_every_query_reads_series_that_exist(series: Series, query: str) -> None:
    assert [name for name in NAME.findall(query) if name not in series] == []


@pytest.mark.parametrize("query", [query for _, query in QUERIES], ids=[title for title, _ in QUERIES])
def test_query_selects_and_groups_by_labels_that_exist(series: Series, query: str) -> None:
    for name, selectors in SELECTOR.findall(query):
        labels = {part.split("=")[0].strip("!~ ") for part in selectors.split(",") if part}
        assert labels <= series[name] | TARGET_LABELS
    present = TARGET_LABELS.union(*(series[name] for name in NAME.findall(query)))
    for grouping in GROUPING.findall(query):
        assert {label.strip() for label in grouping.split(",")} <= present


def test_dashboard_and_alerts_cover_every_process() -> None:
    text = " ".join(query for _, query in QUERIES)
    assert all(f"memory_{process}_" in text for process in ("embedder", "operator", "worker"))


@pytest.mark.finding("D26")
def test_an_object_that_is_unknown_or_has_no_status_alerts_as_one_that_is_not_ready_does() -> None:
    """The series of Ready is 1 for True, 0 for False and -1 for Unknown, and is absent without a status."""
    queries = dict(alert_queries())
    assert queries["MemoryIndexNotReady"] == 'memory_operator_object_condition{type="Ready"} != 1'
    assert queries["MemoryIndexWithoutStatus"] == "memory_operator_object_reported == 0"


def test_the_alert_about_the_vector_index_begins_where_a_worker_repairs_it() -> None:
    query = dict(alert_queries())["MemoryWorkerIndexRecallLow"]
    assert query == f"memory_worker_index_recall < {INDEX_MIN_RECALL}"


def test_panels_do_not_overlap_and_have_descriptions() -> None:
    dashboard = json.loads((CHART / "files" / "dashboard.json").read_text())
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert panel["type"] == "row" or panel["description"].endswith("."), panel["title"]
        taken |= cells
