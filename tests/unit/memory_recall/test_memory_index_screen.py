"""One screen tells where a MemoryIndex stands, what blocks it and what to do."""

import copy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memory_recall.memory_index.pipeline import STAGES, Event, Pipeline, pipeline
from memory_recall.memory_index.screen import screen

PAGE = Path(__file__).parents[3] / "docs" / "operator.md"
NOW = "2026-11-24T10:00:00Z"
REASONS = {
    "DatabaseReachable": "Reachable",
    "ExtensionReady": "Installed",
    "SchemaReady": "Migrated",
    "EmbedderReady": "Available",
    "Backfilled": "Complete",
    "IndexReady": "Valid",
    "ModelActive": "Active",
}
STATUS: Mapping[str, Any] = {
    "observedGeneration": 3,
    "conditions": [
        {"type": "Ready", "status": "True", "reason": "Ready", "message": "Every row is embedded."},
        {"type": "Stalled", "status": "False", "reason": "NotStalled", "message": "Nobody needs to act."},
        *({"type": kind, "status": "True", "reason": why, "message": "Fine."} for kind, why in REASONS.items()),
    ],
    "model": {"active": "all-MiniLM-L6-v2"},
    "rows": {"total": 9000, "embedded": 8900, "sensitive": 90, "quarantined": 10},
    "embedder": {"url": "http://mem-embedder.team.svc:8080", "replicas": 2, "readyReplicas": 1, "device": "cuda"},
    "database": {"extensionVersion": "0.8.5", "schemaRevision": "0002"},
}


def seen(changes: Mapping[str, tuple[str, str, str]] | None = None, **status: Any) -> Pipeline:
    """A pipeline with other conditions (status, reason, message) and other parts of the status."""
    body = {**copy.deepcopy(dict(STATUS)), **status}
    for kind, (state, reason, message) in (changes or {}).items():
        body["conditions"] = [entry for entry in body["conditions"] if entry["type"] != kind]
        body["conditions"].append({"type": kind, "status": state, "reason": reason, "message": message})
    return pipeline({"metadata": {"namespace": "team", "name": "mem", "generation": 3}, "status": body}, [])


def line(lines: list[str], start: str) -> str:
    """The first line that begins so, its columns separated by one space."""
    return next(" ".join(text.split()) for text in lines if text.strip().startswith(start))


def test_the_stages_come_in_the_order_of_the_work() -> None:
    lines = screen(seen())
    places = [next(number for number, text in enumerate(lines) if text.strip().startswith(name)) for name in STAGES]
    assert places == sorted(places)
    assert lines[0] == "MemoryIndex team/mem: Ready (Ready)"
    assert "Not ready because" not in lines


def test_each_stage_has_its_state_reason_and_figures() -> None:
    lines = screen(seen())
    assert line(lines, "extension") == "extension ok Installed pgvector 0.8.5"
    assert line(lines, "schema") == "schema ok Migrated revision 0002"
    assert line(lines, "embedder") == "embedder ok Available 1 of 2 pods ready on cuda"
    assert line(lines, "backfill") == "backfill ok Complete 8,900 of 8,910 rows"
    assert line(lines, "model active") == "model active ok Active all-MiniLM-L6-v2"
    assert line(lines, "9,000 in all") == "9,000 in all: 8,900 embedded, 0 pending, 90 sensitive, 10 quarantined"


def test_rows_without_a_text_are_counted_apart() -> None:
    rows = {"total": 9000, "embedded": 8900, "sensitive": 90, "quarantined": 3, "blank": 7}
    lines = screen(seen(rows=rows))
    assert line(lines, "backfill") == "backfill ok Complete 8,900 of 8,903 rows"
    assert line(lines, "9,000 in all").endswith("90 sensitive, 3 quarantined, 7 without a text")


@pytest.mark.parametrize(("seconds", "said"), [(80, "80 s"), (600, "10 min"), (9000, "2.5 h")])
def test_a_backfill_tells_its_rate_and_the_remaining_time(seconds: int, said: str) -> None:
    rows = {"total": 9000, "embedded": 1000, "pending": 8000}
    lines = screen(seen(rows=rows, backfill={"rowsPerSecond": 35.5, "etaSeconds": seconds}))
    assert line(lines, "backfill") == f"backfill ok Complete 1,000 of 9,000 rows, 35.5 rows/s, about {said} left"


def test_a_swap_shows_the_next_model() -> None:
    lines = screen(seen(model={"active": "small", "next": "large"}))
    assert line(lines, "model active") == "model active ok Active small, next: large"


