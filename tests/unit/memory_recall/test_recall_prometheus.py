"""The metrics of the recalls that a process has served."""

from dataclasses import replace

from prometheus_client import CollectorRegistry, generate_latest

from memory_recall.contrib.prometheus import RecallMetrics
from memory_recall.search.query import Mode
from memory_recall.search.result import Degraded, Evidence, Expansion, RecalledMemory, RecallResult, Timings


def result(mode: Mode, reason: Degraded | None, content: str = "") -> RecallResult:
    memory = RecalledMemory(
        id=1, content=content, category="facts", tags="", importance=0.5, is_sensitive=False, rank=0.9, owner="ana",
        created_at=None, updated_at=None, evidence=Evidence(1, 1.0, None, None),
    )  # fmt: skip
    return RecallResult((memory,), mode, reason, Timings(total=30.0, embedding=20.0, database=10.0))


def test_recalls_are_counted_by_mode_and_reason() -> None:
    """What does not show in the answer shows here."""
    registry = CollectorRegistry()
    observe = RecallMetrics(registry)
    for _ in range(2):
        observe(result("hybrid", None))
    observe(result("hybrid", Degraded.EMBEDDER_TIMEOUT))
    counted = {
        reason: registry.get_sample_value("memory_recalls_total", {"mode": "hybrid", "degraded": reason})
        for reason in ("none", "EmbedderTimeout")
    }
    assert counted == {"none": 2, "EmbedderTimeout": 1}


def test_the_parts_of_a_recall_are_timed_in_seconds() -> None:
    registry = CollectorRegistry()
    RecallMetrics(registry)(result("hybrid", None))
    sums = {
        part: registry.get_sample_value("memory_recall_seconds_sum", {"part": part})
        for part in ("embedding", "database", "total")
    }
    assert sums == {"embedding": 0.02, "database": 0.01, "total": 0.03}


def test_recalls_that_asked_for_further_words_are_counted_and_timed() -> None:
    registry = CollectorRegistry()
    observe = RecallMetrics(registry)
    for outcome in (Expansion.DONE, Expansion.TIMEOUT, Expansion.TIMEOUT, Expansion.OFF, Expansion.NOT_ASKED):
        timings = Timings(total=30.0, expansion=10.0)
        observe(replace(result("hybrid", None), expansion=outcome, timings=timings))
    counted = {
        outcome: registry.get_sample_value("memory_recall_expansion_total", {"outcome": outcome})
        for outcome in ("Expanded", "ExpansionTimeout", "NoExpansion", "NotAskedFor")
    }
    assert counted == {"Expanded": 1, "ExpansionTimeout": 2, "NoExpansion": None, "NotAskedFor": None}
    assert registry.get_sample_value("memory_recall_seconds_count", {"part": "expansion"}) == 3


def test_recalls_without_a_memory_and_memories_held_back_are_counted() -> None:
    registry = CollectorRegistry()
    observe = RecallMetrics(registry)
    observe(result("hybrid", None))
    observe(replace(result("hybrid", None), memories=(), held_back=5))
    observe(replace(result("hybrid", None), held_back=2))
    assert registry.get_sample_value("memory_recall_empty_total", {"mode": "hybrid"}) == 1
    assert registry.get_sample_value("memory_recall_held_back_total") == 7


def test_metrics_name_no_text_and_no_owner_and_have_our_prefix() -> None:
    registry = CollectorRegistry()
    RecallMetrics(registry)(result("lexical", None, content="hunter2"))
    shown = generate_latest(registry).decode()
    assert "hunter2" not in shown
    assert "ana" not in shown
    assert all(line.startswith(("memory_recall", "#")) for line in shown.splitlines())
