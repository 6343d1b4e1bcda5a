"""Decide what the operator deletes with a MemoryIndex: all that Kubernetes does not collect, but no user data.

Kubernetes collects the children in the object's own namespace. A CloudNativePG Database object in another namespace is
deleted by the operator, and its reclaim policy keeps the database. With `deletionPolicy: Delete` the operator first
stops the workers and drops what the migrations added. With `Retain` it pauses an enabled concept graph, whose queue of
changed memories would grow for ever, and gives up an open swap, which would for ever drop the vectors that others than
our workers write; this is tried for two minutes at most. All this is done only by the MemoryIndex that has claimed the
table. Before all of this, a deletion waits until no other MemoryIndex uses the embedder of this one, and under
foreground deletion until Kubernetes has deleted the children. Neither this time nor one in which no operator ran counts
towards the two minutes, since nothing was tried in it. The finalizer stays only while something is left that the
operator can undo, or has to name: a swap that has flipped and is not finished. If the namespace, the Cluster or the
Secret is gone for good, the finalizer is removed, and an Event says what is left behind.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

from memory_operator.api.conditions import ConditionStatus, Verdict
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import FINALIZER, MemoryIndex
from memory_operator.reconcile.authorization.claims import check_claim, is_claimed_by
from memory_operator.reconcile.authorization.consent import no_database_consent, users_of
from memory_operator.reconcile.authorization.database_tls import plan_database_ca
from memory_operator.reconcile.authorization.identity import identified
from memory_operator.reconcile.authorization.permissions import first_refused
from memory_operator.reconcile.authorization.refusal import WRONG_DATABASE
from memory_operator.reconcile.context import Context
from memory_operator.reconcile.database import plan_database
from memory_operator.reconcile.facts import DeletionFacts, JobState, Observed, Problem
from memory_operator.reconcile.indexing.graph import may_have_graph, plan_pause
from memory_operator.reconcile.jobs import JobRequest, plan_job, until_pods_end
from memory_operator.reconcile.plan import Action, Apply, Delete, Step, apply_drifted, delete_existing
from memory_operator.reconcile.swap_abort import is_unfinished, may_be_open, may_be_unfinished, open_swap, plan_abort
from memory_operator.reconcile.withdrawal import forbidden_of, resume, resume_embedders, stop_all
from memory_operator.resources import cnpg, workers
from memory_operator.resources.network_policies import worker_policy
from memory_operator.resources.worker_pods import ASKING
from memory_recall.status import DatabaseFacts
from memory_recall.swap.machine import Stage

WRITERS = {"backfill", "graph", "index", "migrate", "swap", "swap-abort", "sync"}
GONE_FOR_GOOD = {Reason.SECRET_MISSING, Reason.CLUSTER_MISSING, Reason.CNPG_MISSING}
# Others may deliver a Secret or a Cluster again: External Secrets refreshes, GitOps applies in any order.
GONE_AFTER = timedelta(seconds=120)
SETTLED_WITHIN = timedelta(seconds=120)  # after which an object is deleted although its graph or swap goes on
_DROPPED = "vectors that are written by others than our workers are dropped"
FOREGROUND = "foregroundDeletion"  # Kubernetes' finalizer while it deletes the children first


@dataclass(frozen=True)
class Ending:
    """The next step of a deletion, and whether it is the last one.

    After the last step the finalizer is removed, even if the API server refuses a write of that step. `left_behind`
    says what the deletion leaves undone.
    """

    step: Step
    last: bool = False
    left_behind: tuple[str, ...] = ()


def plan_finalizer(index: MemoryIndex, observed: Observed, actions: tuple[Action, ...]) -> bool | None:
    """Return True to add our finalizer, False to remove it, or None to leave it as it is.

    The finalizer is removed only if the operator knows that Kubernetes will collect every Database object that the
    operator made for the MemoryIndex, that there is no concept graph to pause and no swap to give up or to name, and
    that no other MemoryIndex uses its embedder.
    """
    applied = [one.manifest for one in actions if isinstance(one, Apply) and one.manifest["kind"] == "Database"]
    made = [item for item in observed.database_objects if cnpg.is_made_for(index, item) and not item.deleting]
    owners = [cnpg.owner_uids(manifest) for manifest in applied] + [item.owner_uids for item in made]
    facts = observed.database_facts
    graph = index.spec.graph.enabled or (facts is not None and facts.graph is not None and facts.graph.enabled)
    swap = facts is not None and is_unfinished(index, facts)
    undone = index.spec.deletion_policy == "Delete" or graph or swap or any(index.uid not in uids for uids in owners)
    wanted = undone or bool(observed.referring)
    if wanted == (FINALIZER in index.finalizers):
        return None
    may_be = may_have_graph(index) or may_be_unfinished(index)
    unknown = isinstance(observed.cluster, Problem) or (facts is None and may_be)
    return wanted if wanted or not unknown else None


def plan_deletion(index: MemoryIndex, facts: DeletionFacts, context: Context | None) -> Ending:
    """Return the next step of the deletion; the last step comes with what the deletion leaves behind.

    `context` has the facts that were observed for it, and is None if none were. While other objects use the embedder,
    nothing is undone yet, and the embedder goes on as it is; but the workers are stopped, and a namespace can always be
    deleted.
    """
    if _is_used(facts):
        message = f"The deletion waits, since its embedder is used by {users_of(facts.referring)}."
        return Ending(Step(Verdict.no(Reason.EMBEDDER_IN_USE, message)))
    undo = _drop_or_leave if index.spec.deletion_policy == "Delete" else _settle_or_leave
    step, left = undo(index, facts, context)
    if step is not None:
        return Ending(step)
    if facts.database_objects is None and index.cluster:
        left.append(f"The operator may not read Database objects in {index.cluster[0]}, where one of its own may stay.")
    made = [item for item in facts.database_objects or () if cnpg.is_made_for(index, item) and not item.deleting]
    deletions = tuple(Delete("Database", item.namespace, item.name, item.uid) for item in made)
    step = Step(Verdict.no(Reason.DELETING, "The object is being deleted."), deletions)
    return Ending(step, last=True, left_behind=tuple(left))


def waits_for_others(index: MemoryIndex, facts: DeletionFacts) -> bool:
    """Return whether the deletion cannot undo anything yet.

    It waits while other objects use the embedder, or while Kubernetes deletes the object's children first (foreground
    deletion).
    """
    return _is_used(facts) or FOREGROUND in index.finalizers


def _is_used(facts: DeletionFacts) -> bool:
    return bool(facts.referring) and not facts.namespace_terminating


def with_stops(context: Context, step: Step) -> Step:
    """Return a step of the deletion that also stops what sends texts: nothing is embedded for an object that goes.

    If the object may not use its Cluster or a Secret any more, or if the connection URI leads elsewhere, every Job is
    stopped, and so is each one whose pods were made with a choice that is not permitted any more. Any other Job that
    was stopped goes on, since the deletion may wait for it. An embedder, which others may use until then, is stopped
    only while its own pods must not run.
    """
    index, observed = context.index, context.observed
    database = plan_database(index, observed, context.now).verdict
    refused = no_database_consent(observed) or database.reason in WRONG_DATABASE
    jobs = [job for job in observed.jobs if job.state is JobState.ACTIVE and not job.deleting]
    stopped = [
        job for job in jobs if refused or job.component in ASKING or first_refused(job.choices, context.permitted)
    ]
    stops: tuple[Action, ...] = (
        *(Delete("Job", index.namespace, job.name, job.uid) for job in stopped),
        *delete_existing(observed, ("Deployment", f"{index.name}-sync")),
        *stop_all(index.namespace, None, (), forbidden_of(context)).actions,
    )
    ended = {one.uid for one in (*stops, *step.actions) if isinstance(one, Delete)}
    resumes = (*resume(index.namespace, (job for job in jobs if job.uid not in ended)), *resume_embedders(context))
    return replace(step, actions=(*(one for one in stops if one not in step.actions), *resumes, *step.actions))


def _drop_or_leave(index: MemoryIndex, facts: DeletionFacts, context: Context | None) -> tuple[Step | None, list[str]]:
    """Return the next step that undoes the migrations, if one is left, and texts that name what cannot be undone."""
    cause = _out_of_reach(facts, context)
    if cause:
        return None, [_left_in_database(index, cause)]
    if context is None:
        return None, []
    step = _undo_migrations(context)
    unclaimed = step is None and _is_unclaimed(index, context.observed)
    return step, [_left_in_database(index, "this MemoryIndex has not claimed the table")] if unclaimed else []


def _settle_or_leave(
    index: MemoryIndex, facts: DeletionFacts, context: Context | None
) -> tuple[Step | None, list[str]]:
    """Return the next step of what `Retain` ends in the database, if one is left, and texts about what stays there.

    An enabled concept graph is paused, and an open swap is given up. A swap that has flipped is only named: to finish
    it would drop the vectors of the former model, and whoever still writes vectors of that model would mix them with
    those of the active one.
    """
    observed = context.observed.database_facts if context else None
    is_open = may_be_open(index) or (observed is not None and open_swap(observed) is not None)
    left = []
    for may_be, plan, text in (
        (may_have_graph(index), _pause_graph, _left_enabled),
        (is_open, _give_up_swap, _left_open),
    ):
        step, cause = _attempt(facts, context, plan) if may_be else (None, "")
        if step:
            return step, []
        left += [text(index, cause)] if cause else []
    return None, [*left, *_left_flipped(index, observed)]


def _attempt(
    facts: DeletionFacts, context: Context | None, plan: Callable[[Context], Step | None]
) -> tuple[Step | None, str]:
    """Return the step that `plan` decides on, or why it is not waited for; neither if nothing is to be done."""
    if facts.namespace_terminating:
        return None, "the object's namespace is being deleted"
    if context is None:
        return None, "the operator may not read what this takes"
    step = plan(context)
    if step and _lasts(facts, context) >= SETTLED_WITHIN:
        return None, step.verdict.message.rstrip(".")
    return step, ""


def _out_of_reach(facts: DeletionFacts, context: Context | None) -> str:
    """Return why the migrations can no longer be undone; an empty string if they can be or need not be undone."""
    if facts.namespace_terminating:
        return "the object's namespace is being deleted"
    if context is None or _lasts(facts, context) < GONE_AFTER:
        return ""
    problems = (context.observed.credentials, context.observed.cluster)
    gone = (one for one in problems if isinstance(one, Problem) and one.reason in GONE_FOR_GOOD)
    return next((one.message.rstrip(".") for one in gone), "")


def _lasts(facts: DeletionFacts, context: Context) -> timedelta:
    """Return how long it has been tried to undo what is to be undone."""
    return context.now - (facts.undoing_since or context.now)


def _left_in_database(index: MemoryIndex, cause: str) -> str:
    return (
        f"What the migrations added for table {index.spec.database.table} stays in {_database(index)}, since {cause}; "
        "`memory migrate --to base --yes` drops it."
    )


def _database(index: MemoryIndex) -> str:
    where = " of Cluster {}/{}".format(*index.cluster) if index.cluster else ""
    return f"database {index.spec.database.name}{where}"


def _left_enabled(index: MemoryIndex, cause: str) -> str:
    return (
        f"The concept graph of table {index.spec.database.table} in {_database(index)} was not paused, since {cause}. "
        "If it is still enabled, its queue grows with each change of a memory; `memory graph disable --keep` pauses it."
    )


def _left_open(index: MemoryIndex, cause: str) -> str:
    return (
        f"A swap of table {index.spec.database.table} in {_database(index)} was not given up, since {cause}. If it is "
        f"still open, {_DROPPED}; `memory swap abort --yes` gives it up."
    )


def _left_flipped(index: MemoryIndex, facts: DatabaseFacts | None) -> list[str]:
    """Return a text about a swap that has flipped and is not finished; none if there is no such swap.

    Where the database was not read, the last status tells.
    """
    models = index.status.get("model") or {}
    active, former = models.get("active"), models.get("previous")
    if facts is not None:
        flipped = facts.swap if facts.swap and facts.swap.stage == Stage.FLIPPED else None
        active, former = facts.active_name, flipped.from_model.name if flipped else None
        former = former if is_claimed_by(index, facts) else None
    text = (
        f"The swap of table {index.spec.database.table} in {_database(index)} from {former} to {active} is not "
        f"finished: the vectors of {former} are kept for the way back, and until it is, {_DROPPED}. Once they are of "
        f"{active}, `memory swap finish --yes` finishes it."
    )
    return [text] if former else []


def _pause_graph(context: Context) -> Step | None:
    """Return the next step that pauses the concept graph; None if none is enabled, or the table is not claimed."""
    return _in_claimed_table(context, "pause the concept graph", lambda known, _: plan_pause(known))


def _give_up_swap(context: Context) -> Step | None:
    """Return the next step that gives up an open swap; None if none is open, or the table is not claimed."""

    def plan(known: Context, facts: DatabaseFacts) -> Step | None:
        return plan_abort(known, facts, reason=Reason.DELETING) if open_swap(facts) else None

    return _in_claimed_table(context, "give up the swap", plan)


def _in_claimed_table(
    context: Context, what: str, plan: Callable[[Context, DatabaseFacts], Step | None]
) -> Step | None:
    """Return the step that `plan` decides on; None if nothing is to be done, or the table is not claimed.

    If the database can not be used, the step says so; `what` names what is not done then.
    """
    index, observed = context.index, context.observed
    database, facts = plan_database(index, observed, context.now).verdict, observed.database_facts
    if not database.holds:
        message = f"Cannot {what}: {database.message}"
        return Step(replace(database, status=ConditionStatus.FALSE, message=message))
    if facts is None or facts.schema_revision is None or not is_claimed_by(index, facts):
        return None
    known = identified(index, observed.cluster, facts, observed.kubernetes)
    step = plan(replace(context, index=known), facts)
    return _guarded(index, observed, step) if step else None


def _guarded(index: MemoryIndex, observed: Observed, step: Step) -> Step:
    """Return a step that creates a Job, with the NetworkPolicy of its pods created before it.

    Under foreground deletion the step waits until Kubernetes has deleted the children, among them this NetworkPolicy. A
    Job that is made earlier would be deleted with the other children, perhaps in the middle of its work.
    """
    if FOREGROUND in index.finalizers:
        return Step(Verdict.no(Reason.DELETING, "Waiting until Kubernetes has deleted the children."))
    ports = () if isinstance(observed.credentials, Problem) else observed.credentials.ports
    before = (*plan_database_ca(index, observed), *apply_drifted(observed, worker_policy(index, ports)))
    return replace(step, actions=(*before, *step.actions))


def _undo_migrations(context: Context) -> Step | None:
    """Return the next step that undoes the migrations; None if they are undone, or the table is not claimed."""
    index, observed = context.index, context.observed
    database, facts = plan_database(index, observed, context.now).verdict, observed.database_facts
    if not database.holds:
        remedy = database.reason.remedy if database.remedy is None else database.remedy
        retain = "To leave the data behind instead, set spec.deletionPolicy to Retain."
        message = f"Cannot undo the migrations: {database.message}"
        return Step(replace(database, status=ConditionStatus.FALSE, message=message, remedy=f"{remedy} {retain}"))
    if facts is None or facts.schema_revision is None or not _may_undo(index, observed, facts):
        return None
    index = identified(index, observed.cluster, facts, observed.kubernetes)
    stops = _stop_workers(index, observed)
    if stops:
        return Step(Verdict.no(Reason.DELETING, "Stopping the workers before the migrations are undone."), stops)
    if any(pod.component in WRITERS and not pod.ended for pod in observed.pods):
        return until_pods_end(observed, WRITERS, Verdict.no(Reason.DELETING, "Waiting for the workers' pods to end."))
    request = JobRequest("uninstall", workers.uninstall_job, Reason.DELETING, "drops what the migrations added")
    return _guarded(index, observed, plan_job(replace(context, index=index), request))


def _may_undo(index: MemoryIndex, observed: Observed, facts: DatabaseFacts) -> bool:
    """Return whether the MemoryIndex has claimed the table, or has begun to undo the migrations and so lost its claim.

    The Job drops the claim together with our own tables, before the revision. Migrations of a table without a claim,
    or with a claim that has ended, may be those of the command line or of an object whose vectors were to be kept.
    """
    return is_claimed_by(index, facts) or (facts.claim is None and bool(observed.jobs_of("uninstall")))


def _is_unclaimed(index: MemoryIndex, observed: Observed) -> bool:
    """Return whether the table has migrations, and belongs neither to this MemoryIndex nor to another one."""
    facts = observed.database_facts
    if facts is None or facts.schema_revision is None or is_claimed_by(index, facts):
        return False
    return check_claim(index, observed) is None


def _stop_workers(index: MemoryIndex, observed: Observed) -> tuple[Action, ...]:
    jobs = [job for job in observed.jobs if job.component in WRITERS and not job.deleting]
    active = [job for job in jobs if job.state is JobState.ACTIVE]
    stops = (Delete("Job", index.namespace, job.name, job.uid) for job in active)
    return (*stops, *delete_existing(observed, ("Deployment", f"{index.name}-sync")))
