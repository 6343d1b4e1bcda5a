"""Derive the Kubernetes Events of a reconcile: changes of Ready and Stalled, and Jobs that started or failed."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from memory_operator.api.conditions import ConditionStatus, ConditionType, by_type
from memory_operator.api.spec import Manifest
from memory_operator.reconcile.facts import JobFacts
from memory_operator.reconcile.plan import Action, Apply
from memory_operator.resources.common import LABEL_COMPONENT
from memory_operator.resources.events import Event


def of_transitions(before: Manifest, after: Manifest) -> Iterator[Event]:
    """Yield an Event if the status of Ready changes, and an Event if Stalled begins, ends or changes its reason.

    The Event about the end of Stalled says what has ended.
    """
    old, new = by_type(before.get("conditions") or ()), by_type(after.get("conditions") or ())
    was, now = old.get(ConditionType.READY), new.get(ConditionType.READY)
    if was and now and was["status"] != now["status"]:
        yield Event("Warning" if _holds(was) else "Normal", now["reason"], now["message"])
    was, now = old.get(ConditionType.STALLED), new.get(ConditionType.STALLED)
    if now and _holds(now) and not (was and _holds(was) and was["reason"] == now["reason"]):
        yield Event("Warning", now["reason"], now["message"])
    elif was and now and _holds(was) and not _holds(now):
        yield Event("Normal", now["reason"], f"{now['message']} Before: {was['message']}")


def of_started_job(action: Action) -> Iterator[Event]:
    """Yield an Event if the executed action has created a Job."""
    if isinstance(action, Apply) and action.manifest["kind"] == "Job":
        metadata = action.manifest["metadata"]
        component = metadata["labels"][LABEL_COMPONENT]
        yield Event("Normal", "JobStarted", f"Started Job {metadata['name']} ({component}).")


def of_failed_jobs(jobs: Iterable[JobFacts]) -> Iterator[Event]:
    """Yield an Event for each Job that has failed."""
    for job in jobs:
        if job.failure:
            yield Event("Warning", job.failure.reason.code, f"Job {job.name} failed: {job.failure.message}")


def _holds(condition: Mapping[str, Any]) -> bool:
    return bool(condition["status"] == ConditionStatus.TRUE)
