"""The page of the Prometheus metrics, from the registries of the processes."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from docs.makers.markdown import code, document, paragraph, plain, table
from memory_embedder.scheduling.lanes import Lane
from memory_embedder.telemetry.metrics import Metrics as EmbedderMetrics
from memory_embedder.telemetry.metrics import QueueReading
from memory_operator.controller.metrics import Metrics as OperatorMetrics
from memory_recall.contrib.prometheus import RecallMetrics
from memory_recall.indexing.progress import WorkerMetrics

INTRODUCTION = """\
Every series, by the process that serves it. A histogram `NAME` has the series `NAME_bucket`, `NAME_sum` and
`NAME_count`. Labels hold names of objects, modes, reasons and error codes, never text of a memory.
[How they are scraped](../install.md#monitoring)."""
NOTES = {
    "Operator": (
        "On port 9090 of the operator's pod. `state` is `total`, `embedded`, `pending`, `sensitive` or `quarantined`; "
        "renewals of the Lease are no writes, so that `memory_operator_api_writes_total` stays as it is while all "
        "objects are settled."
    ),
    "Embedder": "On the port of the probes (9090). `lane` is `query`, `document` or `rerank`.",
    "Sync worker, backfill and swap": "On the port that `MEMORY_METRICS_PORT` names; the operator sets 9090.",
    "Recall library": "In your API's own registry, where `RecallMetrics` is passed to `HybridRecall`.",
}


def registries() -> dict[str, CollectorRegistry]:
    """Return the metrics of every process, by the process's name."""
    embedder, recall = EmbedderMetrics(Lane), CollectorRegistry()
    nothing = dict.fromkeys(map(str, Lane), 0)
    embedder.observe_queues(lambda: QueueReading(queued=nothing, inflight=nothing, tokens_per_second=0.0))
    RecallMetrics(recall)
    return {
        "Operator": OperatorMetrics().registry,
        "Embedder": embedder.registry,
        "Sync worker, backfill and swap": WorkerMetrics().registry,
        "Recall library": recall,
    }


def page() -> str:
    """Return the page of the metrics of every process."""
    parts = [
        document(
            f"## {process}", paragraph(NOTES[process]), table(("metric", "type", "labels", "meaning"), rows(registry))
        )
        for process, registry in registries().items()
    ]
    return document("# Metrics", INTRODUCTION, *parts)


def rows(registry: CollectorRegistry) -> Iterator[tuple[str, str, str, str]]:
    """Yield a row for each metric of a registry, in the order of names."""
    labels = {
        metric.name: collector._labelnames
        for collector in set(registry._collector_to_names)
        if isinstance(collector, MetricWrapperBase)
        for metric in collector.describe()
    }
    for family in sorted(registry.collect(), key=lambda family: family.name):
        own = labels.get(family.name) or sorted(
            {label for sample in family.samples for label in sample.labels} - {"le"}
        )
        name = f"{family.name}_total" if family.type == "counter" else family.name
        yield code(name), family.type, ", ".join(map(code, own)), plain(family.documentation)
