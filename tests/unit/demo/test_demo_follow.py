"""Following a MemoryIndex object whose status may still be incomplete."""

from typing import Any

from devcluster.demo.follow import changes, summary, view


def index(generation: int = 1, observed: int | None = 1, **status: Any) -> dict[str, Any]:
    if observed is not None:
        status["observedGeneration"] = observed
    return {"metadata": {"generation": generation}, "status": status}


def condition(kind: str, status: str, reason: str = "Because", message: str = "words") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def test_an_object_without_status_is_not_ready_and_reports_what_it_waits_for() -> None:
    seen = view({"metadata": {"generation": 1}})
    assert not seen.ready
    assert summary(seen) == "waiting for the operator"


def test_ready_counts_only_for_the_present_generation() -> None:
    conditions = [condition("Ready", "True")]
    assert view(index(conditions=conditions)).ready
    assert not view(index(generation=2, conditions=conditions)).ready


def test_only_changed_conditions_are_printed() -> None:
    before = view(index(conditions=[condition("ExtensionReady", "False", "Creating")]))
    after = view(index(conditions=[condition("ExtensionReady", "True", "Present"), condition("Ready", "Unknown", "")]))
    assert changes(before, after) == ["ExtensionReady=True Present: words"]
    assert changes(after, after) == []


def test_progress_is_the_share_of_rows_that_have_their_vector() -> None:
    rows = {"total": 11, "embedded": 4, "pending": 6, "sensitive": 1}
    seen = view(index(rows=rows, backfill={"rowsPerSecond": "2.5", "etaSeconds": 3}))
    assert seen.fraction == 0.4
    assert summary(seen) == "4 of 10 rows, 2 rows/s, about 3 s left"


def test_with_nothing_pending_the_first_condition_that_does_not_hold_is_named() -> None:
    rows = {"total": 5, "embedded": 5, "pending": 0, "sensitive": 0}
    met = [condition(kind, "True") for kind in ("DatabaseReachable", "ExtensionReady", "SchemaReady", "EmbedderReady")]
    seen = view(
        index(
            rows=rows,
            conditions=[*met, condition("Backfilled", "True"), condition("IndexReady", "False", "Building")],
        )
    )
    assert summary(seen) == "5 of 5 rows, IndexReady: Building"


def test_a_stalled_condition_is_found() -> None:
    stalled = view(index(conditions=[condition("Stalled", "True", "DimensionMismatch")])).stalled
    assert stalled is not None
    assert stalled.reason == "DimensionMismatch"
    assert view(index(conditions=[condition("Stalled", "False")])).stalled is None
