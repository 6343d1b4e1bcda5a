"""Renders the state of a MemoryIndex as the lines of one screen."""

from collections.abc import Iterator

from memory_recall.memory_index.pipeline import WAITING, Graph, Pipeline, Rows


def screen(seen: Pipeline) -> list[str]:
    """Return lines with a MemoryIndex's state, its stages, what blocks it and the remedy, its rows and last Events."""
    return [
        *_head(seen),
        "",
        *_stages(seen),
        *_section("Not ready because", _blockers(seen)),
        *_section("Rows", _rows(seen.rows)),
        *_section("Events", _events(seen)),
    ]


def _head(seen: Pipeline) -> list[str]:
    state = "Ready" if seen.ready else "stalled" if seen.stalled else "not Ready"
    reason = f" ({seen.reason})" if seen.reason else ""
    line = f"MemoryIndex {seen.namespace}/{seen.name}: {state}{reason}"
    return [line] if seen.observed else [line, "The operator has not seen the present specification yet."]


def _stages(seen: Pipeline) -> Iterator[str]:
    details = _details(seen)
    names, reasons = (max(map(len, column)) for column in zip(*((s.name, s.reason) for s in seen.stages), strict=True))
    for stage in seen.stages:
        columns = f"{stage.name:<{names}}  {stage.state:<7}  {stage.reason:<{reasons}}  {details.get(stage.name, '')}"
        yield f"  {columns}".rstrip()


def _details(seen: Pipeline) -> dict[str, str]:
    """Return by name of the stage the facts that are shown beside it, such as the version of pgvector."""
    found = {}
    if seen.extension_version:
        found["extension"] = f"pgvector {seen.extension_version}"
    if seen.schema_revision:
        found["schema"] = f"revision {seen.schema_revision}"
    if seen.embedder:
        device = f" on {seen.embedder.device}" if seen.embedder.device else ""
        found["embedder"] = f"{seen.embedder.ready_replicas} of {seen.embedder.replicas} pods ready{device}"
    if seen.rows:
        found["backfill"] = _progress(seen.rows)
    if seen.graph:
        found["graph"] = _linked(seen.graph)
    models = [seen.active_model or "none", *([f"next: {seen.next_model}"] if seen.next_model else [])]
    found["model active"] = ", ".join(models)
    return found


def _linked(graph: Graph) -> str:
    memories = "" if graph.memories is None else f" of {graph.memories:,} memories"
    waiting = f", {graph.pending:,} changes wait" if graph.pending else ""
    return f"{graph.links:,} links{memories}{waiting}"


def _progress(rows: Rows) -> str:
    due = rows.embedded + rows.pending + rows.quarantined
    parts = [f"{rows.embedded:,} of {due:,} rows"]
    if rows.pending and rows.per_second:
        parts.append(f"{rows.per_second:g} rows/s")
    if rows.pending and rows.eta_seconds:
        parts.append(f"about {_duration(rows.eta_seconds)} left")
    return ", ".join(parts)


def _blockers(seen: Pipeline) -> Iterator[str]:
    """Yield a line for each stage that is incomplete for a reason of its own; stages that need a person come first.

    An optional stage that needs nobody keeps no object from being ready, and gets no line. If Ready is False for a
    reason that none of these stages has, its line comes before all.
    """
    required = [stage for stage in seen.stages if stage.state == "blocked" or not stage.optional]
    failing = [stage for stage in required if stage.state != "ok" and stage.reason != WAITING and stage.message]
    if not seen.ready and seen.message and seen.reason not in {stage.reason for stage in failing}:
        yield f"{seen.reason}: {seen.message}"
    for stage in sorted(failing, key=lambda stage: stage.state != "blocked"):
        yield f"{stage.name}: {stage.message}"


def _rows(rows: Rows | None) -> Iterator[str]:
    if rows:
        blank = f", {rows.blank:,} without a text" if rows.blank else ""
        yield (
            f"{rows.total:,} in all: {rows.embedded:,} embedded, {rows.pending:,} pending, "
            f"{rows.sensitive:,} sensitive, {rows.quarantined:,} quarantined{blank}"
        )


def _events(seen: Pipeline) -> Iterator[str]:
    if seen.events is None:
        yield "not shown: your account may not list Events in this namespace"
        return
    for event in seen.events:
        yield f"{event.at}  {event.type:<7}  {event.reason}: {event.message}"


def _section(title: str, lines: Iterator[str]) -> list[str]:
    """Return the title and the lines of a section, or nothing if there are no lines."""
    found = [f"  {line}" for line in lines]
    return ["", title, *found] if found else []


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
