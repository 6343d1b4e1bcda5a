"""The metrics of a worker process, for Prometheus; all names start with `memory_`, as the embedder's do."""

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from memory_recall.indexing.tally import Tally


class WorkerMetrics:
    """Counters and gauges in a registry of their own."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self._rows = Counter(
            "memory_worker_rows", "Rows that a worker finished, by what became of them.", ["result"],
            registry=self.registry,
        )  # fmt: skip
        self._tokens = Counter("memory_worker_tokens", "Tokens that were embedded.", registry=self.registry)
        self._truncated = Counter(
            "memory_worker_truncated", "Rows whose text was longer than the model takes.", registry=self.registry
        )
        self._failed_batches = Counter(
            "memory_worker_failed_batches", "Requests that failed and were halved.", registry=self.registry
        )
        self.pending = Gauge("memory_worker_pending_rows", "Rows still to embed.", registry=self.registry)
        self.outages = Counter(
            "memory_worker_outages", "Times that something went away.", ["what"], registry=self.registry
        )
        self.index_recall = Gauge(
            "memory_worker_index_recall", "Share of the true neighbours that the index found when sampled.",
            registry=self.registry,
        )  # fmt: skip
        self._seen: dict[str, int] = {}

    def observe(self, tally: Tally, total: int) -> None:
        """Bring the metrics up to a tally, which only grows."""
        for result in ("embedded", "changed", "failed", "quarantined"):
            self._rows.labels(result).inc(self._growth(result, getattr(tally, result)))
        self._tokens.inc(self._growth("tokens", tally.tokens))
        self._truncated.inc(self._growth("truncated", tally.truncated))
        self._failed_batches.inc(self._growth("failed_batches", tally.failed_batches))
        self.pending.set(max(total - tally.embedded - tally.changed - tally.quarantined, 0))

    def serve(self, port: int) -> None:
        """Serve the metrics over HTTP; port 0 serves none."""
        if port:
            start_http_server(port, registry=self.registry)

    def _growth(self, name: str, value: int) -> int:
        growth = value - self._seen.get(name, 0)
        self._seen[name] = value
        return max(growth, 0)
