"""The generic rules of kstatus, by which tools such as Flux tell whether an object has been reconciled.

They are written from the documented meaning of `observedGeneration` and of the conditions Reconciling, Stalled and
Ready.
"""

from enum import StrEnum

from memory_operator.api.spec import Manifest


class Kstatus(StrEnum):
    """The results of kstatus for an object that exists."""

    CURRENT = "Current"
    IN_PROGRESS = "InProgress"
    FAILED = "Failed"
    TERMINATING = "Terminating"


def compute(resource: Manifest) -> Kstatus:
    """Return the result of kstatus for an object."""
    metadata, status = resource["metadata"], resource.get("status") or {}
    if metadata.get("deletionTimestamp"):
        return Kstatus.TERMINATING
    if status.get("observedGeneration", metadata["generation"]) != metadata["generation"]:
        return Kstatus.IN_PROGRESS
    conditions = status.get("conditions") or ()
    for condition in conditions:
        if condition["type"] == "Reconciling" and condition["status"] == "True":
            return Kstatus.IN_PROGRESS
        if condition["type"] == "Stalled" and condition["status"] == "True":
            return Kstatus.FAILED
    ready = next((condition["status"] for condition in conditions if condition["type"] == "Ready"), "True")
    return Kstatus.CURRENT if ready == "True" else Kstatus.IN_PROGRESS
