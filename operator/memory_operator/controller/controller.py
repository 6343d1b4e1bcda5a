"""Reconcile one object: read it, observe, decide, write what differs, and requeue it.

This is the only place where observation, decision and writes meet. A write that the API server refuses becomes the
condition of its step, and any other failure is retried with back-off; neither stops the other steps or objects.
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
from memory_operator.api.spec import FINALIZER, InvalidSpecError, Manifest, MemoryIndex, parse
from memory_operator.clients.database import DatabasesBusyError
from memory_operator.clients.kube import Kube, KubeError
from memory_operator.controller.history import ObjectHistory
from memory_operator.controller.metrics import Metrics
from memory_operator.controller.observe import Observer
from memory_operator.controller.queue import Key, WorkQueue
from memory_operator.reconcile.core import RequeueIntervals, acknowledge, conclude, reconcile
from memory_operator.reconcile.facts import Observed
from memory_operator.reconcile.jobs import active_job
from memory_operator.reconcile.plan import Action, Apply, Delete, Plan
from memory_operator.reconcile.status import refuse, with_refusals
from memory_operator.resources import events
from memory_operator.resources.common import Images

_log = structlog.get_logger(__name__)

RECONCILE_SECONDS = 60.0  # for which one reconcile may occupy a worker
BUSY_SECONDS = 1.0  # until the next attempt where too many databases are being observed
NO_MORE_WRITES = {0, 429}  # no answer, or the request to slow down


class Controller:
    """Reconciles the objects that are due in the queue."""

    def __init__(
        self,
        *,
        kube: Kube,
        observer: Observer,
        queue: WorkQueue,
        images: Images,
        intervals: RequeueIntervals,
        metrics: Metrics,
        clock: Callable[[], datetime],
        timer: Callable[[], float] = time.perf_counter,
        limit_seconds: float = RECONCILE_SECONDS,
    ) -> None:
        self._kube = kube
        self._observer = observer
        self._queue = queue
        self._images = images
        self._intervals = intervals
        self._metrics = metrics
        self._clock = clock
        self._timer = timer
        self._limit_seconds = limit_seconds
        self._histories: dict[Key, ObjectHistory] = {}

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
        try:
            async with asyncio.timeout(self._limit_seconds):
                manifest = await self._kube.get("MemoryIndex", namespace, name)
                if manifest:
                    requeue_after = await self._reconcile(manifest, history)
                else:
                    self._forget(key)
            history.backoff.succeed()
        except DatabasesBusyError:
            requeue_after = BUSY_SECONDS
        except Exception as error:  # noqa: BLE001 - whatever happens to one object must not end the operator
            requeue_after = history.backoff.fail()
            self._metrics.errors.labels(type(error).__name__).inc()
            retry = round(requeue_after, 1)
            _log.warning("reconcile failed", namespace=namespace, name=name, retry_seconds=retry, **log_fields(error))
        self._metrics.reconcile_seconds.observe(self._timer() - began)
        if requeue_after is not None:
            self._queue.schedule(key, requeue_after)

    def _forget(self, key: Key) -> None:
        self._histories.pop(key, None)
        self._metrics.forget(*key)

    async def _reconcile(self, manifest: Manifest, history: ObjectHistory) -> float:
        try:
            index = parse(manifest)
        except InvalidSpecError as error:
            return await self._refuse(manifest, error)
        plan = acknowledge(index, self._clock()) or await self._decide(index, history)
        if plan.recommendation:
            history.record_recommendation(
                plan.recommendation, keep_seconds=index.spec.embedder.scale_down_delay_seconds
            )
        failures = await self._carry_out(index, manifest, plan)
        refusals = {kind: _refusal(error) for kind, error in failures.items() if error.refused}
        failure = next((error for error in failures.values() if not error.refused), None)
        if refusals:
            self._metrics.errors.labels(Reason.WRITE_REFUSED.code).inc()
        if plan.status is not None:
            status = with_refusals(index, plan, refusals, self._clock()) if refusals else plan.status
            await self._report(manifest, status)
        if failure:
            raise failure
        if plan.finalizer is False:
            left = "" if plan.status is not None else " ".join((*plan.left_behind, *refusals.values()))
            await self._release(manifest, left, *events.left_behind(index, left, self._clock()))
        return self._intervals.stalled if refusals else plan.requeue_after

    async def _refuse(self, manifest: Manifest, error: InvalidSpecError) -> float:
        """Report a specification that cannot be read; an object that is being deleted is not kept for it."""
        if "deletionTimestamp" not in manifest["metadata"]:
            verdict = Verdict.no(Reason.INVALID_SPEC, str(error))
            await self._report(manifest, refuse(manifest, verdict, self._clock()))
        elif FINALIZER in manifest["metadata"].get("finalizers") or ():
            await self._release(manifest, f"What cannot be known from a specification with {error}.")
        return self._intervals.settled

    async def _decide(self, index: MemoryIndex, history: ObjectHistory) -> Plan:
        if index.deleted_at is None:
            observed = self._with_history(await self._observer.observe(index), history)
            return reconcile(index, observed, self._images, self._clock(), self._intervals)
        if FINALIZER not in index.finalizers:
            return Plan(None, self._intervals.settled)
        facts = await self._observer.observe_deletion(index)
        return conclude(index, facts, self._images, self._clock(), self._intervals)

    def _with_history(self, observed: Observed, history: ObjectHistory) -> Observed:
        """Add the rate and the recommendations, which take more than one observation."""
        rate = None
        if observed.database_facts and active_job(observed.jobs_of("backfill")):
            rate = history.rate.observe(asyncio.get_running_loop().time(), observed.database_facts.rows.embedded)
        elif observed.database_facts:
            history.rate.reset()
        return replace(observed, rows_per_second=rate, recommendations=tuple(history.recommendations))

    async def _carry_out(self, index: MemoryIndex, manifest: Manifest, plan: Plan) -> dict[ConditionType, KubeError]:
        """Execute the plan step by step, and return what ended a step, by its condition.

        Nothing that is to be undone one day is begun before the finalizer is written.
        """
        failures: dict[ConditionType, KubeError] = {}
        if plan.finalizer:
            try:
                await self._kube.set_finalizer(manifest, present=True)
            except KubeError as error:
                return {ConditionType.READY: error}
        for kind, step in plan.steps.items():
            try:
                for action in step.actions:
                    await self._execute(index, action)
            except KubeError as error:
                failures[kind] = error
                if error.code in NO_MORE_WRITES:
                    break
        return failures

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

    async def _release(self, manifest: Manifest, left_behind: str, *choices: Manifest) -> None:
        """Take our finalizer off, once the log and the first Event that is accepted say what stays, if anything."""
        names = {"namespace": manifest["metadata"]["namespace"], "name": manifest["metadata"]["name"]}
        if left_behind:
            _log.warning("left behind", what=left_behind, **names)
        for event in choices if left_behind else ():
            try:
                await self._kube.apply(event)
                break
            except KubeError as error:
                _log.warning("event refused", **names, **log_fields(error))
        await self._kube.set_finalizer(manifest, present=False)
        if left_behind:
            self._metrics.left_behind.inc()

    async def _report(self, manifest: Manifest, status: Manifest) -> None:
        """Write the status where it differs from the written one."""
        meta = manifest["metadata"]
        self._metrics.report(meta["namespace"], meta["name"], status)
        before = manifest.get("status") or {}
        if status == before:
            return
        await self._kube.apply_status(meta["namespace"], meta["name"], status)
        ready = _ready(status)
        if ready != _ready(before):
            _log.info("ready", namespace=meta["namespace"], name=meta["name"], status=ready[0], reason=ready[1])


def _refusal(error: KubeError) -> str:
    return f"The API server refuses {error.action}: {error.message}"


def _ready(status: Manifest) -> tuple[str, str]:
    conditions = status.get("conditions") or ()
    return next(((c["status"], c.get("reason", "")) for c in conditions if c["type"] == ConditionType.READY), ("", ""))


def log_fields(error: Exception) -> dict[str, str]:
    """Return what may be logged of an error; another library's text may quote data, so only its place is logged."""
    if isinstance(error, KubeError):
        return {"error": type(error).__name__, "detail": str(error)}
    frames = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-6:]]
    return {"error": type(error).__name__, "at": " > ".join(frames)}
