"""One look at one object: read, decide, write what differs, remember, say when to look again.

The only place where observation, decision and writes meet. A write that the API server refuses ends in the object's
condition, any other failure is backed off; neither stops the other objects.
"""

import asyncio
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import structlog

from memory_operator.api.conditions import ConditionType, Verdict
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import InvalidSpecError, Manifest, MemoryIndex, parse
from memory_operator.clients.kube import Kube, KubeError
from memory_operator.controller.history import ObjectMemory
from memory_operator.controller.metrics import Metrics
from memory_operator.controller.observe import Observer
from memory_operator.controller.queue import Key, WorkQueue
from memory_operator.reconcile import reconcile, refuse
from memory_operator.reconcile.core import Pace
from memory_operator.reconcile.jobs import active
from memory_operator.reconcile.observed import Observed
from memory_operator.reconcile.plan import Action, Apply, Delete, Plan, SetFinalizer
from memory_operator.resources.common import Images

_log = structlog.get_logger(__name__)

# Counting a large table takes the database's time: a look that took a second is not repeated for twenty.
LOOKING_SHARE = 0.05


class Controller:
    """Works through the queue."""

    def __init__(
        self,
        *,
        kube: Kube,
        observer: Observer,
        queue: WorkQueue,
        images: Images,
        pace: Pace,
        metrics: Metrics,
        clock: Callable[[], datetime],
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._kube = kube
        self._observer = observer
        self._queue = queue
        self._images = images
        self._pace = pace
        self._metrics = metrics
        self._clock = clock
        self._timer = timer
        self._memories: dict[Key, ObjectMemory] = {}

    async def work(self) -> None:
        """Take keys until cancelled."""
        while True:
            key = await self._queue.take()
            try:
                await self.look(key)
            finally:
                self._queue.done(key)
                self._metrics.queue_depth.set(len(self._queue))

    async def look(self, key: Key) -> None:
        """Look at one object and put it back into the queue for later."""
        namespace, name = key
        memory = self._memories.setdefault(key, ObjectMemory())
        began = self._timer()
        try:
            manifest = await self._kube.get("MemoryIndex", namespace, name)
            again = await self._reconcile(manifest, memory) if manifest else None
            if manifest is None:
                self._forget(key)
            memory.backoff.succeed()
        except Exception as error:  # noqa: BLE001 - whatever happens to one object must not end the operator
            again = memory.backoff.fail()
            self._metrics.errors.labels(type(error).__name__).inc()
            _log.warning(
                "look failed", namespace=namespace, name=name, retry_seconds=round(again, 1), **described(error)
            )
        seconds = self._timer() - began
        self._metrics.reconcile_seconds.observe(seconds)
        if again is not None:
            self._queue.wake(key, max(again, seconds / LOOKING_SHARE) if again else again)

    def _forget(self, key: Key) -> None:
        self._memories.pop(key, None)
        self._metrics.forget(*key)
        self._queue.forget(key)

    async def _reconcile(self, manifest: Manifest, memory: ObjectMemory) -> float:
        try:
            index = parse(manifest)
        except InvalidSpecError as error:
            verdict = Verdict.no(Reason.INVALID_SPEC, str(error))
            await self._report(manifest, refuse(manifest, verdict, self._clock()))
            return self._pace.settled
        seen = self._remember(await self._observer.observe(index), memory)
        plan = reconcile(index, seen, self._images, self._clock(), self._pace)
        if plan.recommendation:
            memory.recommend(plan.recommendation, keep_seconds=index.spec.embedder.scale_down_delay_seconds)
        try:
            for action in plan.actions:
                await self._carry_out(index, action)
        except KubeError as error:
            if not error.refused:
                raise
            await self._refused(manifest, plan, error)
            return self._pace.stalled
        if plan.status is not None:
            await self._report(manifest, plan.status)
        return plan.again_seconds

    def _remember(self, seen: Observed, memory: ObjectMemory) -> Observed:
        """Add what only successive looks can tell."""
        rate = None
        if seen.facts and active(seen.jobs_of("backfill")):
            rate = memory.rate.observe(asyncio.get_running_loop().time(), seen.facts.rows.embedded)
        elif seen.facts:
            memory.rate.reset()
        return replace(seen, rows_per_second=rate, recommendations=tuple(memory.recommendations))

    async def _carry_out(self, index: MemoryIndex, action: Action) -> None:
        context = {"namespace": index.namespace, "name": index.name}
        match action:
            case Apply(manifest):
                meta = manifest["metadata"]
                _log.info("apply", kind=manifest["kind"], object=f"{meta['namespace']}/{meta['name']}", **context)
                await self._kube.apply(manifest)
            case Delete(_, kind, namespace, name):
                _log.info("delete", kind=kind, object=f"{namespace}/{name}", **context)
                await self._kube.delete(kind, namespace, name)
            case SetFinalizer(present):
                await self._kube.set_finalizer(index.namespace, index.name, present=present)

    async def _refused(self, manifest: Manifest, plan: Plan, error: KubeError) -> None:
        """The API server does not let us: say so in place of what was decided."""
        verdict = Verdict.no(Reason.WRITE_REFUSED, f"The API server refuses {error.action}: {error.message}")
        self._metrics.errors.labels(Reason.WRITE_REFUSED.code).inc()
        decided = plan.status if plan.status is not None else manifest.get("status") or {}
        status = refuse({**manifest, "status": decided}, verdict, self._clock())
        await self._report(manifest, keep_times(status, manifest.get("status") or {}))

    async def _report(self, manifest: Manifest, status: Manifest) -> None:
        """Write the status if it says something else than before."""
        meta = manifest["metadata"]
        self._metrics.report(meta["namespace"], meta["name"], status)
        before = manifest.get("status") or {}
        if status == before:
            return
        await self._kube.apply_status(meta["namespace"], meta["name"], status)
        ready = _ready(status)
        if ready != _ready(before):
            _log.info("ready", namespace=meta["namespace"], name=meta["name"], status=ready[0], reason=ready[1])


def _ready(status: Manifest) -> tuple[str, str]:
    conditions = status.get("conditions") or ()
    return next(((c["status"], c.get("reason", "")) for c in conditions if c["type"] == ConditionType.READY), ("", ""))


def keep_times(status: Manifest, before: Manifest) -> Manifest:
    """The status with the transition times of conditions whose status is the one already written."""
    old = {condition["type"]: condition for condition in before.get("conditions") or ()}
    conditions = []
    for condition in status["conditions"]:
        same = old.get(condition["type"], {})
        kept = (
            same["lastTransitionTime"] if same.get("status") == condition["status"] else condition["lastTransitionTime"]
        )
        conditions.append({**condition, "lastTransitionTime": kept})
    return {**status, "conditions": conditions}


def described(error: Exception) -> dict[str, str]:
    """What may be logged of an error: foreign ones by class and place only, since their texts may quote anything."""
    if isinstance(error, KubeError):
        return {"error": type(error).__name__, "detail": str(error)}
    frames = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-6:]]
    return {"error": type(error).__name__, "at": " > ".join(frames)}
