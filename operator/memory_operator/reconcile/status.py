"""Build the status of a MemoryIndex that a reconcile writes.

While the database does not answer, the status keeps the last written row counts, so that an outage does not look like
an empty table. Rates are rounded to two significant digits, which also avoids writes for meaningless changes.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from memory_operator.api.conditions import (
    OPTIONAL_CONDITIONS,
    STAGES,
    ConditionStatus,
    ConditionType,
    Verdict,
    overdue,
    render,
)
from memory_operator.api.embedder import COMPONENT
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import ANNOTATION_RECONCILE_AT, Manifest, MemoryIndex
from memory_operator.reconcile.facts import EmbedderLoad, Observed
from memory_operator.reconcile.jobs import active_job
from memory_operator.reconcile.plan import Plan
from memory_operator.resources.common import selector
from memory_operator.resources.embedder import embedder_url
from memory_recall.graph import GraphState
from memory_recall.status import DatabaseFacts, RowCounts
from memory_recall.swap.machine import Stage
from memory_recall.visible_text import visible_line

REQUEST_LIMIT = 64  # characters of an annotation's value that are repeated in the status
# The maxLength of each field of the status that is a text, as the custom resource definition has it.
LONGEST_TEXTS = {
    "active": 253, "next": 253, "previous": 253, "embeddedPercent": 16, "job": 253, "url": 2048, "ready": 32,
    "selector": 512, "device": 253, "extensionVersion": 64, "schemaRevision": 64, "systemIdentifier": 32,
    "clusterName": 64, "tableSchema": 63,
}  # fmt: skip
_LARGEST_INTEGER = 2**63 - 1
NOT_STALLED = Verdict.no(Reason.NOT_STALLED, "Nobody needs to act.")


def with_conditions(
    index: MemoryIndex, verdicts: Mapping[ConditionType, Verdict], sections: Manifest, now: datetime
) -> Manifest:
    """Return the status to write: `sections`, the verdicts as conditions, and what they were decided for.

    That is the generation of the specification, and the last reconcile that somebody has requested.
    """
    written = index.status.get("conditions") or ()
    conditions = _visible(render(verdicts, written, generation=index.generation, now=now))
    return {
        **{name: _fitted(section) for name, section in sections.items()},
        **_handled(index.requested_at),
        "observedGeneration": index.generation,
        "conditions": conditions,
    }


def refuse(manifest: Manifest, verdict: Verdict, now: datetime) -> Manifest:
    """Return the last written status with `verdict` as the condition Ready, and Reconciling and Stalled to match.

    This status is for an object that cannot be read or observed.
    """
    written = manifest.get("status") or {}
    verdicts = {
        ConditionType.READY: verdict,
        ConditionType.RECONCILING: Verdict.no(Reason.SETTLED, "Nothing is being done.")
        if verdict.stalls
        else Verdict.yes(Reason.PROGRESSING, verdict.text),
        ConditionType.STALLED: stalled(verdict),
    }
    generation = manifest["metadata"].get("generation", 0)
    requested_at = (manifest["metadata"].get("annotations") or {}).get(ANNOTATION_RECONCILE_AT, "")
    conditions = _visible(render(verdicts, written.get("conditions") or (), generation=generation, now=now))
    kept = [condition for condition in written.get("conditions") or () if condition["type"] not in verdicts]
    return {**written, **_handled(requested_at), "observedGeneration": generation, "conditions": [*conditions, *kept]}


def with_refusals(index: MemoryIndex, plan: Plan, refusals: Mapping[ConditionType, Verdict], now: datetime) -> Manifest:
    """Return the plan's status with the refusals of the Kubernetes API server.

    Each refusal replaces the verdict of the step whose write the API server refused.
    """
    verdicts = {kind: step.verdict for kind, step in plan.steps.items()}
    verdicts |= refusals
    totals = summary(verdicts, None, suspended=False, written=index.status, now=now)
    return with_conditions(index, {**totals, **verdicts}, plan.status or index.status, now)


def summary(
    verdicts: Mapping[ConditionType, Verdict],
    blocked: Verdict | None,
    *,
    suspended: bool,
    written: Manifest,
    now: datetime,
) -> dict[ConditionType, Verdict]:
    """Return the verdicts of Ready, Reconciling and Stalled, taken from the most important verdict that does not hold.

    A verdict that stalls the object comes first, and an embedder scaled to zero comes last. Grace periods are counted
    from the transition times in the `written` status. An optional condition counts only while it stalls the object.
    """
    previous = written.get("conditions") or ()
    failing = {
        kind: verdict
        for kind, verdict in verdicts.items()
        if not verdict.holds and (kind not in OPTIONAL_CONDITIONS or overdue(kind, verdict, previous, now))
    }
    if suspended:
        return _suspended_summary(blocked or next(iter(failing.values()), None))
    if not failing and not blocked:
        return {
            ConditionType.READY: Verdict.yes(Reason.READY, _ready_text(verdicts)),
            ConditionType.RECONCILING: _reconciling_while_ready(verdicts),
            ConditionType.STALLED: NOT_STALLED,
        }
    stalling = blocked or next((v for kind, v in failing.items() if overdue(kind, v, previous, now)), None)
    first = stalling or min(failing.values(), key=lambda verdict: verdict.reason is Reason.SCALED_TO_ZERO)
    reconciling = Verdict.yes(Reason.PROGRESSING, first.text)
    if stalling:
        reconciling = Verdict.no(first.reason, "The operator waits for a person.", remedy="")
    elif first.reason is Reason.SCALED_TO_ZERO:
        reconciling = Verdict.no(first.reason, "Nothing is left to do.", remedy="")
    return {
        ConditionType.READY: replace(first, status=ConditionStatus.FALSE),
        ConditionType.RECONCILING: reconciling,
        ConditionType.STALLED: stalled(first) if stalling else NOT_STALLED,
    }


def stalled(verdict: Verdict) -> Verdict:
    """Return the verdict of the condition Stalled, which is True if `verdict` stalls the object."""
    return Verdict.yes(verdict.reason, verdict.text) if verdict.stalls else NOT_STALLED


def _ready_text(verdicts: Mapping[ConditionType, Verdict]) -> str:
    """Return the messages about the rows and about the index, since rows may be pending or given up meanwhile."""
    stages = (ConditionType.BACKFILLED, ConditionType.INDEX_READY)
    return " ".join(verdicts[kind].text for kind in stages)


def _reconciling_while_ready(verdicts: Mapping[ConditionType, Verdict]) -> Verdict:
    for kind, stage in STAGES.items():
        optional = verdicts.get(kind) if stage.optional else None
        if optional and not optional.holds and optional.reason not in stage.nothing_to_do:
            return Verdict.yes(Reason.PROGRESSING, optional.text)
    return Verdict.no(Reason.SETTLED, "Nothing is left to do.")


def _suspended_summary(failing: Verdict | None) -> dict[ConditionType, Verdict]:
    status = ConditionStatus.FALSE if failing else ConditionStatus.TRUE
    cause = f" {failing.text}" if failing else ""
    message = f"The object is suspended; nothing is changed.{cause}"
    return {
        ConditionType.READY: Verdict(status, Reason.SUSPENDED, message),
        ConditionType.RECONCILING: Verdict.no(Reason.SUSPENDED, "The object is suspended."),
        ConditionType.STALLED: NOT_STALLED,
    }


def _handled(requested_at: str) -> Manifest:
    return {"lastHandledReconcileAt": visible_line(requested_at)[:REQUEST_LIMIT]} if requested_at else {}


def status_sections(index: MemoryIndex, observed: Observed, *, replicas: int) -> Manifest:
    """Return the sections of the status: rows, graph, model, database, backfill and embedder."""
    sections = {
        **_database(index, observed.database_facts),
        "backfill": _backfill(observed),
        "embedder": _embedder(index, observed, replicas),
    }
    return {name: section for name, section in sections.items() if section}


def embedded_percent(rows: RowCounts) -> str:
    """Return the percentage of embedded rows among those that may have a vector, rounded down, so 100% means all."""
    wanted = rows.embedded + rows.pending + rows.quarantined
    if wanted == 0:
        return "100%"
    share = math.floor(1000 * rows.embedded / wanted) / 10
    return f"{share:g}%"


def round_to_two_digits(value: float) -> float:
    """Round a rate to two significant digits; a negative rate becomes 0."""
    if value <= 0:
        return 0.0
    digits = 1 - math.floor(math.log10(value))
    return round(value, digits)


def _database(index: MemoryIndex, facts: DatabaseFacts | None) -> dict[str, Any]:
    """Return what is shown of the database; of what could not be read or counted, what was shown before."""
    if facts is None:
        return {name: index.status.get(name) for name in ("rows", "graph", "model", "database")}
    return {
        "rows": index.status.get("rows") if facts.rows.uncounted else _rows(facts.rows),
        "graph": _graph(facts.graph),
        "model": _models(facts),
        "database": _without_none(
            {
                "extensionVersion": facts.extension_version,
                "schemaRevision": facts.schema_revision,
                "indexValid": facts.index.valid,
                "systemIdentifier": facts.system_identifier,
                "clusterName": facts.cluster_name,
                "tableSchema": facts.table_schema or None,
            }
        ),
    }


def _rows(rows: RowCounts) -> Manifest:
    return {
        "total": rows.total,
        "embedded": rows.embedded,
        "pending": rows.pending,
        "sensitive": rows.sensitive,
        "quarantined": rows.quarantined,
        "truncated": rows.truncated,
        "embeddedPercent": embedded_percent(rows),
        **({"blank": rows.blank} if rows.blank else {}),
        **({"withoutWords": rows.without_words} if rows.without_words else {}),
    }


def _models(facts: DatabaseFacts) -> Manifest:
    flipped = facts.swap if facts.swap and facts.swap.stage == Stage.FLIPPED else None
    return _without_none(
        {
            "active": facts.active_name,
            "next": facts.next_model.name if facts.next_model else None,
            "previous": flipped.from_model.name if flipped else None,
        }
    )


def _graph(state: GraphState | None) -> Manifest:
    """Return the counts of the concept graph; of a kept graph nobody knows how many memories it is about."""
    if state is None or not state.exists:
        return {}
    counts = {"links": state.links, "pending": state.pending}
    return counts if state.kept else {"memories": state.memories, **counts}


def _backfill(observed: Observed) -> Manifest:
    running = active_job(observed.jobs_of("backfill"))
    if running is None:
        return {}
    section: Manifest = {"job": running.name}
    rate = observed.rows_per_second
    if rate and observed.database_facts:
        section["rowsPerSecond"] = round_to_two_digits(rate)
        section["etaSeconds"] = int(round_to_two_digits(observed.database_facts.rows.pending / rate))
    return section


def _embedder(index: MemoryIndex, observed: Observed, replicas: int) -> Manifest:
    section: Manifest = {"url": embedder_url(index)}
    if index.runs_embedder:
        ready = observed.embedder.ready if observed.embedder else 0
        section |= {
            "replicas": observed.embedder.replicas if observed.embedder else 0,
            "readyReplicas": ready,
            "ready": f"{ready}/{replicas}",
            "selector": ",".join(f"{key}={value}" for key, value in sorted(selector(index, COMPONENT).items())),
        }
    return section | (_device(observed.loads) or (_last_device(index) if index.runs_embedder else {}))


def _device(loads: tuple[EmbedderLoad, ...]) -> Manifest:
    """Return the device that embedder pods compute on; the CPU if pods differ, because the CPU is the slowest."""
    known = sorted(
        (load for load in loads if load.device), key=lambda load: (load.device != "cpu", load.device or "", load.pod)
    )
    if not known:
        return {}
    offloaded = [load.gpu_layers_offloaded for load in known if load.gpu_layers_offloaded is not None]
    return _without_none({"device": known[0].device, "gpuLayersOffloaded": min(offloaded) if offloaded else None})


def _last_device(index: MemoryIndex) -> Manifest:
    last = index.status.get("embedder") or {}
    return {key: last[key] for key in ("device", "gpuLayersOffloaded") if key in last}


def _visible(conditions: Iterable[Manifest]) -> list[Manifest]:
    """Return the conditions with each message, which may quote a server, as one line without control characters."""
    return [{**condition, "message": visible_line(condition["message"])} for condition in conditions]


def _fitted(section: Any) -> Any:  # noqa: ANN401 - a section of the status, or an entry of the written one
    """Return a section with each text as one visible line of its field's length, and each number as an int64.

    Servers choose many of these values. One that does not fit its field would make the whole status unwritable.
    """
    if not isinstance(section, dict):
        return section
    return {name: _fitted_value(name, value) for name, value in section.items()}


def _fitted_value(name: str, value: object) -> object:
    if isinstance(value, str):
        return visible_line(value)[: LONGEST_TEXTS[name]]
    return min(value, _LARGEST_INTEGER) if isinstance(value, int) and not isinstance(value, bool) else value


def _without_none(section: dict[str, Any]) -> Manifest:
    return {key: value for key, value in section.items() if value is not None}
