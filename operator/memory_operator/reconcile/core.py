"""Plan all writes and the status of one MemoryIndex, from its specification and the observed facts.

Each step comes after the steps that it depends on. A step decides from the facts alone, so that work can begin at any
step after a restart or after somebody deleted an object. The steps of a suspended or blocked object are planned, too,
so that its status stays true, but none of their writes is executed.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from memory_operator.api.conditions import ConditionType, Verdict
from memory_operator.api.embedder import COMPONENT
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import MemoryIndex
from memory_operator.reconcile import swap
from memory_operator.reconcile.active_embedder import former_external, needs_swap
from memory_operator.reconcile.authorization.existing_pods import forbidden_embedders
from memory_operator.reconcile.authorization.identity import identified
from memory_operator.reconcile.authorization.permissions import Permitted, permitted_part, with_consent
from memory_operator.reconcile.authorization.refusal import refusal
from memory_operator.reconcile.context import Context
from memory_operator.reconcile.database import plan_database
from memory_operator.reconcile.deletion import plan_deletion, plan_finalizer, with_stops
from memory_operator.reconcile.embedder import plan_embedder, plan_replicas
from memory_operator.reconcile.extension import plan_extension
from memory_operator.reconcile.facts import DeletionFacts, Observed, Recommendation
from memory_operator.reconcile.indexing.backfill import plan_backfill
from memory_operator.reconcile.indexing.graph import plan_graph
from memory_operator.reconcile.indexing.hnsw import plan_index
from memory_operator.reconcile.plan import Plan, Step, manifests, with_admissions, with_full_disk
from memory_operator.reconcile.pod_start import with_overdue_problems
from memory_operator.reconcile.schema import plan_schema
from memory_operator.reconcile.status import status_sections, summary, with_conditions
from memory_operator.reconcile.validation import blocking_verdict
from memory_operator.reconcile.withdrawal import plan_halt, with_halt, with_stopped
from memory_operator.resources.common import Images
from memory_operator.resources.model_fetch import DIRECT, FetchRoute

# Within 60 s of a withdrawn permission no text is sent any more: it is noticed in this time, then pods end.
LONGEST_REQUEUE_SECONDS = 30.0
# Counting a large table takes the database's time: after a second of it the next reconcile waits for twenty.
MAX_QUERY_DUTY_CYCLE = 0.05


@dataclass(frozen=True)
class RequeueIntervals:
    """Seconds until the next reconcile, by the state of the object, unless an event causes an earlier one.

    `stalled` also applies to an object whose embedder is scaled to zero.
    """

    settled: float
    progress: float = 3.0
    stalled: float = 10.0


def acknowledge(index: MemoryIndex, now: datetime) -> Plan | None:
    """Return a plan that writes the first status of a new object before it is observed; None for any other object."""
    if index.deleted_at is not None or index.status.get("conditions"):
        return None
    verdicts = {
        ConditionType.READY: Verdict.unknown(Reason.SEEN, "The operator has seen the object and begins."),
        ConditionType.RECONCILING: Verdict.yes(Reason.PROGRESSING, "The operator begins."),
    }
    status = with_conditions(index, verdicts, index.status, now)
    return Plan(status, requeue_after=0.0, finalizer=True if index.spec.deletion_policy == "Delete" else None)


def reconcile(
    index: MemoryIndex,
    observed: Observed,
    images: Images,
    now: datetime,
    intervals: RequeueIntervals,
    *,
    permitted: Permitted,
    route: FetchRoute = DIRECT,
) -> Plan:
    """Decide what to write and what to report for an object that is not being deleted."""
    observed = with_overdue_problems(index, observed, now)
    permitted = with_consent(permitted, observed.consented_hosts)
    database = plan_database(index, observed, now)
    if observed.database_facts is not None and database.verdict.holds:
        index = identified(index, observed.cluster, observed.database_facts, observed.kubernetes)
    else:
        observed = replace(observed, database=None)  # the facts may be those of another database than the specified one
    forbidden = forbidden_embedders(observed, permitted)
    context = Context(index, observed, images, now, permitted, route, forbidden)
    refused = refusal(context, database=database.verdict)
    blocked = refused or blocking_verdict(index, observed.database_facts)
    paused = Verdict.no(Reason.SUSPENDED, "The object is suspended.") if index.spec.suspend else blocked
    replicas, recommendation = _replicas(context, paused=paused is not None)
    steps = _steps(context, database=database, replicas=replicas)
    graph = plan_graph(context, schema=steps[ConditionType.SCHEMA_READY].verdict)
    if graph:
        steps = {**steps, ConditionType.GRAPH_READY: graph}
    steps = with_full_disk(with_admissions(steps, observed), observed)
    wanted = () if refused else manifests(steps.values())
    if paused:
        steps = {kind: _paused(step, paused) for kind, step in steps.items()}
    planned = tuple(action for step in steps.values() for action in step.actions)
    halt = plan_halt(context, refused, resumes=paused is None, replicas=replicas, planned=planned)
    steps = with_halt(context, steps, halt, refused)
    blocked = with_stopped(refused, halt) if refused else blocked
    verdicts = {kind: step.verdict for kind, step in steps.items()}
    totals = summary(verdicts, blocked, suspended=index.spec.suspend, written=index.status, now=now)
    status = with_conditions(index, {**totals, **verdicts}, status_sections(index, observed, replicas=replicas), now)
    plan = Plan(
        status, _requeue_after({**totals, **verdicts}, intervals, observed, now), steps,
        wanted=wanted, recommendation=None if paused else recommendation,
    )  # fmt: skip
    return replace(plan, finalizer=plan_finalizer(index, observed, plan.actions))


def conclude(
    index: MemoryIndex,
    facts: DeletionFacts,
    images: Images,
    now: datetime,
    intervals: RequeueIntervals,
    *,
    permitted: Permitted,
) -> Plan:
    """Decide what to write and what to report for an object that is being deleted and carries our finalizer.

    What its author may not choose is left out of the objects that the deletion makes, because a refusal would keep the
    object from ever being deleted.
    """
    if facts.observed:
        permitted = with_consent(permitted, facts.observed.consented_hosts)
    index = permitted_part(index, permitted)
    if facts.observed:
        facts = replace(facts, observed=with_overdue_problems(index, facts.observed, now))
    context = None
    if facts.observed:
        forbidden = forbidden_embedders(facts.observed, permitted)
        context = Context(index, facts.observed, images, now, permitted, forbidden=forbidden)
    ending = plan_deletion(index, facts, context)
    step = with_stops(context, ending.step) if context and not ending.last else ending.step
    steps = {ConditionType.READY: step}
    if ending.last:
        return Plan(None, intervals.settled, steps, finalizer=False, left_behind=ending.left_behind)
    totals = summary({ConditionType.READY: ending.step.verdict}, None, suspended=False, written=index.status, now=now)
    status = with_conditions(index, totals, index.status, now)
    return Plan(status, _requeue_after(totals, intervals, facts.observed, now), steps)


def _steps(context: Context, *, database: Step, replicas: int) -> dict[ConditionType, Step]:
    index, observed = context.index, context.observed
    extension = plan_extension(index, observed)
    if observed.database_facts is not None and needs_swap(index, observed.database_facts):
        before = {ConditionType.DATABASE_REACHABLE: database, ConditionType.EXTENSION_READY: extension}
        return swap.plan_swap(context, before=before, replicas=replicas)
    former = former_external(index, observed, context.permitted)
    schema = plan_schema(context, extension=extension.verdict, former=former)
    embedder = plan_embedder(context, database=database.verdict, replicas=replicas)
    backfill = plan_backfill(context, schema=schema.verdict, embedder=embedder.verdict)
    steps = {
        ConditionType.DATABASE_REACHABLE: database,
        ConditionType.EXTENSION_READY: extension,
        ConditionType.SCHEMA_READY: schema,
        ConditionType.EMBEDDER_READY: embedder,
        ConditionType.BACKFILLED: backfill,
        ConditionType.INDEX_READY: plan_index(context, schema=schema.verdict),
    }
    return swap.plan_model(context, steps=steps)


def _replicas(context: Context, *, paused: bool) -> tuple[int, Recommendation | None]:
    """Return the number of the embedder's pods and the recommendation for later ones, as `plan_replicas` does."""
    index, observed = context.index, context.observed
    at_least = 1 if observed.referring or swap.gate_asks_active_embedder(context) else 0
    replicas, recommendation = plan_replicas(index, observed, context.now, at_least=at_least)
    if paused and observed.embedder:
        replicas = observed.embedder.replicas
    return 0 if COMPONENT in context.forbidden else replicas, recommendation


