"""Decide when a Job that is needed may start.

The caller decides from the database, or from a volume claim, whether work is needed, never from existing Jobs, so that
a deleted Job is not run again without need. If a Job ends and its work is still needed, another Job with the next
sequence number follows, after a delay that doubles each time; none follows a Job that failed because a person has to
decide. The sequence number is read from the Jobs, so a restarted operator continues the sequence. A Job of a changed
configuration starts at once. It replaces a running Job if that Job has no running pod, or if the work of that Job is no
longer wanted.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import timedelta

from memory_operator.api.conditions import Verdict
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import Manifest, MemoryIndex
from memory_operator.reconcile.context import Context
from memory_operator.reconcile.delays import doubled
from memory_operator.reconcile.facts import JobFacts, JobState, Observed, Problem
from memory_operator.reconcile.plan import Action, Apply, Delete, Step, failed_step
from memory_operator.reconcile.pod_start import missing_pod, mounts, termination_problem
from memory_operator.resources import workers
from memory_operator.resources.common import LABEL_CONFIG, Images

FIRST_DELAY_SECONDS = 15
LONGEST_DELAY_SECONDS = 300
# With other work to do, what these would still make is outdated or incomplete, or, as with the former address of an
# embedder to which the workers' NetworkPolicy no longer lets a backfill, cannot be made any more.
INTERRUPTIBLE = {"migrate", "index", "fetch", "graph", "backfill"}


@dataclass(frozen=True)
class JobRequest:
    """A Job that is needed: its component, the function that builds its manifest, and how its progress is reported.

    `decisions` are the reasons of a failure for which the Job is not repeated until its configuration changes.
    """

    component: str
    build: Callable[[MemoryIndex, Images, int], Manifest]
    reason: Reason
    activity: str
    decisions: frozenset[Reason] = frozenset()


def retry_delay(sequence: int) -> timedelta:
    """Return how long to wait after Job number `sequence` ended: 15 s after number 0, then doubled up to 300 s."""
    return timedelta(seconds=doubled(FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS, sequence))


def active_job(jobs: tuple[JobFacts, ...]) -> JobFacts | None:
    """Return the Job that is active and not being deleted, whatever its configuration, or None."""
    return next((job for job in jobs if job.state is JobState.ACTIVE and not job.deleting), None)


def pod_problem(observed: Observed, component: str) -> Problem | None:
    """Return what keeps a pod of this component's Jobs from running or from ending, or None if nothing does.

    A pod that is being deleted counts only where there is no other one.
    """
    pods = [pod for pod in observed.pods_of(component) if not (pod.ended or pod.deleting)]
    if not pods:
        return termination_problem(observed, {component})
    return next((pod.problem for pod in pods if pod.problem), None)


def running_message(job: JobFacts, activity: str) -> str:
    """Return a sentence that says what an active Job does, or that somebody other than the operator has suspended it.

    `activity` completes the sentence "Job mem-backfill-1 ...".
    """
    if job.suspended and not job.stopped:
        return f"Job {job.name}, which somebody else has suspended, {activity} once it is resumed."
    return f"Job {job.name} {activity}."


def until_pods_end(observed: Observed, components: Collection[str], waiting: Verdict) -> Step:
    """Return a step without writes that waits until the pods of these components have ended.

    Its verdict is `waiting`, or that one of them does not end.
    """
    problem = termination_problem(observed, components)
    return failed_step(problem, f"{waiting.message} ") if problem else Step(waiting)


def plan_job(context: Context, request: JobRequest) -> Step:
    """Return a step that waits for the running Job, replaces it, starts a new Job, or waits for the retry delay."""
    index, observed, images, now = context.index, context.observed, context.images, context.now
    jobs, running = observed.jobs_of(request.component), active_job(observed.jobs_of(request.component))
    config = request.build(index, images, 0)["metadata"]["labels"][LABEL_CONFIG]
    outdated = running is not None and _is_outdated(running, config, observed)
    if running and not outdated:
        problem = pod_problem(observed, request.component) or missing_pod(index, running, now)
        if problem:
            mounted = mounts(request.build(index, images, 0)) if problem.reason is Reason.POD_NOT_READY_TO_START else ""
            return failed_step(problem, f"Job {running.name} {request.activity}{mounted}: ")
        return Step(Verdict.no(request.reason, running_message(running, request.activity)))
    same_config = [job for job in jobs if job.config == config and not job.deleting]
    latest = same_config[-1] if same_config else None
    if latest and not outdated:
        undecided = latest.failure is not None and latest.failure.reason in request.decisions
        if undecided or now < (latest.finished_at or now) + retry_delay(latest.sequence):
            return Step(_ended(latest, request))
    manifest = request.build(index, images, latest.sequence + 1 if latest else 0)
    name, namespace = manifest["metadata"]["name"], manifest["metadata"]["namespace"]
    if any(job.deleting and job.name == name for job in jobs):  # in the foreground: its pods go first
        waiting = Verdict.no(request.reason, f"Job {name} is being deleted; another one follows.")
        return until_pods_end(observed, {request.component}, waiting)
    older = [job for job in jobs if job.state is not JobState.ACTIVE and not job.deleting][:-1]
    removed = [*older, *([running] if running else [])]
    removals: tuple[Action, ...] = tuple(Delete("Job", namespace, job.name, job.uid) for job in removed)
    return Step(Verdict.no(request.reason, f"Job {name} {request.activity}."), (*removals, Apply(manifest)))


def _is_outdated(running: JobFacts, config: str, observed: Observed) -> bool:
    """Return whether a running Job should be replaced by a Job of the present configuration."""
    if running.config == config:
        return False
    if running.component in INTERRUPTIBLE and workers.work_of(running.config) != workers.work_of(config):
        return True
    return not any(pod.running and not pod.deleting for pod in observed.pods_of(running.component))


def _ended(job: JobFacts, request: JobRequest) -> Verdict:
    if job.state is JobState.COMPLETE:
        return Verdict.no(request.reason, f"Job {job.name} ended and left work; another one follows.")
    failure = job.failure or Problem(Reason.JOB_FAILED, "it ended without saying why.")
    return Verdict.no(failure.reason, f"Job {job.name} failed: {failure.message}", failure.remedy or None)
