"""Decide how a swap ends that nobody asks for any more, and what has to stop before another one begins.

A swap that is given up loses its Job first, and another Job then drops the second column, so that the table is as it
was. A swap that has flipped meanwhile is left alone, by the operator and by that Job. At any time at most one process
deals with a swap; a second one would be refused, or would undo what the first one does.
"""

from dataclasses import replace

from memory_operator.api.conditions import Verdict
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import MemoryIndex
from memory_operator.reconcile.active_embedder import needs_swap
from memory_operator.reconcile.context import Context
from memory_operator.reconcile.embedder import delete_embedder
from memory_operator.reconcile.facts import JobFacts, JobState, Observed
from memory_operator.reconcile.jobs import JobRequest, plan_job, until_pods_end
from memory_operator.reconcile.plan import Action, Delete, Step
from memory_operator.reconcile.rollout import serves
from memory_operator.resources import workers
from memory_operator.resources.embedder import NEXT_COMPONENT, own_digest, recorded_url
from memory_recall.embedding.canary import may_be_same_file
from memory_recall.status import DatabaseFacts
from memory_recall.swap.machine import OPEN_STAGES, Stage
from memory_recall.swap.state_sql import SwapRecord

SWAP, ABORT = "swap", "swap-abort"  # the components of the Job of a swap, and of the Job that gives one up


def open_swap(facts: DatabaseFacts) -> SwapRecord | None:
    """Return the swap that has begun and has neither flipped nor been given up, or None."""
    return facts.swap if facts.swap and facts.swap.stage in OPEN_STAGES else None


def is_unfinished(index: MemoryIndex, facts: DatabaseFacts) -> bool:
    """Return whether a swap is to begin, is open, or has flipped without being finished."""
    flipped = facts.swap is not None and facts.swap.stage == Stage.FLIPPED
    return needs_swap(index, facts) or flipped or open_swap(facts) is not None


def may_be_open(index: MemoryIndex) -> bool:
    """Return whether a swap may be open, by the specification and the last status."""
    models = index.status.get("model") or {}
    return "next" in models or models.get("active", index.spec.embedding.model) != index.spec.embedding.model


def may_be_unfinished(index: MemoryIndex) -> bool:
    """Return whether a swap may be open, or flipped and not finished, by the specification and the last status."""
    return may_be_open(index) or "previous" in (index.status.get("model") or {})


def leads_elsewhere(index: MemoryIndex, swap: SwapRecord) -> bool:
    """Return whether an open swap leads to another model than the specified one, so that it is to be given up.

    A model of the same name is another one if it has other dimensions or another file. Both are compared only where
    they are the embedder's because the specification says so; else the swap would be given up again and again.
    """
    embedding, to_model = index.spec.embedding, swap.to_model
    if to_model.name != embedding.model:
        return True
    is_asked_for = index.runs_embedder or recorded_url(index) is None
    if is_asked_for and to_model.dimensions != embedding.dimensions:
        return True
    return index.runs_embedder and not may_be_same_file(to_model.digest, own_digest(index))


def plan_abort(context: Context, facts: DatabaseFacts, *, reason: Reason = Reason.SWAPPING) -> Step:
    """Return the next step that gives up the open swap; `reason` is that of its verdict while nothing fails."""
    index, observed = context.index, context.observed
    deletions, stops = delete_next_embedder(index, observed, facts), _deletions(index, _active_jobs(observed, SWAP))
    if stops or _has_pods(observed, SWAP):
        message = "The swap is being given up; stopping its Job."
        waiting = until_pods_end(observed, {SWAP}, Verdict.no(reason, message))
        return replace(waiting, actions=(*deletions, *stops))
    activity = "drops the second column of a swap that was given up"
    step = plan_job(context, JobRequest(ABORT, workers.swap_abort_job, reason, activity))
    return Step(step.verdict, (*deletions, *step.actions))


def plan_stop(context: Context) -> Step | None:
    """Return the step that stops the Jobs of a swap that a former specification has begun; None if none is left.

    They are a Job that does other work than the specified one, and one that gives a swap up.
    """
    index, observed = context.index, context.observed
    work = workers.work_of(workers.config_fingerprint(index, context.images, SWAP))
    running = _active_jobs(observed, SWAP)
    others = [job for job in running if workers.work_of(job.config) != work]
    stops = _deletions(index, [*others, *_active_jobs(observed, ABORT)])
    if stops:
        names = ", ".join(f"Job {one.name}" for one in stops)
        return Step(Verdict.no(Reason.SWAPPING, f"Stopping {names}, since the specification has changed."), stops)
    if _has_pods(observed, ABORT) or (not running and _has_pods(observed, SWAP)):
        message = "Waiting until the pods of a Job that was stopped have ended."
        return until_pods_end(observed, {SWAP, ABORT}, Verdict.no(Reason.SWAPPING, message))
    return None


def delete_next_embedder(index: MemoryIndex, observed: Observed, facts: DatabaseFacts) -> tuple[Action, ...]:
    """Return the writes that delete the second embedder, unless it serves the active model, as before a hand-over."""
    live = observed.children.get(("Deployment", f"{index.name}-{NEXT_COMPONENT}"))
    if live is not None and serves(live, facts.active_name or ""):
        return ()
    return delete_embedder(index, observed, NEXT_COMPONENT)


def _active_jobs(observed: Observed, component: str) -> list[JobFacts]:
    return [job for job in observed.jobs_of(component) if job.state is JobState.ACTIVE and not job.deleting]


def _deletions(index: MemoryIndex, jobs: list[JobFacts]) -> tuple[Delete, ...]:
    return tuple(Delete("Job", index.namespace, job.name, job.uid) for job in jobs)


def _has_pods(observed: Observed, component: str) -> bool:
    return any(not pod.ended for pod in observed.pods_of(component))
