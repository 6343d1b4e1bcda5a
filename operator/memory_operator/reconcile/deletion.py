"""Decide how an object ends: undo what owner references cannot, and nothing of the user's.

Kubernetes collects the children in the object's own namespace. The CloudNativePG Database object is in the Cluster's
namespace and is deleted here; its reclaim policy keeps the database. `deletionPolicy: Delete` first stops the workers
and drops what the migrations added. Until all of it is done the finalizer keeps the object, and its status names what
the deletion waits for.
"""

from dataclasses import replace
from datetime import datetime

from memory_operator.api.conditions import ConditionStatus, Verdict
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import MemoryIndex
from memory_operator.reconcile.authorization.claims import check_claim
from memory_operator.reconcile.authorization.identity import identified
from memory_operator.reconcile.database import plan_database
from memory_operator.reconcile.facts import JobState, Observed
from memory_operator.reconcile.jobs import JobRequest, plan_job
from memory_operator.reconcile.plan import Action, Delete, SetFinalizer, Step
from memory_operator.resources import cnpg, workers
from memory_operator.resources.common import Images

WRITERS = {"backfill", "index", "migrate", "swap", "swap-abort", "sync"}


def plan_deletion(index: MemoryIndex, observed: Observed, images: Images, now: datetime) -> Step:
    """Return the next writes towards the object's end; the last of them removes the finalizer."""
    if index.spec.deletion_policy == "Delete":
        step = _undo_migrations(index, observed, images, now)
        if step is not None:
            return step
    deletions: tuple[Action, ...] = tuple(
        Delete("Database", item.namespace, item.name)
        for item in observed.database_objects
        if cnpg.is_made_for(index, item) and not item.deleting
    )
    return Step(Verdict.no(Reason.DELETING, "The object is being deleted."), (*deletions, SetFinalizer(present=False)))


def _undo_migrations(index: MemoryIndex, observed: Observed, images: Images, now: datetime) -> Step | None:
    """Return what is left to undo in the database, or None where nothing is or the table is another object's."""
    database = plan_database(index, observed).verdict
    if not database.holds:
        remedy = database.reason.remedy if database.remedy is None else database.remedy
        retain = "To leave the data behind instead, set spec.deletionPolicy to Retain."
        message = f"Cannot undo the migrations: {database.message}"
        return Step(replace(database, status=ConditionStatus.FALSE, message=message, remedy=f"{remedy} {retain}"))
    facts = observed.database_facts
    if facts is None or facts.schema_revision is None or check_claim(index, observed):
        return None
    index = identified(index, facts)
    stops = _stop_workers(index, observed)
    if stops:
        return Step(Verdict.no(Reason.DELETING, "Stopping the workers before the migrations are undone."), stops)
    if any(pod.component in WRITERS and not pod.ended for pod in observed.pods):
        return Step(Verdict.no(Reason.DELETING, "Waiting for the workers' pods to end."))
    request = JobRequest("uninstall", workers.uninstall_job, Reason.DELETING, "drops what the migrations added")
    return plan_job(index, observed, images, now, request)


def _stop_workers(index: MemoryIndex, observed: Observed) -> tuple[Action, ...]:
    jobs = [job for job in observed.jobs if job.component in WRITERS and not job.deleting]
    stops: list[Action] = [Delete("Job", index.namespace, job.name) for job in jobs if job.state is JobState.ACTIVE]
    if observed.sync is not None:
        stops.append(Delete("Deployment", index.namespace, f"{index.name}-sync"))
    return tuple(stops)
