"""Events of Kubernetes about a MemoryIndex. An Event is in the namespace of the object that it is about."""

from datetime import datetime

from memory_operator.api.conditions import timestamp
from memory_operator.api.spec import API_VERSION, Manifest, MemoryIndex
from memory_operator.resources import cnpg
from memory_operator.resources.common import MANAGER, fingerprint

MESSAGE_LIMIT = 1024


def left_behind(index: MemoryIndex, what: str, now: datetime) -> tuple[Manifest, ...]:
    """Return the Event that says what the end of a MemoryIndex leaves behind, in the order of preference.

    A namespace that is being deleted accepts no Event; the second one is about the Cluster, in its namespace.
    """
    message = f"MemoryIndex {index.namespace}/{index.name} is deleted. {what}"[:MESSAGE_LIMIT]
    subject = {"apiVersion": API_VERSION, "kind": "MemoryIndex", "namespace": index.namespace, "name": index.name}
    subjects = [{**subject, "uid": index.uid}]
    if index.cluster and index.cluster[0] != index.namespace:
        namespace, name = index.cluster
        subjects.append({"apiVersion": cnpg.API_VERSION, "kind": "Cluster", "namespace": namespace, "name": name})
    return tuple(
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{index.name}.{fingerprint([index.uid, message])}",
                "namespace": about["namespace"],
            },
            "involvedObject": about,
            "type": "Warning",
            "reason": "LeftBehind",
            "message": message,
            "source": {"component": MANAGER},
            "firstTimestamp": timestamp(now),
            "lastTimestamp": timestamp(now),
            "count": 1,
        }
        for about in subjects
    )
