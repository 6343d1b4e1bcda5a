"""The state of one MemoryIndex as frozen types: a pipeline of stages, from the database to the active model.

The operator writes a condition for each stage, in the order in which the work happens. The message of the condition
names the cause and the remedy. All functions of this module are pure, and take objects as the API server returns them.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from memory_recall.visible_text import visible_line

Object = Mapping[str, Any]
State = Literal["ok", "waits", "blocked", "unknown"]

# A test compares these with the operator's table of conditions, which this library cannot import.
STAGES = {
    "database": "DatabaseReachable",
    "extension": "ExtensionReady",
    "schema": "SchemaReady",
    "embedder": "EmbedderReady",
    "backfill": "Backfilled",
    "index": "IndexReady",
    "model active": "ModelActive",
}
_SUMMARIES = ("Ready", "Reconciling", "Stalled")
WAITING = "Waiting"  # the reason of a stage that only waits for an earlier one
LAST_EVENTS = 5


@dataclass(frozen=True)
class Stage:
    """One stage of the operator's work on a MemoryIndex.

    `state` is `ok` if the stage is complete, `blocked` if a person must act, `waits` if the operator goes on by itself,
    and `unknown` if the operator has not reported it. Only objects that have the condition of an `optional` stage have
    the stage, and they can be ready without it.
    """

    name: str
    state: State
    reason: str
    message: str
    optional: bool = False


@dataclass(frozen=True)
class Rows:
    """Counts of the rows, and how fast pending rows are embedded.

    `per_second` and `eta_seconds` are None if the speed has not been measured.
    """

    total: int
    embedded: int
    pending: int
    sensitive: int
    quarantined: int
    blank: int
    per_second: float | None
    eta_seconds: float | None


@dataclass(frozen=True)
class Graph:
    """Counts of the concept graph: memories whose links are up to date, links, and changes that wait for the worker.

    The number of links is an estimate where there are many. `memories` is None for a graph that is only kept.
    """

    memories: int | None
    links: int
    pending: int


@dataclass(frozen=True)
class Embedder:
    """The URL of the embedder, how many of its pods are ready, and the device that it computes on."""

    url: str
    replicas: int
    ready_replicas: int
    device: str


@dataclass(frozen=True)
class Event:
    """A Kubernetes Event about the MemoryIndex."""

    at: str
    type: str
    reason: str
    message: str


@dataclass(frozen=True)
class Pipeline:
    """The stages of a MemoryIndex, its rows, its concept graph, its embedder and its Events, at one moment.

    `observed` says whether the operator has seen the present spec, `ready` whether the condition Ready is True for it,
    and `stalled` whether a person must act. `graph` is None if the database holds no concept graph. `events` is None if
    the user may not list Events.
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
    graph: Graph | None
    active_model: str
    next_model: str
    embedder: Embedder | None
    extension_version: str
    schema_revision: str
    events: tuple[Event, ...] | None


def pipeline(resource: Object, events: Sequence[Object] | None) -> Pipeline:
    """Parse the object and its Events into a `Pipeline`; any part of the object's status may be missing.

    `events` is None if the user may not list Events.
    """
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
        stages=(
            *(_stage(name, conditions.get(kind, {}), stalled) for name, kind in STAGES.items()),
            *(
                _stage(optional_stage(kind), condition, stalled, optional=True)
                for kind, condition in conditions.items()
                if kind not in (*STAGES.values(), *_SUMMARIES)
            ),
        ),
        rows=_rows(status),
        graph=_graph(status.get("graph") or {}),
        active_model=_text(model.get("active")),
        next_model=_text(model.get("next")),
        embedder=_embedder(status.get("embedder") or {}),
        extension_version=_text(database.get("extensionVersion")),
        schema_revision=_text(database.get("schemaRevision")),
        events=None if events is None else _last(events),
    )


def optional_stage(kind: str) -> str:
    """Return the name of the stage of an optional condition: the words of its type, without a last word Ready."""
    words = re.findall("[A-Z][^A-Z]*", _text(kind).removesuffix("Ready"))
    return " ".join(words).lower()


def _stage(name: str, condition: Object, stalled: Object, *, optional: bool = False) -> Stage:
    reason = _text(condition.get("reason"))
    states: dict[object, State] = {"True": "ok", "False": "waits"}
    state = states.get(condition.get("status"), "unknown")
    if state == "waits" and stalled.get("status") == "True" and stalled.get("reason") == reason:
        state = "blocked"
    return Stage(name, state, reason or "not reported yet", _text(condition.get("message")), optional)


def _rows(status: Object) -> Rows | None:
    rows, backfill = status.get("rows"), status.get("backfill") or {}
    if not rows:
        return None
    names = ("total", "embedded", "pending", "sensitive", "quarantined", "blank")
    counts = {name: int(rows.get(name) or 0) for name in names}
    return Rows(**counts, per_second=backfill.get("rowsPerSecond"), eta_seconds=backfill.get("etaSeconds"))


def _graph(found: Object) -> Graph | None:
    if not found:
        return None
    memories = int(found["memories"]) if "memories" in found else None
    return Graph(memories, links=int(found.get("links") or 0), pending=int(found.get("pending") or 0))


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
    """Return the last five Events, oldest first.

    Newer versions of the Events API have `eventTime` in place of `lastTimestamp`.
    """
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
    return visible_line(str(value or ""))
