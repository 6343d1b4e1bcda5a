"""What one MemoryIndex says of its pipeline: each stage from the database to the active model, in a frozen form.

The operator writes a condition for each stage, in the order in which the work happens; its message names the cause and
the remedy. These are pure functions of the objects as the API server returns them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Object = Mapping[str, Any]
State = Literal["ok", "waits", "blocked", "unknown"]

STAGES = {
    "database": "DatabaseReachable",
    "extension": "ExtensionReady",
    "schema": "SchemaReady",
    "embedder": "EmbedderReady",
    "backfill": "Backfilled",
    "index": "IndexReady",
    "model active": "ModelActive",
}
WAITING = "Waiting"  # the reason of a stage that only waits for an earlier one
LAST_EVENTS = 5


@dataclass(frozen=True)
class Stage:
    """One stage. It is `blocked` where a person must act, and `waits` where the operator goes on by itself."""

    name: str
    state: State
    reason: str
    message: str


@dataclass(frozen=True)
class Rows:
    """Counts of the rows, and how fast the pending ones are embedded; None where nothing is measured."""

    total: int
    embedded: int
    pending: int
    sensitive: int
    quarantined: int
    per_second: float | None
    eta_seconds: float | None


@dataclass(frozen=True)
class Embedder:
    """Where the embedder is, how many of its pods are ready, and what computes there."""

    url: str
    replicas: int
    ready_replicas: int
    device: str


@dataclass(frozen=True)
class Event:
    """A Kubernetes Event about the object."""

    at: str
    type: str
    reason: str
    message: str


@dataclass(frozen=True)
class Pipeline:
    """A MemoryIndex at one moment.

    `ready` is whether its condition Ready is true for the present specification, `observed` whether the operator has
    seen that specification, and `stalled` whether a person must act. `events` is None if they may not be listed.
    """

    namespace: str
    name: str
    ready: bool
    observed: bool
    stalled: bool
    reason: str
    message: str
    stages: tuple[Stage, ...]
    rows: Rows | None
    active_model: str
    next_model: str
    embedder: Embedder | None
    extension_version: str
    schema_revision: str
    events: tuple[Event, ...] | None


def pipeline(resource: Object, events: Sequence[Object] | None) -> Pipeline:
    """Return what a MemoryIndex and its Events say; every part of the status may be missing."""
    meta, status = resource["metadata"], resource.get("status") or {}
    conditions = {str(entry.get("type")): entry for entry in status.get("conditions") or ()}
    ready, stalled = conditions.get("Ready", {}), conditions.get("Stalled", {})
    observed = status.get("observedGeneration") == meta.get("generation")
    model, database = status.get("model") or {}, status.get("database") or {}
    return Pipeline(
        namespace=meta["namespace"],
        name=meta["name"],
        ready=observed and ready.get("status") == "True",
        observed=observed,
        stalled=stalled.get("status") == "True",
        reason=_text(ready.get("reason")),
        message=_text(ready.get("message")),
        stages=tuple(_stage(name, conditions.get(kind, {}), stalled) for name, kind in STAGES.items()),
        rows=_rows(status),
        active_model=_text(model.get("active")),
        next_model=_text(model.get("next")),
        embedder=_embedder(status.get("embedder") or {}),
        extension_version=_text(database.get("extensionVersion")),
        schema_revision=_text(database.get("schemaRevision")),
        events=None if events is None else _last(events),
    )


def _stage(name: str, condition: Object, stalled: Object) -> Stage:
    reason = _text(condition.get("reason"))
    states: dict[object, State] = {"True": "ok", "False": "waits"}
    state = states.get(condition.get("status"), "unknown")
    if state == "waits" and stalled.get("status") == "True" and stalled.get("reason") == reason:
        state = "blocked"
    return Stage(name, state, reason or "not reported yet", _text(condition.get("message")))


def _rows(status: Object) -> Rows | None:
    rows, backfill = status.get("rows"), status.get("backfill") or {}
    if not rows:
        return None
    counts = {name: int(rows.get(name) or 0) for name in ("total", "embedded", "pending", "sensitive", "quarantined")}
    return Rows(**counts, per_second=backfill.get("rowsPerSecond"), eta_seconds=backfill.get("etaSeconds"))


def _embedder(found: Object) -> Embedder | None:
    if not found:
        return None
    return Embedder(
        url=_text(found.get("url")),
        replicas=int(found.get("replicas") or 0),
        ready_replicas=int(found.get("readyReplicas") or 0),
        device=_text(found.get("device")),
    )


def _last(events: Sequence[Object]) -> tuple[Event, ...]:
    """Return the last Events, oldest first. Newer API versions have `eventTime` in place of `lastTimestamp`."""
    found = [
        Event(
            at=_text(
                event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp")
            ),
            type=_text(event.get("type")),
            reason=_text(event.get("reason")),
            message=_text(event.get("message")),
        )
        for event in events
    ]
    return tuple(sorted(found, key=lambda event: event.at)[-LAST_EVENTS:])


def _text(value: object) -> str:
    """Return a text of the object, each character that a terminal would obey replaced by a space."""
    return "".join(character if character.isprintable() else " " for character in str(value or ""))
