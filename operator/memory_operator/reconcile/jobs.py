"""Decide when a Job that is needed may start.

The caller decides from the database whether work is needed, never from Jobs: a Job that was deleted or collected is
then not run again without need. A run that ended while the work is still needed is followed by another one with the
next sequence number, after a delay that doubles. The sequence is read from the Jobs themselves, so a restarted
operator continues it. A Job of another configuration starts at once, in place of one that cannot run or whose work is
no longer wanted.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from memory_operator.api.conditions import Verdict
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import Manifest, MemoryIndex
from memory_operator.reconcile.facts import JobFacts, JobState, Observed, Problem
from memory_operator.reconcile.plan import Action, Apply, Delete, Step, failed_step
from memory_operator.resources import workers
from memory_operator.resources.common import Images

FIRST_DELAY_SECONDS = 15
LONGEST_DELAY_SECONDS = 300
INTERRUPTIBLE = {"migrate", "index"}  # with other work to do, what these would still make is outdated or incomplete


@dataclass(frozen=True)
class JobRequest:
    """A Job that is needed: its component, how to build run number n, and how its progress is reported."""

    component: str
    build: Callable[[MemoryIndex, Images, int], Manifest]
    reason: Reason
    activity: str


def retry_delay(sequence: int) -> timedelta:
    """Return how long to wait after run number `sequence` ended without success: 15 s doubled, at most 300 s."""
    return timedelta(seconds=min(LONGEST_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2 ** min(sequence, 10)))


def active_job(jobs: tuple[JobFacts, ...]) -> JobFacts | None:
    """Return the Job that runs now, whatever its configuration."""
    return next((job for job in jobs if job.state is JobState.ACTIVE and not job.deleting), None)


def plan_job(index: MemoryIndex, observed: Observed, images: Images, now: datetime, request: JobRequest) -> Step:
    """Wait for the running Job or replace it, start a new one, or wait until the next one may start."""
    jobs, running = observed.jobs_of(request.component), active_job(observed.jobs_of(request.component))
    config = workers.config_fingerprint(index, images, request.component)
    outdated = running is not None and _is_outdated(running, config, observed)
    if running and not outdated:
        pods = [pod for pod in observed.pods_of(request.component) if not (pod.ended or pod.deleting)]
        problem = next((pod.problem for pod in pods if pod.problem), None)
        if problem:
            return failed_step(problem, f"Job {running.name} {request.activity}: ")
        return Step(Verdict.no(request.reason, f"Job {running.name} {request.activity}."))
    same_config = [job for job in jobs if job.config == config and not job.deleting]
    latest = same_config[-1] if same_config else None
    if latest and not outdated and now < (latest.finished_at or now) + retry_delay(latest.sequence):
        return Step(_ended(latest, request))
    manifest = request.build(index, images, latest.sequence + 1 if latest else 0)
    name, namespace = manifest["metadata"]["name"], manifest["metadata"]["namespace"]
    older = [job for job in jobs if job.state is not JobState.ACTIVE and not job.deleting][:-1]
    removed = [*older, *([running] if running else [])]
    removals: tuple[Action, ...] = tuple(Delete("Job", namespace, job.name) for job in removed)
    return Step(Verdict.no(request.reason, f"Job {name} {request.activity}."), (*removals, Apply(manifest)))


def _is_outdated(running: JobFacts, config: str, observed: Observed) -> bool:
    """Return whether a Job of another configuration has no running pod, or does work that is no longer wanted."""
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
