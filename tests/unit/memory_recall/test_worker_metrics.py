"""The workers' counters over more than one run of a worker."""

from memory_recall.indexing.progress import Tally, WorkerMetrics
from memory_recall.retrying import Awaited


def embedded(metrics: WorkerMetrics) -> float | None:
    return metrics.registry.get_sample_value("memory_worker_rows_total", {"result": "embedded"})


def test_a_worker_that_starts_again_adds_to_what_it_counted_before() -> None:
    """After an outage a worker begins a new tally; a counter of Prometheus may never fall."""
    metrics = WorkerMetrics()
    first, second = Tally(embedded=30), Tally(embedded=4)
    metrics.observe(first, 100)
    first.embedded = 32
    metrics.observe(first, 100)
    metrics.observe(second, 68)
    second.embedded = 50
    metrics.observe(second, 68)
    assert embedded(metrics) == 32 + 50


def test_every_outage_has_a_series_before_it_happens() -> None:
    """Prometheus counts the difference of two values, so the first increment of a new series would not be noticed."""
    registry = WorkerMetrics().registry
    series = [registry.get_sample_value("memory_worker_outages_total", {"what": what}) for what in Awaited]
    assert series == [0] * len(Awaited)
