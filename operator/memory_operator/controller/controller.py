"""Reconcile one object: read it, observe, decide, write what differs, and requeue it.

Only this module connects observation, decision and writes. If the Kubernetes API server refuses a write, the condition
that needs the write reports the refusal. Any other failure is retried with back-off, and is reported in the status if
it lasts. No failure of one object stops the reconciles of other objects.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime

import structlog

from memory_operator.api.conditions import ConditionType, Verdict
from memory_operator.api.spec import FINALIZER, InvalidSpecError, Manifest, MemoryIndex, parse
from memory_operator.clients.kube import Kube, KubeError, NamespaceFullError
from memory_operator.controller.events import of_failed_jobs, of_started_job
from memory_operator.controller.history import ObjectHistory
from memory_operator.controller.metrics import Metrics
from memory_operator.controller.observe import Observer
from memory_operator.controller.queue import Key, WorkQueue
from memory_operator.controller.reporter import Reporter, log_fields
from memory_operator.controller.rollouts import RolloutTurn, rolls_out_default_image
from memory_operator.controller.writes import Writes, finalizer_of
from memory_operator.reconcile.authorization.existing_pods import component_of, forbidden_among
from memory_operator.reconcile.authorization.permissions import Permitted
from memory_operator.reconcile.core import RequeueIntervals, acknowledge, conclude, reconcile
from memory_operator.reconcile.deletion import waits_for_others
from memory_operator.reconcile.facts import Observed
from memory_operator.reconcile.indexing.graph import pending_changes
from memory_operator.reconcile.jobs import active_job
from memory_operator.reconcile.plan import Action, Apply, Delete, Patch, Plan, Step
from memory_operator.reconcile.status import with_refusals
from memory_operator.reconcile.withdrawal import Halt, stop_all
from memory_operator.resources.common import Images
from memory_operator.resources.events import Subject, cluster_elsewhere
from memory_operator.resources.model_fetch import FetchRoute

_log = structlog.get_logger(__name__)

RECONCILE_SECONDS = 60.0  # for which one reconcile may occupy a worker
LATE_SECONDS = 30.0  # that an object has waited for a worker, before the log says so
WARNING_INTERVAL_SECONDS = 60.0
NO_MORE_WRITES = {0, 429}  # no answer, or the request to slow down


@dataclass(kw_only=True)
class Controller:
    """Reconciles the objects that are due in the queue."""

    kube: Kube
    observer: Observer
    queue: WorkQueue
    images: Images
    intervals: RequeueIntervals
    permitted: Permitted
    route: FetchRoute
    metrics: Metrics
    clock: Callable[[], datetime]
    timer: Callable[[], float] = time.perf_counter
    limit_seconds: float = RECONCILE_SECONDS
    _histories: dict[Key, ObjectHistory] = field(default_factory=dict)
    _turn: RolloutTurn = field(default_factory=RolloutTurn)
    _next_warning: float = 0.0

    def __post_init__(self) -> None:
        """Make what reports the state of the objects."""
        self._reporter = Reporter(self.kube, self.metrics, self.clock)

    async def work(self) -> None:
        """Take due objects from the queue and reconcile them, until cancelled."""
        began = self.queue.now()
        while True:
            key = await self.queue.take()
            self._note_wait(key, since=began)
            try:
                await self.reconcile_object(key)
            finally:
                self.queue.done(key)
                self.metrics.queue_depth.set(len(self.queue))

    def _note_wait(self, key: Key, since: float) -> None:
        """Count how long the object has waited for a worker, and warn once a minute where that is long.

        A time before `since`, in which this process was not the leader, does not count.
        """
        moment = self.queue.now()
        waited = min(self.queue.waited(key), moment - since)
        self.metrics.wait_seconds.observe(waited)
        if waited >= LATE_SECONDS and moment >= self._next_warning:
            self._next_warning = moment + WARNING_INTERVAL_SECONDS
            where = {"namespace": key[0], "name": key[1]}
            _log.warning("reconciles are late", waited_seconds=round(waited), waiting=len(self.queue), **where)

    async def reconcile_object(self, key: Key) -> None:
        """Reconcile one object and requeue it. A failure is logged and retried, but never raised."""
        namespace, name = key
        history = self._histories.setdefault(key, ObjectHistory())
        began = self.timer()
        requeue_after: float | None = None
        manifest: Manifest | None = None
        try:
            async with asyncio.timeout(self.limit_seconds):
                manifest = await self.observer.objects.get("MemoryIndex", namespace, name)
                if manifest:
                    history = self._histories[key] = history.for_object(manifest["metadata"]["uid"])
                    requeue_after = await self._reconcile(manifest, history)
                else:
                    self._forget(key)
            history.succeed()
        except Exception as error:  # noqa: BLE001 - whatever happens to one object must not end the operator
            requeue_after = history.fail(self.clock())
            self.metrics.errors.labels(type(error).__name__).inc()
            retry = round(requeue_after, 1)
            _log.warning("reconcile failed", namespace=namespace, name=name, retry_seconds=retry, **log_fields(error))
            if manifest and history.failure_lasts(self.clock()):
                await self._reporter.report_failure(manifest, error)
        finally:
            history.writes.forget_live()
        self.metrics.reconcile_seconds.observe(self.timer() - began)
        if requeue_after is not None:
            self.queue.schedule(key, requeue_after, urgent=requeue_after == 0)

    def _forget(self, key: Key) -> None:
        self._histories.pop(key, None)
        self.metrics.forget(*key)
        self._turn.release(key)

    async def _reconcile(self, manifest: Manifest, history: ObjectHistory) -> float:
        self.metrics.see(manifest["metadata"]["namespace"], manifest["metadata"]["name"], manifest.get("status") or {})
        try:
            index = parse(manifest)
        except InvalidSpecError as error:
            return await self._refuse(manifest, error)
        plan = acknowledge(index, self.clock())
        if plan is None:
            index, plan = await self._observe_and_decide(index, manifest, history)
        if plan.recommendation:
            history.record_recommendation(
                plan.recommendation, keep_seconds=index.spec.embedder.scale_down_delay_seconds
            )
        failures = await self._carry_out(index, manifest, plan, history.writes)
        refusals = {kind: Verdict.no(error.reason, error.text) for kind, error in failures.items() if error.refused}
        failure = next((error for error in failures.values() if not error.refused), None)
        for refusal in refusals.values():
            self.metrics.errors.labels(refusal.reason.code).inc()
        if failure and (plan.status is None or history.failure_lasts(self.clock())):
            raise failure  # one that lasts is what the status says, so the plan's is not written in between
        if plan.status is not None:
            status = with_refusals(index, plan, refusals, self.clock()) if refusals else plan.status
            await self._reporter.report(manifest, status)
        if failure:
            raise failure
        if plan.finalizer is False:
            refused = () if plan.status is not None else tuple(refusal.message for refusal in refusals.values())
            await self._release(manifest, " ".join((*plan.left_behind, *refused)), *cluster_elsewhere(index))
        return self.intervals.stalled if refusals else plan.requeue_after

    async def _refuse(self, manifest: Manifest, error: InvalidSpecError) -> float:
        """Stop the workers of an object with an invalid specification, and report it."""
        self._turn.release((manifest["metadata"]["namespace"], manifest["metadata"]["name"]))
        halt = await self._stop_workers(manifest)
        if "deletionTimestamp" not in manifest["metadata"]:
            await self._reporter.report_invalid(manifest, f"{error}. {halt.text}".strip(". "))
        elif FINALIZER in manifest["metadata"].get("finalizers") or ():
            await self._release(manifest, f"What cannot be known from a specification with {error}.")
        return self.intervals.settled

    async def _stop_workers(self, manifest: Manifest) -> Halt:
        """Stop the workers of an object whose permissions cannot be checked, or are no longer.

        Of its embedders, those are stopped whose own pods must not run.
        """
        found = await self.observer.running(manifest)
        forbidden = forbidden_among(found.embedders, (), found.refused_keys, self.permitted)
        embedders = [one for one in found.embedders if component_of(one) in forbidden]
        halt = stop_all(manifest["metadata"]["namespace"], found.sync, found.jobs, embedders)
        for patch in halt.actions:
            await self._patch(patch)
        return halt

    async def _release(self, manifest: Manifest, left_behind: str, *elsewhere: Subject) -> None:
        """Report what the deletion leaves behind, if anything, then remove the operator's finalizer."""
        if left_behind:
            await self._reporter.report_left_behind(manifest, left_behind, *elsewhere)
        await self.kube.set_finalizer(manifest, present=False)
        if left_behind:
            self.metrics.left_behind.inc()

    async def _observe_and_decide(
        self, index: MemoryIndex, manifest: Manifest, history: ObjectHistory
    ) -> tuple[MemoryIndex, Plan]:
        """Return the object, with how its embedder is called, and its plan.

        If the objects of its namespace are too large to be read, its workers are stopped: their authors could keep a
        withdrawn permission in this way.
        """
        try:
            if index.deleted_at is not None:  # a deletion asks no embedder, and waits for no Secret of one
                return index, await self._conclude(index, manifest, history)
            index = await self.observer.resolved(index)
            return index, await self._decide(index, manifest, history)
        except NamespaceFullError as error:
            if error.namespace == index.namespace:
                await self._stop_workers(manifest)
            raise

    async def _decide(self, index: MemoryIndex, manifest: Manifest, history: ObjectHistory) -> Plan:
        observed = history.record_times(await self.observer.observe(index), self.clock())
        observed = self._with_history(observed, history)
        failed = history.record_failed_jobs(observed.jobs, self.clock())
        await self._reporter.record(manifest, of_failed_jobs(failed))
        observed, plan = await self._with_admissions(index, observed, history.writes)
        self._turn.observe(index, observed)
        if rolls_out_default_image(index, observed, self.images, plan) and not self._turn.admits(
            index, observed, self.clock()
        ):
            plan = self._plan(index, replace(observed, rollout_admitted=False))
        return plan

    async def _with_admissions(self, index: MemoryIndex, observed: Observed, writes: Writes) -> tuple[Observed, Plan]:
        """Return the plan, and the observation with what admission makes of the operator's writes.

        Where that is not known after a restart, the API server is asked by a dry run. If it refuses to answer, as with
        a webhook that has no dry runs, the write itself is the question.
        """
        observed = writes.known(observed)
        plan = self._plan(index, observed)
        doubtful = writes.doubtful(observed, plan.wanted)
        if not doubtful:
            return observed, plan
        for manifest in doubtful:
            try:
                writes.learn(manifest, await self.kube.dry_run(manifest))
            except KubeError as error:
                _log.info("no dry run", **log_fields(error))
        observed = writes.known(observed)
        return observed, self._plan(index, observed)

    def _plan(self, index: MemoryIndex, observed: Observed) -> Plan:
        return reconcile(
            index, observed, self.images, self.clock(), self.intervals, permitted=self.permitted, route=self.route
        )

    async def _conclude(self, index: MemoryIndex, manifest: Manifest, history: ObjectHistory) -> Plan:
        self._turn.release((index.namespace, index.name))
        if FINALIZER not in index.finalizers:  # somebody else's may hold the object, and its workers, for good
            await self._stop_workers(manifest)
            return Plan(None, self.intervals.settled)
        facts = await self.observer.observe_deletion(index)
        undoing_since = history.record_undoing(self.clock(), waits=waits_for_others(index, facts))
        facts = replace(facts, undoing_since=undoing_since)
        if facts.observed:
            observed = history.record_times(facts.observed, self.clock())
            facts = replace(facts, observed=history.writes.known(observed))
            failed = history.record_failed_jobs(observed.jobs, self.clock())
            await self._reporter.record(manifest, of_failed_jobs(failed))
        return conclude(index, facts, self.images, self.clock(), self.intervals, permitted=self.permitted)

    def _with_history(self, observed: Observed, history: ObjectHistory) -> Observed:
        """Add the facts that need several observations, such as the number of rows embedded per second."""
        rate, facts = None, observed.database_facts
        idle_since, graph_idle_since = None, None
        if facts:
            rows, pending = facts.rows, pending_changes(observed)
            if not rows.uncounted:
                idle_since = history.idle.observe(self.clock(), pending=rows.pending, done=rows.embedded)
            done = (facts.graph.oldest if facts.graph else None) or 0  # grows as the worker gets on in the queue
            graph_idle_since = history.graph_idle.observe(self.clock(), pending=pending, done=done)
        if facts and not facts.rows.uncounted and active_job(observed.jobs_of("backfill")):
            rate = history.rate.observe(asyncio.get_running_loop().time(), facts.rows.embedded)
        elif facts:
            history.rate.reset()
        recommendations = tuple(history.recommendations)
        return replace(
            observed,
            rows_per_second=rate,
            recommendations=recommendations,
            idle_since=idle_since,
            graph_idle_since=graph_idle_since,
        )

    async def _carry_out(
        self, index: MemoryIndex, manifest: Manifest, plan: Plan, writes: Writes
    ) -> dict[ConditionType, KubeError]:
        """Execute the plan step by step; return the error of each step that failed, by the condition of the step.

        The finalizer is written first, because it lets a later deletion undo the other writes. Without it, only those
        are made that stop something.
        """
        failures: dict[ConditionType, KubeError] = {}
        steps = plan.steps
        if plan.finalizer:
            try:
                content = finalizer_of(index)
                writes.require_rest(content, self.clock())
                await self.kube.set_finalizer(manifest, present=True)
                writes.count(content, self.clock())
            except KubeError as error:
                failures[ConditionType.READY] = error
                steps = {kind: replace(step, actions=_stops(step)) for kind, step in steps.items()}
        for kind, step in steps.items():
            try:
                for action in step.actions:
                    await self._execute(index, action, writes)
                    await self._reporter.record(manifest, of_started_job(action))
            except KubeError as error:
                failures[kind] = error
                if error.code in NO_MORE_WRITES:
                    break
        return failures

    async def _execute(self, index: MemoryIndex, action: Action, writes: Writes) -> None:
        context = {"namespace": index.namespace, "name": index.name}
        match action:
            case Apply(manifest):
                meta = manifest["metadata"]
                writes.require_rest(manifest, self.clock())
                _log.info("apply", kind=manifest["kind"], object=f"{meta['namespace']}/{meta['name']}", **context)
                writes.record(manifest, await self.kube.apply(manifest), self.clock())
            case Delete(kind, namespace, name, uid):
                _log.info("delete", kind=kind, object=f"{namespace}/{name}", **context)
                await self.kube.delete(kind, namespace, name, uid)
            case Patch():
                await self._patch(action)

    async def _patch(self, patch: Patch) -> None:
        _log.info("patch", kind=patch.kind, object=f"{patch.namespace}/{patch.name}", changes=patch.changes["spec"])
        await self.kube.patch(patch.kind, patch.namespace, patch.name, patch.uid, patch.changes)


def _stops(step: Step) -> tuple[Action, ...]:
    return tuple(action for action in step.actions if isinstance(action, Patch) and action.stops)