def _paused(step: Step, paused: Verdict) -> Step:
    """Return what `step` becomes while the MemoryIndex is paused: the same condition, but no writes."""
    if step.verdict.holds or not step.actions:
        return Step(step.verdict)
    return Step(Verdict.no(Reason.WAITING, f"Not begun: {paused.message}"))


def outage_delay(unreachable_since: datetime | None, now: datetime) -> float:
    """Return the seconds until the next connection attempt: as many as the database has been away, at most 30."""
    if unreachable_since is None:
        return 0.0
    return min(LONGEST_REQUEUE_SECONDS, (now - unreachable_since).total_seconds())


def _requeue_after(
    verdicts: dict[ConditionType, Verdict], intervals: RequeueIntervals, observed: Observed | None, now: datetime
) -> float:
    """Return the seconds until the next reconcile, at most 30.

    The state of the object decides, and whether its concept graph is being filled. After slow queries the wait is
    longer, so that queries take only a small part of the time, and so it is while the database does not answer.
    """
    wanted, graph = intervals.settled, verdicts.get(ConditionType.GRAPH_READY)
    if verdicts[ConditionType.STALLED].holds or verdicts[ConditionType.READY].reason is Reason.SCALED_TO_ZERO:
        wanted = min(intervals.stalled, wanted)  # neither a changed Secret nor a recall causes an event
    elif verdicts[ConditionType.RECONCILING].holds or (graph and graph.reason is Reason.FILLING):
        wanted = min(intervals.progress, wanted)
    if observed is not None:
        outage = outage_delay(observed.unreachable_since, now)
        wanted = max(wanted, outage, observed.query_seconds / MAX_QUERY_DUTY_CYCLE)
    return min(LONGEST_REQUEUE_SECONDS, wanted)
