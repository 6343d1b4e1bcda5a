"""Decide ModelActive: replace the active model if `spec.embedding` names another model.

While the swap lasts, the pods of the active model's embedder and of the sync worker stay as they are, because the
specification no longer describes them. Only their number changes: the embedder's follows the queued work, with at least
one pod while the gate has still to ask it, and the sync worker runs whenever no backfill Job does. A Deployment whose
pods are of another model than the active one is not scaled. The next model gets a second embedder. A Job fills a second
vector column, measures recall with it and makes the next model active. Then the ordinary embedder is rolled out with
the new model while the second embedder serves. Running memory servers connect to the ordinary address once the database
records that this address serves the new model. After that record the second embedder is deleted.

An external embedder needs no second one: the Job sends texts to it. After a flip to its model the ordinary embedder is
deleted, and the sync worker gets its key. While a swap leaves an embedder beyond the cluster, the sync worker goes on
sending texts there only as long as that is still allowed.
"""

from dataclasses import replace
from functools import partial

from memory_operator.api.conditions import ConditionType, Verdict
from memory_operator.api.embedder import COMPONENT
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import MemoryIndex
from memory_operator.reconcile.active_embedder import (
    former_external,
    gate_obstacle,
    needs_swap,
    permitted_embedder,
    plan_active_embedder,
    withdrawal,
)
from memory_operator.reconcile.authorization.consent import users_of
from memory_operator.reconcile.context import Context
from memory_operator.reconcile.embedder import delete_embedder, with_unused_gpu
from memory_operator.reconcile.embedder_tls import certificate_obstacle
from memory_operator.reconcile.facts import JobFacts, JobState, Observed, Problem
from memory_operator.reconcile.indexing.backfill import standstill, sync_verdict
from memory_operator.reconcile.indexing.hnsw import VALID_INDEX
from memory_operator.reconcile.jobs import JobRequest, active_job, plan_job, pod_problem, running_message
from memory_operator.reconcile.model_file.fetch import plan_fetch
from memory_operator.reconcile.plan import Action, Apply, Delete, Step, apply_drifted, failed_step, waiting_for
from memory_operator.reconcile.pod_start import missing_pod
from memory_operator.reconcile.rollout import (
    embeds,
    rollout_obstacle,
    with_live_template,
)
from memory_operator.reconcile.schema import plan_schema
from memory_operator.reconcile.swap_abort import delete_next_embedder, leads_elsewhere, open_swap, plan_abort, plan_stop
from memory_operator.resources import embedder as resources
from memory_operator.resources import workers
from memory_operator.resources.network_policies import embedder_policy
from memory_operator.resources.worker_pods import ConfiguredEmbedder
from memory_recall.schema.models_sql import RecordedModel
from memory_recall.status import DatabaseFacts
from memory_recall.swap.machine import Stage
from memory_recall.swap.state_sql import SwapRecord

Steps = dict[ConditionType, Step]
GATE_REASONS = {Reason.SWAP_REFUSED, Reason.SWAP_UNDECIDED}


def gate_asks_active_embedder(context: Context) -> bool:
    """Return whether the gate of a swap has still to ask the embedder of the active model, which then needs a pod."""
    index, observed = context.index, context.observed
    facts = observed.database_facts
    if facts is None or observed.embedder is None or not needs_swap(index, facts):
        return False
    return index.spec.swap.gate is not None and not _is_refused(context, facts)


def plan_swap(context: Context, *, before: Steps, replicas: int) -> Steps:
    """Return all steps while the swap lasts; `before` holds the steps of DatabaseReachable and ExtensionReady.

    `replicas` is the number of pods that the active model's embedder needs.
    """
    index, observed, permitted = context.index, context.observed, context.permitted
    facts = observed.database_facts
    if facts is None:
        return {**before, ConditionType.MODEL_ACTIVE: waiting_for("the database")}
    former, extension = former_external(index, observed, permitted), before[ConditionType.EXTENSION_READY].verdict
    schema = plan_schema(context, extension=extension, former=former)
    embedder = plan_active_embedder(context, facts, replicas=replicas)
    ready = all(step.verdict.holds for step in (*before.values(), schema))
    waits = gate_obstacle(index, observed, facts, context.forbidden.get(COMPONENT, embedder.verdict))
    served_by = permitted_embedder(index, observed, permitted)
    swap = waiting_for("the database")
    if ready:
        swap = _swap(context, facts, waits=waits, served_by=served_by)
    withdrawn = withdrawal(index, observed, facts, permitted)
    no_index = "The HNSW index of the active model is not valid; the swap builds a new one."
    return {
        **before,
        ConditionType.SCHEMA_READY: schema,
        ConditionType.EMBEDDER_READY: embedder,
        ConditionType.BACKFILLED: _sync(
            context, facts, schema=schema.verdict, embedder=embedder.verdict, withdrawn=withdrawn
        ),
        ConditionType.INDEX_READY: Step(VALID_INDEX if facts.index.valid else Verdict.no(Reason.WAITING, no_index)),
        ConditionType.MODEL_ACTIVE: swap,
    }


def plan_model(context: Context, *, steps: Steps) -> Steps:
    """Return the steps of an object that needs no swap, with the step of ModelActive added.

    The step also cleans up after a swap that was given up or has succeeded.
    """
    index, observed = context.index, context.observed
    facts, wanted = observed.database_facts, index.spec.embedding.model
    active = facts.active_model if facts else None
    if facts is None or active is None:
        step = waiting_for("the database" if facts is None else "the schema")
    elif open_swap(facts):
        step = plan_abort(context, facts)
    elif ("Deployment", f"{index.name}-{resources.NEXT_COMPONENT}") in observed.children:
        return _hand_over(index, observed, active, steps)
    else:  # the Service and the NetworkPolicy of a second embedder may be left, whose Deployment is gone or never was
        leftovers = delete_embedder(index, observed, resources.NEXT_COMPONENT)
        step = Step(Verdict.yes(Reason.ACTIVE, f"Recalls use {wanted}."), leftovers)
    return {**steps, ConditionType.MODEL_ACTIVE: step}


def _sync(context: Context, facts: DatabaseFacts, *, schema: Verdict, embedder: Verdict, withdrawn: str) -> Step:
    """Return the step of the condition Backfilled: who gives new rows vectors of the active model, if anybody.

    The sync worker has no pod while a backfill Job runs that was started before the swap. If texts may no longer be
    sent to the active model's embedder, neither the Job nor the sync worker goes on; `withdrawn` says why, or is empty.
    """
    index, observed = context.index, context.observed
    active, name = facts.active_name or "", f"{index.name}-sync"
    live, backfill = observed.children.get(("Deployment", name)), active_job(observed.jobs_of("backfill"))
    actions: tuple[Action, ...] = ()
    other_model = live is not None and not embeds(live, active)
    if live is not None and (withdrawn or (schema.holds and not other_model)):
        sync = workers.sync_deployment(index, context.images, replicas=0 if backfill or withdrawn else 1)
        actions = apply_drifted(observed, with_live_template(sync, live))
    if withdrawn:
        if backfill:
            actions = (*actions, Delete("Job", index.namespace, backfill.name, backfill.uid))
        message = f"New rows wait for {index.spec.embedding.model}, since {withdrawn}."
        return Step(Verdict.no(Reason.WAITING, message), actions)
    if backfill:
        problem = pod_problem(observed, "backfill") or missing_pod(index, backfill, context.now)
        activity = f"embeds the pending rows for {active}"
        if problem:
            return replace(failed_step(problem, f"Job {backfill.name} {activity}: "), actions=actions)
        running = Verdict.no(Reason.BACKFILLING, running_message(backfill, activity))
        return Step(standstill(context, facts.rows, backfill) or running, actions)
    if observed.sync is None or (other_model and observed.sync.replicas == 0):
        state = "is set up for another model" if other_model else "is missing"
        message = f"Deployment {index.namespace}/{name} {state}; new rows wait until the swap has ended."
        return Step(Verdict.no(Reason.WAITING, message))
    return Step(sync_verdict(context, facts.rows, embedder=embedder), actions)


