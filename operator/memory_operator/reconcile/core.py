"""One decision from beginning to end.

The steps follow the order in which the work depends on itself; each looks at the facts alone, so any of them may be
entered at any time, after a restart or after somebody deleted something. A blocked or suspended object goes through
the same steps, so that its status stays true, but none of their writes is carried out.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from memory_operator.api.conditions import WORK_CONDITIONS, ConditionType, Truth, Verdict, render
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import FINALIZER, Manifest, MemoryIndex
from memory_operator.reconcile import report, scaling, swapping
from memory_operator.reconcile.backfill import filled
from memory_operator.reconcile.database import reachable
from memory_operator.reconcile.deletion import remove
from memory_operator.reconcile.embedder import serving
from memory_operator.reconcile.extension import present
from memory_operator.reconcile.hnsw import indexed
from memory_operator.reconcile.jobs import active
from memory_operator.reconcile.observed import Observed, Recommendation
from memory_operator.reconcile.plan import Action, Plan, SetFinalizer
from memory_operator.reconcile.schema import migrated
from memory_operator.reconcile.step import Step
from memory_operator.reconcile.validation import blocked
from memory_operator.resources.common import Images

PROGRESS_SECONDS = 3.0
STALLED_SECONDS = 10.0


@dataclass(frozen=True)
class Pace:
    """How soon to look again when nothing wakes us."""

    settled: float
    progress: float = PROGRESS_SECONDS
    stalled: float = STALLED_SECONDS


def reconcile(index: MemoryIndex, seen: Observed, images: Images, now: datetime, pace: Pace) -> Plan:
    """Decide what to write and what to report."""
    if index.deleted_at is not None:
        return _delete(index, seen, images, now, pace)
    if not index.status.get("conditions"):
        return _first_sight(index, now)
    database = reachable(index, seen)
    if not database.verdict.holds:
        seen = replace(seen, database=None)  # facts of another database than the one that is meant decide nothing
    replicas, recommendation = _replicas(index, seen, now)
    steps = _steps(index, seen, images, now, database=database, replicas=replicas)
    block = blocked(index, seen.facts)
    held = Verdict.no(Reason.SUSPENDED, "The object is suspended.") if index.spec.suspend else block
    actions: tuple[Action, ...] = () if held else tuple(action for step in steps.values() for action in step.actions)
    if FINALIZER not in index.finalizers:
        actions = (SetFinalizer(present=True), *actions)
    verdicts = {kind: _held(step, held) if held else step.verdict for kind, step in steps.items()}
    summary = _suspended(verdicts, block) if index.spec.suspend else _summary(verdicts, block)
    status = {
        "observedGeneration": index.generation,
        "conditions": render(
            {**summary, **verdicts}, index.status.get("conditions") or (), generation=index.generation, now=now
        ),
        **report.facts(index, seen, replicas=replicas),
    }
    return Plan(actions, status, _again(summary, pace), None if held else recommendation)


def refuse(manifest: Manifest, verdict: Verdict, now: datetime) -> Manifest:
    """The status of an object that cannot even be read: the old one with its summary replaced."""
    metadata, status = manifest["metadata"], manifest.get("status") or {}
    verdicts = {
        ConditionType.READY: verdict,
        ConditionType.RECONCILING: Verdict.no(Reason.SETTLED, "Nothing is being done."),
        ConditionType.STALLED: _stalled(verdict),
    }
    generation = metadata.get("generation", 0)
    conditions = render(verdicts, status.get("conditions") or (), generation=generation, now=now)
    written = {condition["type"] for condition in conditions}
    kept = [condition for condition in status.get("conditions") or () if condition["type"] not in written]
    return {**status, "observedGeneration": generation, "conditions": [*conditions, *kept]}


def _first_sight(index: MemoryIndex, now: datetime) -> Plan:
    verdicts = {
        ConditionType.READY: Verdict.unknown(Reason.SEEN, "The operator has seen the object and begins."),
        ConditionType.RECONCILING: Verdict.yes(Reason.PROGRESSING, "The operator begins."),
    }
    conditions = render(verdicts, (), generation=index.generation, now=now)
    status = {**index.status, "observedGeneration": index.generation, "conditions": conditions}
    actions = () if FINALIZER in index.finalizers else (SetFinalizer(present=True),)
    return Plan(actions, status, again_seconds=0.0)


def _steps(
    index: MemoryIndex, seen: Observed, images: Images, now: datetime, *, database: Step, replicas: int
) -> dict[ConditionType, Step]:
    extension = present(index, seen)
    if seen.facts is not None and swapping.wanted(index, seen.facts):
        before = {ConditionType.DATABASE_REACHABLE: database, ConditionType.EXTENSION_READY: extension}
        return swapping.swap_steps(index, seen, images, now, before=before)
    schema = migrated(index, seen, images, now, extension=extension.verdict)
    embedder = serving(index, seen, images, database=database.verdict, replicas=replicas)
    backfill = filled(index, seen, images, now, schema=schema.verdict, embedder=embedder.verdict)
    hnsw = indexed(index, seen, images, now, backfill=backfill.verdict)
    steps = dict(zip(WORK_CONDITIONS, (database, extension, schema, embedder, backfill, hnsw), strict=True))
    return swapping.settled(index, seen, images, now, steps=steps)


def _replicas(index: MemoryIndex, seen: Observed, now: datetime) -> tuple[int, Recommendation | None]:
    embedder = index.spec.embedder
    if not index.runs_embedder:
        return 0, None
    bounds = scaling.Bounds(
        minimum=embedder.min_replicas,
        maximum=max(embedder.max_replicas, embedder.min_replicas),
        target_seconds=embedder.target_queue_seconds,
        delay_seconds=embedder.scale_down_delay_seconds,
    )
    current = seen.embedder.replicas if seen.embedder else None
    needed = scaling.needed(
        seen.loads,
        bounds,
        current=current or 0,
        bulk_workers=index.spec.backfill.parallelism if active(seen.jobs_of("backfill")) else 0,
        pending=seen.facts is None or seen.facts.rows.pending > 0,
    )
    desired = scaling.desired_replicas(needed, bounds, current=current, history=seen.recommendations, now=now)
    return desired, Recommendation(now, needed)


def _held(step: Step, held: Verdict) -> Verdict:
    """The verdict of a step whose writes are not carried out."""
    if step.verdict.holds or not step.actions:
        return step.verdict
    return Verdict.no(Reason.WAITING, f"Not begun: {held.message}")


def _summary(verdicts: dict[ConditionType, Verdict], block: Verdict | None) -> dict[ConditionType, Verdict]:
    """Ready, Reconciling and Stalled, from the first thing that does not hold."""
    failing = [block] if block else [verdict for verdict in verdicts.values() if not verdict.holds]
    if not failing:
        return {
            ConditionType.READY: Verdict.yes(Reason.READY, "Every row is embedded and the index is valid."),
            ConditionType.RECONCILING: Verdict.no(Reason.SETTLED, "Nothing is left to do."),
            ConditionType.STALLED: Verdict.no(Reason.NOT_STALLED, "Nobody needs to act."),
        }
    stalling = next((verdict for verdict in failing if verdict.stalls), None)
    first = stalling or failing[0]
    progressing = Verdict.yes(Reason.PROGRESSING, first.text)
    resting = Verdict.no(first.reason, "The operator waits for a person.", remedy="")
    return {
        ConditionType.READY: replace(first, truth=Truth.FALSE),
        ConditionType.RECONCILING: resting if stalling else progressing,
        ConditionType.STALLED: _stalled(first),
    }


def _stalled(verdict: Verdict) -> Verdict:
    if verdict.stalls:
        return Verdict.yes(verdict.reason, verdict.text)
    return Verdict.no(Reason.NOT_STALLED, "Nobody needs to act.")


def _suspended(verdicts: dict[ConditionType, Verdict], block: Verdict | None) -> dict[ConditionType, Verdict]:
    failing = [block] if block else [verdict for verdict in verdicts.values() if not verdict.holds]
    truth = Truth.FALSE if failing else Truth.TRUE
    beneath = f" {failing[0].text}" if failing else ""
    message = f"The object is suspended; nothing is changed.{beneath}"
    return {
        ConditionType.READY: Verdict(truth, Reason.SUSPENDED, message),
        ConditionType.RECONCILING: Verdict.no(Reason.SUSPENDED, "The object is suspended."),
        ConditionType.STALLED: Verdict.no(Reason.NOT_STALLED, "Nobody needs to act."),
    }


def _again(summary: dict[ConditionType, Verdict], pace: Pace) -> float:
    if summary[ConditionType.STALLED].holds:
        return min(pace.stalled, pace.settled)
    return min(pace.progress, pace.settled) if summary[ConditionType.RECONCILING].holds else pace.settled


def _delete(index: MemoryIndex, seen: Observed, images: Images, now: datetime, pace: Pace) -> Plan:
    if FINALIZER not in index.finalizers:
        return Plan((), None, pace.settled)
    step = remove(index, seen, images, now)
    if any(isinstance(action, SetFinalizer) for action in step.actions):
        return Plan(step.actions, None, pace.settled)
    summary = {
        ConditionType.READY: step.verdict,
        ConditionType.RECONCILING: Verdict.yes(Reason.DELETING, step.verdict.text),
        ConditionType.STALLED: _stalled(step.verdict),
    }
    conditions = render(summary, index.status.get("conditions") or (), generation=index.generation, now=now)
    status = {**index.status, "observedGeneration": index.generation, "conditions": conditions}
    return Plan(step.actions, status, min(pace.progress, pace.settled))
