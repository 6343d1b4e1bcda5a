"""Kubernetes Events about a MemoryIndex, as `kubectl describe` shows them.

An Event is named after what it says, so the API server itself refuses to hold the same one twice, after a restart of
the operator, too. Events are a courtesy: one that cannot be created is logged, and the reconcile goes on.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import structlog

from memory_operator.api.conditions import timestamp
from memory_operator.api.spec import API_VERSION, Manifest, MemoryIndex
from memory_operator.clients.kube import Kube, KubeError
from memory_operator.resources.common import MANAGER, fingerprint

EventType = Literal["Normal", "Warning"]

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class ObjectIdentity:
    """The MemoryIndex that an Event is about, where its specification cannot be parsed."""

    name: str
    namespace: str
    uid: str


class EventRecorder:
    """Creates Events."""

    def __init__(self, kube: Kube, clock: Callable[[], datetime]) -> None:
        self._kube = kube
        self._clock = clock

    async def record(self, index: MemoryIndex | ObjectIdentity, type: EventType, reason: str, message: str) -> None:  # noqa: A002 - the API's name
        """Create the Event unless the same one exists; never fail."""
        try:
            await self._kube.create(event_manifest(index, type, reason, message, self._clock()))
        except KubeError as error:
            _log.warning("event not created", namespace=index.namespace, name=index.name, detail=str(error))


def event_manifest(
    index: MemoryIndex | ObjectIdentity, kind: EventType, reason: str, message: str, now: datetime
) -> Manifest:
    """Return an Event that happened now."""
    moment = timestamp(now)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{index.name}.{fingerprint([index.uid, kind, reason, message])}",
            "namespace": index.namespace,
        },
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": "MemoryIndex",
            "namespace": index.namespace,
            "name": index.name,
            "uid": index.uid,
        },
        "type": kind,
        "reason": reason,
        "message": message,
        "source": {"component": MANAGER},
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }
