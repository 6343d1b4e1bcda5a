"""Counts and times recalls for Prometheus: pass a `RecallMetrics` as `observe=` to `RecallOptions`.

Labels hold only modes and reasons, which are few and fixed. This module needs the optional dependency
`memory-recall[metrics]`.
"""

from memory_recall.errors import importing_extra
from memory_recall.search.result import Expansion, RecallResult, Reranking

with importing_extra("metrics", "RecallMetrics"):
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram

NOT_DEGRADED = "none"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5)


class RecallMetrics:
    """Counts recalls by mode and by the reason why they were degraded, and measures how many seconds their parts take.

    The metrics are registered in `registry`, by default that of the process, which most frameworks serve at `/metrics`.
    Make only one object for each registry, because a registry refuses a second metric of the same name.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._recalls = Counter(
            "memory_recalls", "Recalls by mode, and by why meaning took no part although it was asked for.",
            ["mode", "degraded"], registry=registry,
        )  # fmt: skip
        self._second_stage = Counter(
            "memory_recall_second_stage", "Recalls with a second stage, by whether it reranked them or why not.",
            ["outcome"], registry=registry,
        )  # fmt: skip
        self._expansion = Counter(
            "memory_recall_expansion", "Recalls that asked for further words, by whether they got them or why not.",
            ["outcome"], registry=registry,
        )  # fmt: skip
        self._empty = Counter(
            "memory_recall_empty", "Recalls that returned no memory, by mode.", ["mode"], registry=registry,
        )  # fmt: skip
        self._held_back = Counter(
            "memory_recall_held_back", "Memories that were held back for their little relevance.", registry=registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "memory_recall_seconds", "Time of a recall's parts: embedding, expansion, database, reranking, everything.",
            ["part"], buckets=_SECONDS, registry=registry,
        )  # fmt: skip

    def __call__(self, result: RecallResult) -> None:
        """Count and time one recall."""
        self._recalls.labels(result.mode, result.reason or NOT_DEGRADED).inc()
        if not result.memories:
            self._empty.labels(result.mode).inc()
        self._held_back.inc(result.held_back)
        timings = result.timings
        parts = {"embedding": timings.embedding, "database": timings.database, "total": timings.total}
        if result.reranking is not Reranking.OFF:
            self._second_stage.labels(result.reranking).inc()
            parts["reranking"] = timings.reranking
        if result.expansion not in {Expansion.OFF, Expansion.NOT_ASKED}:
            self._expansion.labels(result.expansion).inc()
            parts["expansion"] = timings.expansion
        for part, milliseconds in parts.items():
            self._seconds.labels(part).observe(milliseconds / 1e3)
