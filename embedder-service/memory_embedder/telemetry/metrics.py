"""Prometheus metrics of the service.

Label values come from closed sets only, so that they can hold neither a caller's text nor an unbounded number of paths.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from memory_embedder.errors import ErrorKind

UNMATCHED = "unmatched"
"""The route of requests that have none."""
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_TOKENS = (8, 16, 32, 64, 128, 192, 256, 384, 512, 1024, 2048, 4096, 8192)
_TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True, slots=True)
class QueueReading:
    """The state of the queues at one moment: waiting and computing tokens by lane, and tokens per second in all."""

    queued: Mapping[str, int]
    inflight: Mapping[str, int]
    tokens_per_second: float


class _QueueCollector(Collector):
    def __init__(self, read: Callable[[], QueueReading]) -> None:
        self._read = read

    def collect(self) -> Iterator[GaugeMetricFamily]:
        reading = self._read()
        for name, text, values in (
            ("queued_tokens", "Tokens waiting.", reading.queued),
            ("inflight_tokens", "Tokens being computed.", reading.inflight),
        ):
            family = GaugeMetricFamily(f"memory_embedder_{name}", text, labels=["lane"])
            for lane, value in values.items():
                family.add_metric([lane], value)
            yield family
        yield GaugeMetricFamily(
            "memory_embedder_tokens_per_second", "Measured rate over busy time.", value=reading.tokens_per_second
        )


class LaneSeries:
    """The time series of one lane."""

    def __init__(self, metrics: "Metrics", lane: str) -> None:
        self.documents = metrics.documents.labels(lane=lane)
        self.tokens = metrics.tokens.labels(lane=lane)
        self.dropped = metrics.dropped.labels(lane=lane)
        self.wait_seconds = metrics.wait_seconds.labels(lane=lane)
        self.batch_seconds = metrics.batch_seconds.labels(lane=lane)
        self.batch_tokens = metrics.batch_tokens.labels(lane=lane)
        self.batch_texts = metrics.batch_texts.labels(lane=lane)

    def record_batch(self, *, texts: int, tokens: int, seconds: float) -> None:
        """Count a batch, which took `seconds` to compute."""
        self.documents.inc(texts)
        self.tokens.inc(tokens)
        self.batch_seconds.observe(seconds)
        self.batch_tokens.observe(tokens)
        self.batch_texts.observe(texts)


class Metrics:
    """All metrics of one service, in a registry of their own; `lanes` are the values of the label `lane`."""

    def __init__(self, lanes: Iterable[str]) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self.documents = self._counter("documents_total", "Texts computed.", "lane")
        self.tokens = self._counter("tokens_total", "Tokens computed.", "lane")
        self.truncated = self._counter("truncated_total", "Texts cut to the model's window.")
        self.busy_seconds = self._counter("busy_seconds_total", "Seconds that contexts spent computing, summed.")
        self.requests = self._counter("requests_total", "HTTP requests.", "route", "status")
        self.rejected = self._counter("rejected_total", "Requests refused, by error code.", "code")
        self.dropped = self._counter("dropped_tokens_total", "Tokens whose caller had gone.", "lane")
        self.engine_failures = self._counter("engine_failures_total", "Batches that the engine failed on.")
        self.cache_hits = self._counter("query_cache_hits_total", "Queries with an API key, from the cache.")
        self.cache_misses = self._counter("query_cache_misses_total", "Queries with an API key, computed.")
        self.request_seconds = self._histogram("request_seconds", "Seconds from request to answer.", _SECONDS, "lane")
        self.wait_seconds = self._histogram("wait_seconds", "Seconds between admission and compute.", _SECONDS, "lane")
        self.batch_seconds = self._histogram("batch_seconds", "Seconds of compute of one batch.", _SECONDS, "lane")
        self.batch_tokens = self._histogram("batch_tokens", "Tokens in a batch.", _TOKENS, "lane")
        self.batch_texts = self._histogram("batch_texts", "Texts in a batch.", _TEXTS, "lane")
        self.ready = self._gauge("ready", "1 when requests are served.")
        self.device_info = self._gauge("device_info", "1, by where the model runs.", "device", "description", "kernels")
        self.model_info = self._gauge("model_info", "1, by the model and its file.", "model", "digest", "pooling")
        self.reranker_info = self._gauge("reranker_info", "1, by the reranker and its file.", "model", "digest")
        self.layers_offloaded = self._gauge("gpu_layers_offloaded", "Layers on the GPU, as llama.cpp reports them.")
        self.layers = self._gauge("model_layers", "Layers of the model that can be offloaded.")
        self.memory_estimate = self._gauge("memory_estimate_bytes", "Memory that the model was expected to need.")
        self.batch_limit = self._gauge("batch_limit_tokens", "Tokens that a batch may hold, set or measured at start.")
        self.query_threads = self._gauge("query_threads", "Threads of a query while nothing else runs.")
        self.contexts = self._gauge("contexts", "Contexts that compute; an express one takes queries alone.", "role")
        self.certificate_expiry = self._gauge(
            "certificate_expiry_timestamp_seconds",
            "When the certificate in use expires, in seconds since 1970; 0 where none is.",
        )
        self.certificate_refused = self._gauge(
            "certificate_refused", "1 while the files of certificate and key are not used, by why.", "fault"
        )
        self.handshake_failures = self._counter("tls_handshake_failures_total", "TLS handshakes that failed.")
        # Made at once: a series that is absent until its first use breaks rates and alerts.
        self.lanes = {str(lane): LaneSeries(self, str(lane)) for lane in lanes}

    def observe_queues(self, read: Callable[[], QueueReading]) -> None:
        """Register a function that returns the state of the lanes; it is called at each scrape."""
        self.registry.register(_QueueCollector(read))

    def count_unread(self, kind: ErrorKind) -> None:
        """Count a request that was refused before its route was known."""
        self.rejected.labels(code=kind.code).inc()
        self.requests.labels(route=UNMATCHED, status=str(kind.status)).inc()

    def render(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return generate_latest(self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"memory_embedder_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"memory_embedder_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"memory_embedder_{name}", text, labels, buckets=buckets, registry=self.registry)