def test_only_an_object_with_a_graph_has_its_stage_and_its_counts() -> None:
    assert "graph" not in " ".join(screen(seen()))
    counts = {"memories": 1200, "links": 9600, "pending": 7700}
    lines = screen(seen({"GraphReady": ("False", "Filling", "The sync worker fills it.")}, graph=counts))
    assert line(lines, "graph") == "graph waits Filling 9,600 links of 1,200 memories, 7,700 changes wait"
    assert "Not ready because" not in lines, "recalls work without the graph"
    kept = screen(seen({"GraphReady": ("False", "Disabled", "Kept.")}, graph={"links": 9600, "pending": 0}))
    assert line(kept, "graph") == "graph waits Disabled 9,600 links"


def test_a_graph_that_needs_a_person_is_what_keeps_the_object_from_being_ready() -> None:
    cause = ("DatabaseRejected", "The role may not create tables.")
    blocked = {"Ready": ("False", *cause), "Stalled": ("True", *cause), "GraphReady": ("False", *cause)}
    lines = screen(seen(blocked))
    assert lines[lines.index("Not ready because") + 1] == "  graph: The role may not create tables."


def test_a_stalled_stage_is_blocked_and_its_remedy_comes_first() -> None:
    remedy = "Put the password into the Secret."
    lines = screen(
        seen(
            {
                "Ready": ("False", "AuthenticationFailed", remedy),
                "Stalled": ("True", "AuthenticationFailed", remedy),
                "DatabaseReachable": ("False", "Starting", "Another one."),
                "SchemaReady": ("False", "Waiting", "Waits for the database."),
                "EmbedderReady": ("False", "AuthenticationFailed", remedy),
            }
        )
    )
    assert lines[0] == "MemoryIndex team/mem: stalled (AuthenticationFailed)"
    assert line(lines, "database ") == "database waits Starting"
    assert line(lines, "embedder ").startswith("embedder blocked AuthenticationFailed")
    start = lines.index("Not ready because")
    assert lines[start + 1 : start + 4] == [f"  embedder: {remedy}", "  database: Another one.", ""]


def test_an_object_that_is_refused_whole_says_why() -> None:
    """As without consent: the stages are fine, and none of them has the reason."""
    lines = screen(seen({"Ready": ("False", "ConsentMissing", "Run this line.")}))
    assert lines[0] == "MemoryIndex team/mem: not Ready (ConsentMissing)"
    assert line(lines, "ConsentMissing") == "ConsentMissing: Run this line."


def test_an_edit_that_the_operator_has_not_seen_is_not_ready() -> None:
    edited = seen(observedGeneration=2)
    assert not edited.ready
    assert "has not seen the present specification" in screen(edited)[1]


def test_an_object_without_a_status_has_stages_that_are_unknown() -> None:
    nothing = pipeline({"metadata": {"namespace": "team", "name": "mem", "generation": 1}}, None)
    assert [stage.state for stage in nothing.stages] == ["unknown"] * len(STAGES)
    assert not nothing.ready
    assert any("may not list Events" in text for text in screen(nothing))


def test_the_last_events_are_shown_oldest_first() -> None:
    events = [
        {"metadata": {}, "lastTimestamp": f"2026-11-24T10:00:{second:02}Z", "reason": f"R{second}", "message": "m"}
        for second in range(20, 0, -1)
    ]
    found = pipeline({"metadata": {"namespace": "team", "name": "mem", "generation": 1}}, events).events
    assert found is not None
    assert [event.reason for event in found] == ["R16", "R17", "R18", "R19", "R20"]


def test_what_a_terminal_would_obey_is_not_shown() -> None:
    """A message may repeat what a server said."""
    lines = screen(seen({"Ready": ("False", "X", "a\x1b[2Jb\nc\x9b\u202ed")}))
    assert line(lines, "X:") == "X: a\ufffd[2Jb c\ufffd\ufffdd"


def test_the_documented_screen_is_what_is_shown() -> None:
    conditions = {
        "Ready": ("False", "Backfilling", "7,800 rows are pending."),
        "Backfilled": ("False", "Backfilling", "Job claude-memory-backfill-3f9c1a7e embeds the pending rows."),
        "IndexReady": ("False", "Waiting", "Waits for Backfilled."),
    }
    status = {
        "rows": {"total": 9090, "embedded": 1200, "pending": 7800, "sensitive": 90},
        "backfill": {"rowsPerSecond": 35, "etaSeconds": 223},
        "embedder": {"replicas": 1, "readyReplicas": 1, "device": "cuda"},
        "model": {"active": "bge-large-en-v1.5"},
    }
    message = "Started Job claude-memory-backfill-3f9c1a7e (backfill)."
    event = {"type": "Normal", "reason": "JobStarted", "message": message}
    shown = replace(
        seen(conditions, **status),
        namespace="claude-memory",
        name="claude-memory",
        events=(Event(at=NOW, **event),),
    )
    assert "```\n" + "\n".join(screen(shown)) + "\n```\n" in PAGE.read_text()
