"""Decide GraphReady: a Job enables the concept graph, and the sync worker fills it.

The graph is optional, and recalls work without it. Therefore an object without a graph has no such condition, and while
the graph is being enabled or filled the object is Ready all the same; only what needs a person makes the object stall.
A sync worker that gets nowhere with the queue of changed memories for two minutes is reported, as it is for rows.

Whether a Job is needed is read from the database: the graph is not enabled, or one of its rules is missing or altered.
`graph.enabled: false` drops the graph where the deletion policy is `Delete`. With `Retain` its tables stay, and so do
the triggers that remove links; nothing is added, and recalls leave the graph out. An object that is deleted with
`Retain` pauses its graph in this way, because nobody would deal with the queue of changed memories any more.
"""

from dataclasses import replace

from memory_operator.api.conditions import ConditionType, Verdict, by_type
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import Graph, MemoryIndex
from memory_operator.reconcile.context import Context
from memory_operator.reconcile.facts import Observed
from memory_operator.reconcile.indexing.backfill import IDLE_LIMIT
from memory_operator.reconcile.jobs import JobRequest, active_job, plan_job
from memory_operator.reconcile.plan import Step, waiting_for
from memory_operator.resources import workers
from memory_recall.graph import GraphState

NO_GRAPH = GraphState()
KEPT = Verdict.no(
    Reason.DISABLED, "spec.deletionPolicy is Retain, so the graph's tables stay; nothing is added, no recall uses them."
)


def plan_graph(context: Context, *, schema: Verdict) -> Step | None:
    """Return the verdict on the concept graph, with the Job that enables or disables it.

    The result is None if no graph is wanted and none is left in the database.
    """
    index, facts = context.index, context.observed.database_facts
    if facts is None or not schema.holds:
        return waiting_for("the database" if facts is None else "the schema") if may_have_graph(index) else None
    graph = facts.graph or NO_GRAPH
    request = _request(index, graph, opposed=_is_opposed(context))
    if request:
        return plan_job(context, request)
    if index.spec.graph.enabled:
        return Step(_filling(context, graph))
    return Step(KEPT) if graph.exists else None


def may_have_graph(index: MemoryIndex) -> bool:
    """Return whether there may be a concept graph in the database, by the specification and the last status."""
    return index.spec.graph.enabled or ConditionType.GRAPH_READY in by_type(index.status.get("conditions") or ())


def plan_pause(context: Context) -> Step | None:
    """Return the step that pauses the graph of a MemoryIndex that is being deleted; None if there is nothing to pause.

    The deletion policy of the MemoryIndex is `Retain`.
    """
    index, facts = context.index, context.observed.database_facts
    spec = index.spec.model_copy(update={"graph": Graph(enabled=False)})
    context = replace(context, index=index.model_copy(update={"spec": spec}))
    graph = (facts.graph if facts else None) or NO_GRAPH
    request = _request(context.index, graph, opposed=_is_opposed(context))
    if request is None:
        return None
    request = replace(request, reason=Reason.DELETING, activity="pauses the concept graph")
    return plan_job(context, request)


def _request(index: MemoryIndex, graph: GraphState, *, opposed: bool) -> JobRequest | None:
    """Return the Job that brings the graph into the specified state; None if the graph is in this state.

    `opposed` says that a Job still runs that would take the graph out of this state.
    """
    reason, activity = Reason.RULES_MISSING, f"restores the rules of the graph: {graph.differences}"
    if index.spec.graph.enabled:
        if opposed or not (graph.enabled and graph.queued):
            reason, activity = Reason.ENABLING, "enables the concept graph"
        elif not graph.differences:
            return None
    elif not (opposed or graph.exists):
        return None
    elif index.spec.deletion_policy == "Delete":
        reason, activity = Reason.DISABLING, "drops the concept graph"
    elif opposed or not graph.kept:
        reason, activity = Reason.DISABLING, "disables the concept graph and keeps its tables"
    elif not graph.differences:
        return None
    return JobRequest(workers.GRAPH, workers.graph_job, reason, activity)


def _is_opposed(context: Context) -> bool:
    running = active_job(context.observed.jobs_of(workers.GRAPH))
    wanted = workers.work_of(workers.config_fingerprint(context.index, context.images, workers.GRAPH))
    return running is not None and workers.work_of(running.config) != wanted


def pending_changes(observed: Observed) -> int:
    """Return the number of changes that the sync worker should deal with now, which is 0 while it has no pod."""
    graph = observed.database_facts.graph if observed.database_facts else None
    if graph is None or not graph.queued or graph.differences or observed.sync is None or observed.sync.replicas == 0:
        return 0
    return graph.pending


def _filling(context: Context, graph: GraphState) -> Verdict:
    index, observed = context.index, context.observed
    name = f"Deployment {index.namespace}/{index.name}-sync"
    if graph.pending and observed.graph_idle_since and context.now - observed.graph_idle_since >= IDLE_LIMIT:
        use = "use the graph without them" if graph.filled else "do without the graph"
        return Verdict.no(
            Reason.GRAPH_NOT_PROGRESSING,
            f"{name} has dealt with none of the {graph.pending} changes that are pending for the concept graph for "
            f"{IDLE_LIMIT.total_seconds():g} s; recalls {use}.",
        )
    if graph.filled:
        rest = "; the sync worker links the memories that were added or changed lately" if graph.pending else ""
        return Verdict.yes(Reason.FILLED, f"Recalls use the concept graph{rest}.")
    if observed.sync is None or observed.sync.replicas == 0:
        return Verdict.no(Reason.WAITING, f"{name} fills the graph, and has no pod now.")
    return Verdict.no(Reason.FILLING, "The sync worker fills the graph; recalls do without it meanwhile.")
