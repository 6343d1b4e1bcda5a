"""The end of an object: undo what owner references cannot, and nothing of the user's.

Children in the own namespace are collected by Kubernetes. The CloudNativePG Database object lives in the cluster's
namespace and is removed here; its reclaim policy leaves the database as it is. `deletionPolicy: Delete` first drops
what the migrations added, with the workers stopped. Until all of it is done the finalizer holds the object, and its
status says what is being waited for.
"""

from datetime import datetime

from memory_operator.api.conditions import Verdict
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import MemoryIndex
from memory_operator.reconcile import jobs
from memory_operator.reconcile.observed import JobState, Observed, Problem
from memory_operator.reconcile.plan import Action, Delete, SetFinalizer
from memory_operator.reconcile.step import Step
from memory_operator.resources import cnpg, workers
from memory_operator.resources.common import LABEL_INDEX_NAME, LABEL_INDEX_NAMESPACE, LABEL_MANAGED_BY, MANAGER, Images

WRITERS = {"backfill", "index", "migrate", "swap", "swap-abort", "sync"}


def remove(index: MemoryIndex, seen: Observed, images: Images, now: datetime) -> Step:
    """The next writes towards the object's end; taking the finalizer off is the last of them."""
    if index.spec.deletion_policy == "Delete":
        step = _undo(index, seen, images, now)
        if step is not None:
            return step
    mine = [item for item in seen.database_objects if _created_here(index, item.labels) and not item.deleting]
    release: tuple[Action, ...] = tuple(
        Delete(cnpg.API_VERSION, "Database", item.namespace, item.name) for item in mine
    )
    return Step(Verdict.no(Reason.DELETING, "The object is being deleted."), (*release, SetFinalizer(present=False)))


def _created_here(index: MemoryIndex, labels: object) -> bool:
    marks = {LABEL_MANAGED_BY: MANAGER, LABEL_INDEX_NAME: index.name, LABEL_INDEX_NAMESPACE: index.namespace}
    return isinstance(labels, dict) and all(labels.get(key) == value for key, value in marks.items())


def _undo(index: MemoryIndex, seen: Observed, images: Images, now: datetime) -> Step | None:
    """What is left to undo in the database, or None where nothing is."""
    retain = "To leave the data behind instead, set spec.deletionPolicy to Retain."
    for problem in (seen.credentials, seen.cluster, seen.database):
        if isinstance(problem, Problem):
            return Step(
                Verdict.no(
                    problem.reason,
                    f"Cannot undo the migrations: {problem.message}",
                    f"{problem.reason.remedy} {retain}",
                )
            )
    facts = seen.facts
    if facts is None or facts.schema_revision is None:
        return None
    busy = _stop_workers(index, seen)
    if busy:
        return Step(Verdict.no(Reason.DELETING, "Stopping the workers before the migrations are undone."), busy)
    if any(pod.component in WRITERS and not pod.ended for pod in seen.pods):
        return Step(Verdict.no(Reason.DELETING, "Waiting for the workers' pods to end."))
    work = jobs.Work(
        namespace=index.namespace,
        config=workers.config_of(index, images, "uninstall"),
        build=lambda sequence: workers.uninstall_job(index, images, sequence),
        reason=Reason.DELETING,
        doing="drops what the migrations added",
        pods=seen.pods_of("uninstall"),
    )
    return jobs.run(seen.jobs_of("uninstall"), work, now)


def _stop_workers(index: MemoryIndex, seen: Observed) -> tuple[Action, ...]:
    running = [
        job for job in seen.jobs if job.component in WRITERS and job.state is JobState.ACTIVE and not job.deleting
    ]
    stops: list[Action] = [Delete("batch/v1", "Job", index.namespace, job.name) for job in running]
    if seen.sync is not None:
        stops.append(Delete("apps/v1", "Deployment", index.namespace, f"{index.name}-sync"))
    return tuple(stops)
