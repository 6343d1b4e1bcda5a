"""Decide everything for one object, from its specification and the observed facts.

The steps follow the order in which the work depends on itself. Each decides from the facts alone, so any of them can
come first after a restart or after somebody deleted something. A suspended or blocked object goes through the same
steps, so that its status stays true, but none of their writes is executed.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from memory_operator.api.conditions import WORK_CONDITIONS, ConditionType, Verdict
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import FINALIZER, MemoryIndex
from memory_operator.reconcile import swap
from memory_operator.reconcile.backfill import plan_backfill
from memory_operator.reconcile.database import plan_database
from memory_operator.reconcile.deletion import plan_deletion
from memory_operator.reconcile.embedder import plan_embedder, plan_replicas
from memory_operator.reconcile.extension import plan_extension
from memory_operator.reconcile.facts import Observed
from memory_operator.reconcile.hnsw import plan_index
from memory_operator.reconcile.plan import Action, Plan, SetFinalizer, Step
from memory_operator.reconcile.schema import plan_schema
from memory_operator.reconcile.status import stalled, status_sections, summary, with_conditions
from memory_operator.reconcile.validation import blocking_verdict
from memory_operator.resources.common import Images


@dataclass(frozen=True)
class RequeueIntervals:
    """Seconds until the next reconcile where no event causes an earlier one; `stalled` serves at zero pods, too."""

    settled: float
    progress: float = 3.0
    stalled: float = 10.0


def acknowledge(index: MemoryIndex, now: datetime) -> Plan | None:
    """Return the first status of a new object, which is written before anything is observed; else None."""
    if index.deleted_at is not None or index.status.get("conditions"):
        return None
    verdicts = {
        ConditionType.READY: Verdict.unknown(Reason.SEEN, "The operator has seen the object and begins."),
        ConditionType.RECONCILING: Verdict.yes(Reason.PROGRESSING, "The operator begins."),
    }
    return Plan(_add_finalizer(index), with_conditions(index, verdicts, index.status, now), requeue_after=0.0)


def reconcile(
    index: MemoryIndex, observed: Observed, images: Images, now: datetime, intervals: RequeueIntervals
) -> Plan:
    """Decide what to write and what to report."""
    if index.deleted_at is not None:
        return _delete(index, observed, images, now, intervals)
    database = plan_database(index, observed)
    if not database.verdict.holds:
        observed = replace(observed, database=None)  # the facts may be those of another database than the specified one
    blocked = blocking_verdict(index, observed.database_facts)
    paused = Verdict.no(Reason.SUSPENDED, "The object is suspended.") if index.spec.suspend else blocked
    replicas, recommendation = plan_replicas(index, observed, now)
    if paused and observed.embedder:
        replicas = observed.embedder.replicas
    steps = _steps(index, observed, images, now, database=database, replicas=replicas)
    actions: tuple[Action, ...] = () if paused else tuple(action for step in steps.values() for action in step.actions)
    verdicts = {kind: _paused(step, paused) if paused else step.verdict for kind, step in steps.items()}
    totals = summary(verdicts, blocked, suspended=index.spec.suspend, written=index.status, now=now)
    status = with_conditions(index, {**totals, **verdicts}, status_sections(index, observed, replicas=replicas), now)
    return Plan(
        (*_add_finalizer(index), *actions), status, _requeue_after(totals, intervals),
        None if paused else recommendation,
    )  # fmt: skip


def _add_finalizer(index: MemoryIndex) -> tuple[Action, ...]:
    return () if FINALIZER in index.finalizers else (SetFinalizer(present=True),)


def _steps(
    index: MemoryIndex, observed: Observed, images: Images, now: datetime, *, database: Step, replicas: int
) -> dict[ConditionType, Step]:
    extension = plan_extension(index, observed)
    if observed.database_facts is not None and swap.needs_swap(index, observed.database_facts):
        before = {ConditionType.DATABASE_REACHABLE: database, ConditionType.EXTENSION_READY: extension}
        return swap.plan_swap(index, observed, images, now, before=before)
    schema = plan_schema(index, observed, images, now, extension=extension.verdict)
    embedder = plan_embedder(index, observed, images, database=database.verdict, replicas=replicas)
    backfill = plan_backfill(index, observed, images, now, schema=schema.verdict, embedder=embedder.verdict)
    hnsw = plan_index(index, observed, images, now, schema=schema.verdict)
    steps = dict(zip(WORK_CONDITIONS, (database, extension, schema, embedder, backfill, hnsw), strict=True))
    return swap.plan_model(index, observed, images, now, steps=steps)


def _paused(step: Step, paused: Verdict) -> Verdict:
    """Return the verdict of a step whose writes are not executed."""
    if step.verdict.holds or not step.actions:
        return step.verdict
    return Verdict.no(Reason.WAITING, f"Not begun: {paused.message}")


def _requeue_after(totals: dict[ConditionType, Verdict], intervals: RequeueIntervals) -> float:
    if totals[ConditionType.STALLED].holds or totals[ConditionType.READY].reason is Reason.SCALED_TO_ZERO:
        return min(intervals.stalled, intervals.settled)  # neither a changed Secret nor a recall causes an event
    return min(intervals.progress, intervals.settled) if totals[ConditionType.RECONCILING].holds else intervals.settled


def _delete(index: MemoryIndex, observed: Observed, images: Images, now: datetime, intervals: RequeueIntervals) -> Plan:
    if FINALIZER not in index.finalizers:
        return Plan((), None, intervals.settled)
    step = plan_deletion(index, observed, images, now)
    if any(isinstance(action, SetFinalizer) for action in step.actions):
        return Plan(step.actions, None, intervals.settled)
    verdicts = {
        ConditionType.READY: step.verdict,
        ConditionType.RECONCILING: Verdict.yes(Reason.DELETING, step.verdict.text),
        ConditionType.STALLED: stalled(step.verdict),
    }
    status = with_conditions(index, verdicts, index.status, now)
    return Plan(step.actions, status, min(intervals.progress, intervals.settled))
