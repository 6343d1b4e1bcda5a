"""When to start a Job, and when to wait.

Whether work is needed is decided by the caller from the database, never from Jobs: a Job that was deleted or
collected is then not run again without need. Here it is only decided whether a needed run may start now. A run that
ended without the need being gone is followed by another with the next sequence number, after a delay that doubles.
The sequence is read from the Jobs themselves, so an operator that was restarted goes on where it was. Another
configuration starts at once.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from memory_operator.api.conditions import Verdict
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import Manifest
from memory_operator.reconcile.observed import JobFacts, JobState, PodFacts, Problem
from memory_operator.reconcile.plan import Action, Apply, Delete
from memory_operator.reconcile.step import Step, failed

FIRST_DELAY_SECONDS = 15
LONGEST_DELAY_SECONDS = 300


@dataclass(frozen=True)
class Work:
    """A kind of Job and what its progress is called."""

    namespace: str
    config: str
    build: Callable[[int], Manifest]
    reason: Reason
    doing: str
    pods: tuple[PodFacts, ...] = ()


def delay(sequence: int) -> timedelta:
    """How long to wait after run number `sequence` ended without success."""
    return timedelta(seconds=min(LONGEST_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2 ** min(sequence, 10)))


def active(jobs: tuple[JobFacts, ...]) -> JobFacts | None:
    """The Job that runs now, whatever its configuration."""
    return next((job for job in jobs if job.state is JobState.ACTIVE and not job.deleting), None)


def run(jobs: tuple[JobFacts, ...], work: Work, now: datetime) -> Step:
    """The step for work that is needed: wait for the run, start it, or wait for the next try."""
    running = active(jobs)
    stuck = next((pod.problem for pod in work.pods if pod.problem and not (pod.ended or pod.deleting)), None)
    if running and stuck:
        return failed(stuck, f"Job {running.name} {work.doing}: ")
    if running:
        return Step(Verdict.no(work.reason, f"Job {running.name} {work.doing}."))
    mine = [job for job in jobs if job.config == work.config and not job.deleting]
    if not mine:
        return _start(jobs, work, 0)
    latest = mine[-1]
    due = (latest.finished_at or now) + delay(latest.sequence)
    if now >= due:
        return _start(jobs, work, latest.sequence + 1)
    return Step(_ended(latest, work))


def _start(jobs: tuple[JobFacts, ...], work: Work, sequence: int) -> Step:
    manifest = work.build(sequence)
    older = [job for job in jobs if job.state is not JobState.ACTIVE and not job.deleting][:-1]
    removals: tuple[Action, ...] = tuple(Delete("batch/v1", "Job", work.namespace, job.name) for job in older)
    verdict = Verdict.no(work.reason, f"Job {manifest['metadata']['name']} {work.doing}.")
    return Step(verdict, (*removals, Apply(manifest)))


def _ended(job: JobFacts, work: Work) -> Verdict:
    if job.state is JobState.COMPLETE:
        return Verdict.no(work.reason, f"Job {job.name} ended and left work; another one follows.")
    failure = job.failure or Problem(Reason.JOB_FAILED, "it ended without saying why.")
    return Verdict.no(failure.reason, f"Job {job.name} failed: {failure.message}", failure.remedy or None)
