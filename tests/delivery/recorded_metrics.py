"""Two invented hours of a cluster, as operator, embedder and workers export them through their own registries.

The first hour goes well. In the second everything fails that an alert is for. The result is text in the OpenMetrics
format with times, which `promtool` makes blocks of a Prometheus database from.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.samples import Sample

from memory_embedder.scheduling.lanes import Lane
from memory_embedder.telemetry.metrics import Metrics as EmbedderMetrics
from memory_embedder.telemetry.metrics import QueueReading
from memory_operator.controller.metrics import Metrics as OperatorMetrics
from memory_recall.errors import EmbedderUnavailable
from memory_recall.indexing.progress import Tally, WorkerMetrics
from memory_recall.retrying import Awaited

MINUTES = 120
FAILING_FROM = 60  # the first minute of the second hour


@dataclass(frozen=True)
class Target:
    """A process with its registry, and the labels that a scrape gives to its series."""

    registry: CollectorRegistry
    labels: Mapping[str, str]


class RecordedCluster:
    """Operator, embedder, sync worker and backfill of one MemoryIndex, which another minute at a time passes for."""

    def __init__(self) -> None:
        self._embedder = EmbedderMetrics(Lane)
        self._operator = OperatorMetrics()
        self._sync_worker, self._backfill = WorkerMetrics(), WorkerMetrics()
        self._tally, self._filled = Tally(), Tally()
        self._backfill.started("backfill", 2000)
        self._embedder.observe_queues(
            lambda: QueueReading(dict.fromkeys(Lane, 40), dict.fromkeys(Lane, 20), tokens_per_second=900.0)
        )
        self.targets = (
            Target(self._operator.registry, {"namespace": "memory-index-system", "pod": "memory-operator-0"}),
            Target(self._embedder.registry, {"namespace": "notes", "pod": "notes-embedder-0"}),
            Target(self._sync_worker.registry, {"namespace": "notes", "pod": "notes-sync-0"}),
            Target(self._backfill.registry, {"namespace": "notes", "pod": "notes-backfill-0"}),
        )

    def pass_minute(self, minute: int) -> None:
        """Export what the processes see in a minute of the two hours, counted from 0."""
        failing = minute >= FAILING_FROM
        self._operate(minute, failing=failing)
        self._embed(failing=failing)
        self._sync(failing=failing)
        self._fill(failing=failing)

    def _operate(self, minute: int, *, failing: bool) -> None:
        truth = {"Ready": "False" if failing else "True", "Stalled": "True" if failing else "False"}
        embedded = 1000 + 10 * min(minute, FAILING_FROM)
        status = {
            "conditions": [{"type": kind, "status": value} for kind, value in truth.items()],
            "rows": {
                "total": 2000,
                "embedded": embedded,
                "pending": 300 if failing else 0,
                "sensitive": 20,
                "quarantined": 3 if failing else 0,
            },
        }
        self._operator.see("notes", "notes", status)
        self._operator.report("notes", "notes", status)
        if failing:
            self._operator.see("notes", "without-status", {})
        self._operator.count_write("Job", "apply")
        self._operator.errors.labels("KubeError").inc(3 if failing else 0)
        self._operator.reconcile_seconds.observe(0.1)
        self._operator.queue_depth.set(1)
        self._operator.wait_seconds.observe(45.0 if failing else 0.01)
        self._operator.left_behind.inc(1 if failing else 0)
        self._operator.leader.set(0 if failing else 1)
        self._operator.loop_pause.set(2.0 if failing else 0.01)
        self._operator.loop_busy.set(0.2 if failing else 0.01)

    def _embed(self, *, failing: bool) -> None:
        metrics = self._embedder
        for lane in metrics.lanes.values():
            lane.documents.inc(10)
            lane.tokens.inc(200)
            lane.wait_seconds.observe(1.0 if failing else 0.002)
            lane.batch_seconds.observe(0.02)
            lane.batch_tokens.observe(100)
            lane.batch_texts.observe(5)
        for lane_name in Lane:
            metrics.request_seconds.labels(lane=lane_name).observe(0.02)
        metrics.truncated.inc()
        metrics.rejected.labels(code="overloaded").inc()
        metrics.engine_failures.inc(1 if failing else 0)
        metrics.certificate_expiry.set(time.time() + 86400 * (1 if failing else 30))
        metrics.certificate_refused.labels(fault="key_mismatch").set(1 if failing else 0)
        metrics.ready.set(1)
        metrics.device_info.labels(device="cpu", description="a processor", kernels="avx2").set(1)
        metrics.layers_offloaded.set(0)
        metrics.layers.set(12)

    def _sync(self, *, failing: bool) -> None:
        self._tally.embedded += 0 if failing else 10
        self._tally.failed_batches += 1 if failing else 0
        self._sync_worker.observe(self._tally)
        self._sync_worker.index_recall.set(0.5 if failing else 0.97)
        if failing:
            away = EmbedderUnavailable("It does not answer.")
            self._sync_worker.outage_began(Awaited.EMBEDDER, away)
            self._sync_worker.attempt_failed(Awaited.EMBEDDER, away, wait=self)

    def _fill(self, *, failing: bool) -> None:
        self._filled.embedded += 0 if failing else 10
        self._backfill.observe(self._filled)


def openmetrics(end: int) -> str:
    """Return the two hours up to `end`, in seconds since 1970, with a sample of each series for every minute."""
    cluster = RecordedCluster()
    families: dict[tuple[str, str], list[str]] = {}
    for minute in range(MINUTES + 1):
        cluster.pass_minute(minute)
        moment = end - 60 * (MINUTES - minute)
        for target in cluster.targets:
            for family in target.registry.collect():
                lines = families.setdefault((family.name, family.type), [])
                lines += [_line(sample, target.labels, moment) for sample in family.samples]
    parts = [line for (name, kind), lines in families.items() for line in (f"# TYPE {name} {kind}", *lines)]
    return "\n".join([*parts, "# EOF", ""])


def _line(sample: Sample, target: Mapping[str, str], moment: int) -> str:
    """Return one sample; a label that the target has as well gets the prefix that Prometheus gives it."""
    own = {f"exported_{name}" if name in target else name: value for name, value in sample.labels.items()}
    labels: Sequence[str] = [f'{name}="{value}"' for name, value in {**own, **target}.items()]
    return f"{sample.name}{{{','.join(labels)}}} {sample.value} {moment}"
