"""Reconcile one object: read it, observe, decide, write what differs, and requeue it.

This is the only place where observation, decision and writes meet. A write that the API server refuses becomes the
object's condition. Any other failure is retried with back-off, and reported once it lasts. Neither stops the other
objects.
"""

import asyncio
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import structlog

from memory_operator.api.conditions import ConditionType, Verdict
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import InvalidSpecError, Manifest, MemoryIndex, parse
from memory_operator.clients.events import EventRecorder, ObjectIdentity
from memory_operator.clients.kube import Kube, KubeError
from memory_operator.controller.events import Event, of_failed_jobs, of_started_jobs, of_transitions
from memory_operator.controller.history import ObjectHistory
from memory_operator.controller.metrics import Metrics
from memory_operator.controller.observe import Observer
from memory_operator.controller.queue import Key, WorkQueue
from memory_operator.controller.rollouts import RolloutTurn, rolls_out_default_image
from memory_operator.reconcile.core import RequeueIntervals, acknowledge, reconcile
from memory_operator.reconcile.facts import Observed
from memory_operator.reconcile.jobs import active_job
from memory_operator.reconcile.plan import Action, Apply, Delete, Plan, SetFinalizer
from memory_operator.reconcile.status import refuse
from memory_operator.resources.common import Images

_log = structlog.get_logger(__name__)

# Counting a large table takes the database's time: a reconcile that took a second is not repeated for twenty.
MAX_OBSERVE_DUTY_CYCLE = 0.05


