"""Create Kubernetes Events, which `kubectl describe` shows to users.

Nothing depends on Events: if an Event cannot be created, the failure is logged and the reconcile continues.
"""

from collections.abc import Callable
from datetime import datetime

import structlog

from memory_operator.clients.kube import Kube, KubeError
from memory_operator.resources.events import Event, Subject, event_manifest

_log = structlog.get_logger(__name__)


class EventRecorder:
    """Creates Kubernetes Events. A failed request is logged and raises no error."""

    def __init__(self, kube: Kube, clock: Callable[[], datetime]) -> None:
        self._kube = kube
        self._clock = clock

    async def record(self, subject: Subject, event: Event) -> bool:
        """Create the Event unless an equal Event exists. Return False if the request fails, else True."""
        try:
            await self._kube.create(event_manifest(subject, event, self._clock()))
        except KubeError as error:
            _log.warning("event not created", namespace=subject.namespace, name=subject.name, detail=str(error))
            return False
        return True
