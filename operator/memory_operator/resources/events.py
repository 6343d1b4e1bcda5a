"""Events of Kubernetes: what they say, which object they are about, and their manifests.

An Event is named after what it says, so the API server itself refuses to hold the same one twice, after a restart of
the operator, too. It is in the namespace of the object that it is about.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from memory_operator.api.conditions import timestamp
from memory_operator.api.spec import API_VERSION, Manifest, MemoryIndex
from memory_operator.resources import cnpg
from memory_operator.resources.common import MANAGER, fingerprint

EventType = Literal["Normal", "Warning"]
MESSAGE_LIMIT = 1024


@dataclass(frozen=True)
class Event:
    """What an Event says."""

    type: EventType
    reason: str
    message: str


@dataclass(frozen=True)
class Subject:
    """The object that an Event is about; the uid is empty where it is not known."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str = ""


def memory_index(manifest: Manifest) -> Subject:
    """Return the subject of an Event about a MemoryIndex, whose specification need not be valid."""
    meta = manifest["metadata"]
    return Subject(API_VERSION, "MemoryIndex", meta["namespace"], meta["name"], meta["uid"])


def cluster_elsewhere(index: MemoryIndex) -> tuple[Subject, ...]:
    """Return the Cluster where it is in another namespace, which accepts Events when the object's own accepts none."""
    if index.cluster is None or index.cluster[0] == index.namespace:
        return ()
    return (Subject(cnpg.API_VERSION, "Cluster", *index.cluster),)


def event_manifest(subject: Subject, event: Event, now: datetime) -> Manifest:
    """Return an Event that happened now."""
    moment = timestamp(now)
    about = {
        "apiVersion": subject.api_version,
        "kind": subject.kind,
        "namespace": subject.namespace,
        "name": subject.name,
        **({"uid": subject.uid} if subject.uid else {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{subject.name}.{fingerprint([subject.uid, event.type, event.reason, event.message])}",
            "namespace": subject.namespace,
        },
        "involvedObject": about,
        "type": event.type,
        "reason": event.reason,
        "message": event.message[:MESSAGE_LIMIT],
        "source": {"component": MANAGER},
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }
