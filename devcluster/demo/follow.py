"""Turns the status of a `MemoryIndex` object into what a person watches: conditions, rows, remaining time.

These are pure functions of the object as the Kubernetes API server returns it. The caller polls and prints.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.markup import escape
from rich.table import Table

from memory_recall.memory_index.pipeline import STAGES

CONDITIONS = (*STAGES.values(), "Ready")
STYLES = {"True": "green", "False": "yellow", "Unknown": "dim"}


@dataclass(frozen=True)
class Condition:
    """One condition of a MemoryIndex."""

    status: str = "Unknown"
    reason: str = ""
    message: str = ""


@dataclass(frozen=True)
class View:
    """The status of a MemoryIndex at one moment."""

    observed: bool
    conditions: Mapping[str, Condition]
    total: int
    embedded: int
    pending: int
    sensitive: int
    rows_per_second: float | None
    eta_seconds: float | None

    def condition(self, kind: str) -> Condition:
        """Return the condition of type `kind`; its status is Unknown if the operator has not written it yet."""
        return self.conditions.get(kind, Condition())

    @property
    def ready(self) -> bool:
        """Whether the MemoryIndex is Ready in its present generation."""
        return self.observed and self.condition("Ready").status == "True"

    @property
    def stalled(self) -> Condition | None:
        """The condition Stalled if its status is True, so that a person must act; None for any other status."""
        stalled = self.condition("Stalled")
        return stalled if stalled.status == "True" else None

    @property
    def fraction(self) -> float | None:
        """Share of the rows that have their vector, from 0 to 1, or None if no row is to have one."""
        due = self.embedded + self.pending
        return self.embedded / due if due else None


def view(obj: Mapping[str, Any]) -> View:
    """Parse the status of a MemoryIndex; every part of the status may be missing."""
    status = obj.get("status") or {}
    rows, backfill = status.get("rows") or {}, status.get("backfill") or {}
    return View(
        observed=status.get("observedGeneration") == obj["metadata"].get("generation"),
        conditions={
            entry["type"]: Condition(entry["status"], entry.get("reason", ""), entry.get("message", ""))
            for entry in status.get("conditions") or ()
        },
        total=int(rows.get("total") or 0),
        embedded=int(rows.get("embedded") or 0),
        pending=int(rows.get("pending") or 0),
        sensitive=int(rows.get("sensitive") or 0),
        rows_per_second=_number(backfill.get("rowsPerSecond")),
        eta_seconds=_number(backfill.get("etaSeconds")),
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float | str) and value != "" else None


def changes(before: View | None, after: View) -> list[str]:
    """Return a log line for each condition whose status or reason changed between two views."""
    lines = []
    for kind in CONDITIONS:
        now = after.condition(kind)
        then = before.condition(kind) if before else Condition()
        if (now.status, now.reason) != (then.status, then.reason):
            lines.append(f"{kind}={now.status} {now.reason}: {now.message}".rstrip(": "))
    return lines


def summary(seen: View) -> str:
    """Describe the progress of the MemoryIndex in one line."""
    if not seen.total:
        return "waiting for the operator" if not seen.conditions else _blocker(seen)
    parts = [f"{seen.embedded} of {seen.embedded + seen.pending} rows"]
    if seen.rows_per_second:
        parts.append(f"{seen.rows_per_second:.0f} rows/s")
    if seen.eta_seconds:
        parts.append(f"about {seen.eta_seconds:.0f} s left")
    return ", ".join(parts) if seen.pending else f"{parts[0]}, {_blocker(seen)}"


def _blocker(seen: View) -> str:
    for kind in CONDITIONS:
        now = seen.condition(kind)
        if now.status != "True":
            return f"{kind}: {now.reason}" if now.reason else f"{kind}: not reported yet"
    return "settled"


def table(seen: View) -> Table:
    """Return a table of the conditions for a terminal."""
    grid = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 4))
    for kind in CONDITIONS:
        now = seen.condition(kind)
        style = STYLES.get(now.status, "")
        message = now.message if now.status != "True" else ""
        grid.add_row(kind, f"[{style}]{now.status}[/]", now.reason, f"[dim]{escape(message)}[/]")
    return grid
