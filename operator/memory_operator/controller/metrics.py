"""The operator's metrics. Labels contain object names, reasons and error types, never row data or connection URIs."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from memory_operator.api.conditions import OPTIONAL_CONDITIONS
from memory_operator.api.spec import Manifest

_TRUTH = {"True": 1, "False": 0, "Unknown": -1}
_ROWS = ("total", "embedded", "pending", "sensitive", "quarantined")


class Metrics:
    """The operator's Prometheus series, in their own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.reconcile_seconds = self._histogram(
            "reconcile_seconds",
            "Duration of one reconcile of one object, in seconds.",
            (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
        )
        self.errors = self._counter("reconcile_errors", "Reconciles that ended in an error.", "error")
        self.writes = self._counter("api_writes", "Writes to the Kubernetes API.", "kind", "verb")
        self.left_behind = self._counter(
            "left_behind", "Deleted objects of which something stays; an Event and the log name it."
        )
        self.queue_depth = self._gauge("queue_depth", "Objects that are due and wait for a worker.")
        self.wait_seconds = self._histogram(
            "queue_wait_seconds",
            "How long a due object waited for a worker, in seconds.",
            (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300),
        )
        self.loop_pause = self._gauge(
            "event_loop_pause_seconds",
            "Longest time within five minutes for which the operator did nothing else than one thing, in seconds.",
        )
        self.loop_busy = self._gauge(
            "event_loop_busy_seconds",
            "Most processor time within five minutes that one such thing took, in seconds.",
        )
        self.leader = self._gauge("leader", "1 for the replica that acts, 0 for one that waits.")
        self._condition = self._of_object("condition", "Status of a condition: 1 True, 0 False, -1 Unknown.", "type")
        self._reported = self._of_object("reported", "1 for an object that has a status, 0 for one that has none yet.")
        self._rows = self._of_object("rows", "Rows by state.", "state")

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(f"memory_operator_{name}", meaning, labels, registry=self.registry)

    def _gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        return Gauge(f"memory_operator_{name}", meaning, labels, registry=self.registry)

    def _histogram(self, name: str, meaning: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"memory_operator_{name}", meaning, buckets=buckets, registry=self.registry)

    def _of_object(self, name: str, meaning: str, *labels: str) -> Gauge:
        """Return a new gauge that has a series for each MemoryIndex."""
        return self._gauge(f"object_{name}", meaning, "namespace", "name", *labels)

    def count_write(self, kind: str, verb: str) -> None:
        """Count a write to the Kubernetes API."""
        self.writes.labels(kind, verb).inc()

    def see(self, namespace: str, name: str, status: Manifest) -> None:
        """Record that an object was read, and whether it has a status."""
        self._reported.labels(namespace, name).set(bool(status.get("conditions")))

    def report(self, namespace: str, name: str, status: Manifest) -> None:
        """Set the conditions and row counts of an object from its status."""
        conditions = {condition["type"]: condition["status"] for condition in status.get("conditions") or ()}
        for kind in OPTIONAL_CONDITIONS - conditions.keys():
            self._condition.remove_by_labels({"namespace": namespace, "name": name, "type": kind.value})
        for kind, truth in conditions.items():
            self._condition.labels(namespace, name, kind).set(_TRUTH[truth])
        rows = status.get("rows") or {}
        for state in _ROWS:
            if state in rows:
                self._rows.labels(namespace, name, state).set(rows[state])

    def forget(self, namespace: str, name: str) -> None:
        """Remove the series of an object that no longer exists."""
        for gauge in (self._condition, self._reported, self._rows):
            gauge.remove_by_labels({"namespace": namespace, "name": name})
