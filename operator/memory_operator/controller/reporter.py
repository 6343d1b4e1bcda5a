"""Report the state of a MemoryIndex in its status, in Events, in the metrics and in the log.

Nothing depends on Events: if an Event cannot be created, the failure is logged and the reconcile continues.
"""

import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import structlog

from memory_operator.api.conditions import ConditionType, Verdict
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import Manifest
from memory_operator.clients.kube import Kube, KubeError
from memory_operator.controller.events import of_transitions
from memory_operator.controller.metrics import Metrics
from memory_operator.reconcile.status import refuse
from memory_operator.resources.events import Event, Subject, event_manifest, memory_index

_log = structlog.get_logger(__name__)


class Reporter:
    """Writes status, Events, metrics and log lines about MemoryIndex objects; keeps no state."""

    def __init__(self, kube: Kube, metrics: Metrics, clock: Callable[[], datetime]) -> None:
        self._kube = kube
        self._metrics = metrics
        self._clock = clock

    async def report(self, manifest: Manifest, status: Manifest) -> None:
        """Write the status and create Events about the changes, if the status differs from the last written one."""
        meta = manifest["metadata"]
        self._metrics.report(meta["namespace"], meta["name"], status)
        before = manifest.get("status") or {}
        if status == before:
            return
        await self._kube.replace_status(manifest, status)
        self._metrics.see(meta["namespace"], meta["name"], status)
        await self.record(manifest, of_transitions(before, status))
        ready = _ready(status)
        if ready != _ready(before):
            _log.info("ready", namespace=meta["namespace"], name=meta["name"], status=ready[0], reason=ready[1])

    async def report_invalid(self, manifest: Manifest, message: str) -> None:
        """Report in the status that the specification is invalid."""
        await self.report(manifest, refuse(manifest, Verdict.no(Reason.INVALID_SPEC, message), self._clock()))

    async def report_failure(self, manifest: Manifest, error: Exception) -> None:
        """Report in the status that the object cannot be observed.

        If the status cannot be written, no error is raised.
        """
        cause = str(error) if isinstance(error, KubeError) else f"{type(error).__name__}, see the operator's log"
        verdict = Verdict.unknown(Reason.OBSERVATION_FAILED, f"The operator cannot tell the state: {cause}")
        with suppress(KubeError):  # of the same API server that may be what fails
            await self.report(manifest, refuse(manifest, verdict, self._clock()))

    async def report_left_behind(self, manifest: Manifest, what: str, *elsewhere: Subject) -> None:
        """Report in the log and in one Event what the deletion leaves behind.

        The Event is about the MemoryIndex. If this Event cannot be created, an Event about the next subject of
        `elsewhere` is created instead.
        """
        namespace, name = manifest["metadata"]["namespace"], manifest["metadata"]["name"]
        _log.warning("left behind", what=what, namespace=namespace, name=name)
        event = Event("Warning", "LeftBehind", f"MemoryIndex {namespace}/{name} is deleted. {what}")
        for subject in (memory_index(manifest), *elsewhere):
            if await self._create(subject, event):
                break

    async def record(self, manifest: Manifest, events: Iterable[Event]) -> None:
        """Create Events about the MemoryIndex."""
        for event in events:
            await self._create(memory_index(manifest), event)

    async def _create(self, subject: Subject, event: Event) -> bool:
        """Create the Event unless an equal Event exists. Return False if the request fails, else True."""
        try:
            await self._kube.create(event_manifest(subject, event, self._clock()))
        except KubeError as error:
            _log.warning("event not created", namespace=subject.namespace, name=subject.name, detail=str(error))
            return False
        return True


def _ready(status: Manifest) -> tuple[str, str]:
    conditions = status.get("conditions") or ()
    return next(((c["status"], c.get("reason", "")) for c in conditions if c["type"] == ConditionType.READY), ("", ""))


def log_fields(error: Exception) -> dict[str, str]:
    """Return the log fields of an error.

    A KubeError is logged with its message. Any other error is logged with its place in the code, because its message
    may quote data.
    """
    if isinstance(error, KubeError):
        return {"error": type(error).__name__, "detail": str(error)}
    frames = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-6:]]
    return {"error": type(error).__name__, "at": " > ".join(frames)}