def _swap(
    context: Context, facts: DatabaseFacts, *, waits: Verdict | None, served_by: ConfiguredEmbedder | None
) -> Step:
    """Return the step of the condition ModelActive; a swap that a former specification began is ended first.

    `waits` is the verdict that says why the swap's Job may not start yet; None if it may. `served_by` is the active
    model's embedder.
    """
    former = open_swap(facts)
    if former and leads_elsewhere(context.index, former):
        return plan_abort(context, facts)
    if context.observed.referring:
        return _in_use(context, facts.active_name or "")
    return plan_stop(context) or _carry_out(context, facts, waits=waits, served_by=served_by)


def _carry_out(
    context: Context, facts: DatabaseFacts, *, waits: Verdict | None, served_by: ConfiguredEmbedder | None
) -> Step:
    """Return the step of the condition ModelActive; it writes the next model's embedder and the swap's Job."""
    index, observed = context.index, context.observed
    active, model = facts.active_name or "", index.spec.embedding.model
    forbidden = context.forbidden.get(resources.NEXT_COMPONENT)
    pods = 0 if forbidden else 1
    objects = resources.objects(index, context.images, replicas=pods, component=resources.NEXT_COMPONENT)
    policy = embedder_policy(index, resources.NEXT_COMPONENT, operator_namespace=observed.operator_namespace)
    fetch = plan_fetch(context)
    service, *_ = objects
    untrusted = certificate_obstacle(index, observed, context.now, resources.NEXT_COMPONENT)
    started = objects if fetch.verdict.holds and untrusted is None else (service,)
    writes = (*apply_drifted(observed, policy, *started), *fetch.actions)
    if not index.runs_embedder:
        writes = delete_next_embedder(index, observed, facts)
    if untrusted or not fetch.verdict.holds:
        return Step(untrusted or fetch.verdict, writes)
    obstacle = Step(forbidden) if forbidden else _next_embedder_obstacle(index, observed)
    if obstacle is not None:
        return replace(obstacle, actions=writes)
    if facts.swap and _is_refused(context, facts):
        return Step(_refusal(model, facts.swap), writes)
    if waits and not active_job(observed.jobs_of("swap")):
        return Step(waits, writes)
    stage = f" ({facts.swap.stage})" if facts.swap and facts.next_model else ""
    dimensions = facts.embedding_dimensions or 0
    build = partial(workers.swap_job, active=active, dimensions=dimensions, served_by=served_by)
    activity = f"swaps {active} for {model}{stage}; recalls go on with {active}"
    step = plan_job(context, JobRequest("swap", build, Reason.SWAPPING, activity))
    return replace(step, actions=(*writes, *step.actions))


def _in_use(context: Context, active: str) -> Step:
    """Return the step of the condition ModelActive while others use the embedder, whose model they would lose."""
    running = active_job(context.observed.jobs_of("swap"))
    stops = (Delete("Job", context.index.namespace, running.name, running.uid),) if running else ()
    wanted, used_by = context.index.spec.embedding.model, users_of(context.observed.referring)
    message = f"{active} is not exchanged for {wanted}, since its embedder is used by {used_by}."
    remedy = f"{Reason.EMBEDDER_IN_USE.remedy} Setting spec.embedding.model to {active} keeps the model."
    return Step(Verdict.no(Reason.EMBEDDER_IN_USE, message, remedy), stops)


def _is_refused(context: Context, facts: DatabaseFacts) -> bool:
    """Return whether the gate has not let the specified model pass; the same work would measure the same again.

    A refusal of another model, and a Job that failed before its gate, say nothing about the specified model.
    """
    index, swap = context.index, facts.swap
    if swap is None or swap.stage != Stage.REFUSED or leads_elsewhere(index, swap):
        return False
    work = workers.work_of(workers.config_fingerprint(index, context.images, "swap"))
    same_work = [job for job in context.observed.jobs_of("swap") if workers.work_of(job.config) == work]
    return bool(same_work) and _ended_at_gate(same_work[-1], swap)


def _ended_at_gate(job: JobFacts, swap: SwapRecord) -> bool:
    """Return whether a Job has failed because of the refusal that the swap records.

    If nothing is left of its pods to say why it failed, that is so unless the Job was created after the refusal.
    """
    if job.state is not JobState.FAILED:
        return False
    reason = job.failure.reason if job.failure else Reason.JOB_FAILED
    began_later = job.created_at is not None and job.created_at > swap.updated_at
    return reason in GATE_REASONS or (reason is Reason.JOB_FAILED and not began_later)


def _refusal(model: str, swap: SwapRecord) -> Verdict:
    if swap.undecided:
        return Verdict.no(Reason.SWAP_UNDECIDED, f"Nothing shows yet whether {model} is good enough: {swap.message}")
    return Verdict.no(Reason.SWAP_REFUSED, f"{model} was refused: {swap.message}")


def _next_embedder_obstacle(index: MemoryIndex, observed: Observed) -> Step | None:
    """Return a step that says why the next model's embedder does not serve yet; None if it serves."""
    if not index.runs_embedder:
        return failed_step(observed.external) if isinstance(observed.external, Problem) else None
    name = f"Deployment {index.namespace}/{index.name}-{resources.NEXT_COMPONENT}"
    loading = Verdict.no(Reason.SWAPPING, f"{name} loads {index.spec.embedding.model}; recalls go on meanwhile.")
    if observed.next_embedder is None:
        return Step(loading)
    pods = with_unused_gpu(index, observed, resources.NEXT_COMPONENT)
    obstacle = rollout_obstacle(name, observed.next_embedder, pods, changes=False)
    return Step(obstacle if obstacle.stalls else loading) if obstacle else None


def _hand_over(index: MemoryIndex, observed: Observed, active: RecordedModel, steps: Steps) -> Steps:
    """Return the steps after the new model has become active.

    The ordinary embedder is rolled over to it, then the sync worker records the embedder's URL, and then the second
    embedder, which served the new model during the swap, is deleted. If the specification has changed to an external
    embedder meanwhile, nothing is rolled over.
    """
    model, url = index.spec.embedding.model, resources.recorded_url(index)
    if index.runs_embedder and not _rolled_over(observed, steps[ConditionType.EMBEDDER_READY].actions):
        message = f"{model} is active; Deployment {index.namespace}/{index.name}-embedder is being rolled over to it."
        backfill = steps[ConditionType.BACKFILLED]
        actions = tuple(action for action in backfill.actions if not _applies_sync(index, action))
        steps = {**steps, ConditionType.BACKFILLED: replace(backfill, actions=actions)}
        step = Step(Verdict.no(Reason.SWAPPING, message))
    elif active.embedder_url != url:
        message = f"{model} is active; waiting for the sync worker to write down where it is served."
        step = Step(Verdict.no(Reason.SWAPPING, message))
    else:
        deletions = delete_embedder(index, observed, resources.NEXT_COMPONENT)
        step = Step(Verdict.yes(Reason.ACTIVE, f"Recalls use {model}."), deletions)
    return {**steps, ConditionType.MODEL_ACTIVE: step}


def _rolled_over(observed: Observed, writes: tuple[Action, ...]) -> bool:
    """Return whether the ordinary embedder runs as specified and none of its writes is left to do."""
    embedder = observed.embedder
    return bool(embedder and embedder.current and (embedder.ready > 0 or embedder.replicas == 0) and not writes)


def _applies_sync(index: MemoryIndex, action: Action) -> bool:
    return isinstance(action, Apply) and bool(action.manifest["metadata"]["name"] == f"{index.name}-sync")