class Controller:
    """Reconciles the objects that are due in the queue."""

    def __init__(
        self,
        *,
        kube: Kube,
        observer: Observer,
        queue: WorkQueue,
        events: EventRecorder,
        images: Images,
        intervals: RequeueIntervals,
        metrics: Metrics,
        clock: Callable[[], datetime],
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._kube = kube
        self._observer = observer
        self._queue = queue
        self._events = events
        self._images = images
        self._intervals = intervals
        self._metrics = metrics
        self._clock = clock
        self._timer = timer
        self._histories: dict[Key, ObjectHistory] = {}
        self._turn = RolloutTurn()

    async def work(self) -> None:
        """Reconcile due objects until cancelled."""
        while True:
            key = await self._queue.take()
            try:
                await self.reconcile_object(key)
            finally:
                self._queue.done(key)
                self._metrics.queue_depth.set(len(self._queue))

    async def reconcile_object(self, key: Key) -> None:
        """Reconcile one object and requeue it; no failure leaves this method."""
        namespace, name = key
        history = self._histories.setdefault(key, ObjectHistory())
        began = self._timer()
        requeue_after: float | None = None
        manifest: Manifest | None = None
        try:
            manifest = await self._kube.get("MemoryIndex", namespace, name)
            if manifest:
                requeue_after = await self._reconcile(manifest, history)
            else:
                self._forget(key)
            history.succeed()
        except Exception as error:  # noqa: BLE001 - whatever happens to one object must not end the operator
            requeue_after = history.fail(self._clock())
            self._metrics.errors.labels(type(error).__name__).inc()
            retry = round(requeue_after, 1)
            _log.warning("reconcile failed", namespace=namespace, name=name, retry_seconds=retry, **log_fields(error))
            if manifest and history.failure_lasts(self._clock()):
                await self._report_failure(manifest, error)
        seconds = self._timer() - began
        self._metrics.reconcile_seconds.observe(seconds)
        if requeue_after is not None:
            pause = seconds / MAX_OBSERVE_DUTY_CYCLE if requeue_after else 0.0
            self._queue.schedule(key, max(requeue_after, pause))

    def _forget(self, key: Key) -> None:
        self._histories.pop(key, None)
        self._metrics.forget(*key)
        self._turn.release(key)
        self._queue.cancel(key)

    async def _reconcile(self, manifest: Manifest, history: ObjectHistory) -> float:
        self._metrics.see(manifest["metadata"]["namespace"], manifest["metadata"]["name"], manifest.get("status") or {})
        try:
            index = parse(manifest)
        except InvalidSpecError as error:
            verdict = Verdict.no(Reason.INVALID_SPEC, str(error))
            await self._report(manifest, refuse(manifest, verdict, self._clock()))
            return self._intervals.settled
        plan = acknowledge(index, self._clock()) or await self._decide(index, history)
        if plan.recommendation:
            history.record_recommendation(
                plan.recommendation, keep_seconds=index.spec.embedder.scale_down_delay_seconds
            )
        try:
            for action in plan.actions:
                await self._execute(index, action)
        except KubeError as error:
            if not error.refused:
                raise
            await self._report_refusal(manifest, plan, error)
            return self._intervals.stalled
        await self._record(index, of_started_jobs(plan.actions))
        if plan.status is not None:
            await self._report(manifest, plan.status)
        return plan.requeue_after

    async def _decide(self, index: MemoryIndex, history: ObjectHistory) -> Plan:
        key = (index.namespace, index.name)
        observed = self._with_history(await self._observer.observe(index), history)
        await self._record(index, of_failed_jobs(history.newly_failed(observed.jobs)))
        plan = reconcile(index, observed, self._images, self._clock(), self._intervals)
        self._turn.observe(key, observed)
        if rolls_out_default_image(index, observed, self._images, plan) and not self._turn.admits(key):
            observed = replace(observed, rollout_admitted=False)
            plan = reconcile(index, observed, self._images, self._clock(), self._intervals)
        return plan

    def _with_history(self, observed: Observed, history: ObjectHistory) -> Observed:
        """Add the rate and what else takes more than one observation."""
        rate, facts = None, observed.database_facts
        idle_since = history.idle.observe(self._clock(), facts.rows) if facts else None
        if facts and active_job(observed.jobs_of("backfill")):
            rate = history.rate.observe(asyncio.get_running_loop().time(), facts.rows.embedded)
        elif facts:
            history.rate.reset()
        recommendations = tuple(history.recommendations)
        return replace(observed, rows_per_second=rate, recommendations=recommendations, idle_since=idle_since)

    async def _execute(self, index: MemoryIndex, action: Action) -> None:
        context = {"namespace": index.namespace, "name": index.name}
        match action:
            case Apply(manifest):
                meta = manifest["metadata"]
                _log.info("apply", kind=manifest["kind"], object=f"{meta['namespace']}/{meta['name']}", **context)
                await self._kube.apply(manifest)
            case Delete(kind, namespace, name):
                _log.info("delete", kind=kind, object=f"{namespace}/{name}", **context)
                await self._kube.delete(kind, namespace, name)
            case SetFinalizer(present):
                await self._kube.set_finalizer(index.namespace, index.name, present=present)

    async def _report_refusal(self, manifest: Manifest, plan: Plan, error: KubeError) -> None:
        """Report that the API server refuses a write, beside what was decided."""
        verdict = Verdict.no(Reason.WRITE_REFUSED, f"The API server refuses {error.action}: {error.message}")
        self._metrics.errors.labels(Reason.WRITE_REFUSED.code).inc()
        await self._report(manifest, refuse(manifest, verdict, self._clock(), decided=plan.status))

    async def _report_failure(self, manifest: Manifest, error: Exception) -> None:
        """Report that the object cannot be observed; where that fails too, only log and metrics tell."""
        cause = str(error) if isinstance(error, KubeError) else f"{type(error).__name__}, see the operator's log"
        verdict = Verdict.unknown(Reason.OBSERVATION_FAILED, f"The operator cannot tell the state: {cause}")
        with suppress(KubeError):  # of the same API server that may be what fails
            await self._report(manifest, refuse(manifest, verdict, self._clock()))

    async def _record(self, index: MemoryIndex | ObjectIdentity, events: Iterable[Event]) -> None:
        for event in events:
            await self._events.record(index, event.type, event.reason, event.message)

    async def _report(self, manifest: Manifest, status: Manifest) -> None:
        """Write the status where it differs from the written one."""
        meta = manifest["metadata"]
        self._metrics.report(meta["namespace"], meta["name"], status)
        before = manifest.get("status") or {}
        if status == before:
            return
        await self._kube.apply_status(meta["namespace"], meta["name"], status)
        self._metrics.see(meta["namespace"], meta["name"], status)
        subject = ObjectIdentity(meta["name"], meta["namespace"], meta.get("uid", ""))
        await self._record(subject, of_transitions(before, status))
        ready = _ready(status)
        if ready != _ready(before):
            _log.info("ready", namespace=meta["namespace"], name=meta["name"], status=ready[0], reason=ready[1])


def _ready(status: Manifest) -> tuple[str, str]:
    conditions = status.get("conditions") or ()
    return next(((c["status"], c.get("reason", "")) for c in conditions if c["type"] == ConditionType.READY), ("", ""))


def log_fields(error: Exception) -> dict[str, str]:
    """Return what may be logged of an error; another library's text may quote data, so only its place is logged."""
    if isinstance(error, KubeError):
        return {"error": type(error).__name__, "detail": str(error)}
    frames = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-6:]]
    return {"error": type(error).__name__, "at": " > ".join(frames)}
