"""Build Kubernetes Events: their text, the object that they are about, and their manifests.

The name of an Event contains a digest of its text. Therefore the Kubernetes API server refuses a second equal Event,
even after a restart of the operator. An Event is in the namespace of the object that it is about.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from memory_operator.api.conditions import timestamp
from memory_operator.api.spec import API_VERSION, Manifest, MemoryIndex
from memory_operator.resources import cnpg
from memory_operator.resources.common import MANAGER, fingerprint
from memory_recall.visible_text import visible_line

EventType = Literal["Normal", "Warning"]
MESSAGE_LIMIT = 1024


@dataclass(frozen=True)
class Event:
    """The type, reason and message of a Kubernetes Event."""

    type: EventType
    reason: str
    message: str


@dataclass(frozen=True)
class Subject:
    """The object that an Event is about; `uid` is empty if the uid is not known."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str = ""


def memory_index(manifest: Manifest) -> Subject:
    """Return the subject of an Event about a MemoryIndex, even if its specification is invalid."""
    meta = manifest["metadata"]
    return Subject(API_VERSION, "MemoryIndex", meta["namespace"], meta["name"], meta["uid"])


def cluster_elsewhere(index: MemoryIndex) -> tuple[Subject, ...]:
    """Return the Cluster as a subject for Events if it is not in the namespace of the MemoryIndex.

    The answer is empty if it is in this namespace, or if the MemoryIndex names no Cluster.
    """
    if index.cluster is None or index.cluster[0] == index.namespace:
        return ()
    return (Subject(cnpg.API_VERSION, "Cluster", *index.cluster),)


def event_manifest(subject: Subject, event: Event, now: datetime) -> Manifest:
    """Return the manifest of an Event that happens at `now`."""
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
        "message": visible_line(event.message)[:MESSAGE_LIMIT],
        "source": {"component": MANAGER},
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }
