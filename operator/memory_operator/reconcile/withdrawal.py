"""Stop what sends texts or holds a Secret when its permission is withdrawn, and resume it when it is given back.

A permission is withdrawn when an annotation, a label, a permitted host or the claim on the table is taken away, or when
the connection URI leads elsewhere. What runs was started under the former permission. Therefore the embedders and the
Secrets of the live objects are compared with what is permitted now, not only the specification, which may name others
by now. Nothing is lost: rows stay pending, a swap continues from its record in the database, and a stopped Job keeps
its place until it is resumed. A stopped Job is suspended, so that its pods, and the Secrets that they mount, go.

Workers of an object whose specification cannot be read are stopped, too, because nothing tells what they may use: an
author could keep a withdrawn permission by such a specification otherwise.

An object with `spec.suspend` begins nothing and resumes nothing, but a withdrawn permission stops it all the same.

An embedder is stopped only by a permission that its own pods need, and goes on through every other withdrawal: API pods
and other MemoryIndex objects may call it.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from memory_operator.api.conditions import ConditionType, Verdict
from memory_operator.api.embedder import COMPONENT, CaSecret
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import Manifest, MemoryIndex
from memory_operator.reconcile.active_embedder import may_receive
from memory_operator.reconcile.authorization.existing_pods import component_of
from memory_operator.reconcile.authorization.permissions import first_refused
from memory_operator.reconcile.context import Context
from memory_operator.reconcile.facts import JobFacts, JobState, Observed
from memory_operator.reconcile.plan import CONDITION_OF, Action, Apply, Delete, Patch, Step
from memory_operator.resources.choices import Choice, recorded_choices
from memory_operator.resources.common import ANNOTATION_STOPPED
from memory_operator.resources.embedder import EMBEDDERS, stopped_at
from memory_operator.resources.worker_pods import (
    ConfiguredEmbedder,
    configured_embedder,
    destinations,
    mounted_secrets,
)


@dataclass(frozen=True)
class Halt:
    """The writes that stop and resume pods, and the names of what is stopped afterwards: workers, then embedders."""

    actions: tuple[Patch, ...] = ()
    workers: tuple[str, ...] = ()
    embedders: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """A sentence about what is stopped; empty if nothing is."""
        stopped = (*self.workers, *self.embedders)
        effects = ["rows wait"] if self.workers else []
        effects += ["recalls are by words alone"] if self.embedders else []
        if not stopped:
            return ""
        verb = "is" if len(stopped) == 1 else "are"
        return f"Until then {', '.join(stopped)} {verb} stopped; {' and '.join(effects)}."


def plan_halt(
    context: Context, refused: Verdict | None, *, resumes: bool, replicas: int, planned: Iterable[Action]
) -> Halt:
    """Return what is stopped now, and with `resumes` True what is resumed.

    `refused` says why the whole object is refused, or is None. `replicas` is the number of pods that the embedder gets
    back. It gets them also without `resumes`, as many as it had, unless the object is suspended: what the object lacks
    does not concern the pods. `planned` are the other writes of this reconcile: what they end needs no stop.
    """
    index, observed = context.index, context.observed
    writes = tuple(planned)
    deleted = {one.uid for one in writes if isinstance(one, Delete)}
    jobs = [job for job in observed.jobs if job.state is JobState.ACTIVE and not job.deleting]
    named = _named_secrets(index, observed)

    def must_stop(
        sends_to: frozenset[ConfiguredEmbedder], secrets: frozenset[str], choices: tuple[Choice, ...]
    ) -> bool:
        return refused is not None or not (
            secrets <= named
            and all(may_receive(index, to, context.permitted) for to in sends_to)
            and first_refused(choices, context.permitted) is None
        )

    sync = observed.children.get(("Deployment", f"{index.name}-sync"))
    if sync is not None and _ends_pods(sync, writes):
        sync = None
    template = sync["spec"]["template"] if sync else {}
    stops_sync = sync is not None and must_stop(
        destinations(template), mounted_secrets(template), recorded_choices(template)
    )
    kept = [job for job in jobs if job.uid not in deleted]
    stops = [job for job in kept if must_stop(job.sends_to, job.secrets, job.choices)]
    halt = stop_all(index.namespace, sync if stops_sync else None, stops, forbidden_of(context))
    resumed = resume(index.namespace, (job for job in kept if job not in stops)) if resumes else ()
    if not index.spec.suspend:
        given = resume_embedders(context, replicas=replicas if resumes else None, deleted=deleted)
        resumed = (*resumed, *given)
    return replace(halt, actions=(*halt.actions, *resumed))


def forbidden_of(context: Context) -> list[Manifest]:
    """Return the Deployments of embedders whose existing pods must not run."""
    return [item for component, item in _embedders(context).items() if component in context.forbidden]


def resume_embedders(
    context: Context, *, replicas: int | None = None, deleted: Collection[str] = ()
) -> tuple[Patch, ...]:
    """Return the writes that give their pods back to embedders which the operator has stopped and which may run now.

    The embedder gets `replicas` pods if they are given, and otherwise as many as it had, like that of a swap. An object
    whose uid is in `deleted` is left out.
    """
    found = {component: (item, stopped_at(item)) for component, item in _embedders(context).items()}
    return tuple(
        _recorded(_scaled(item, number if component != COMPONENT or replicas is None else replicas), None)
        for component, (item, number) in found.items()
        if number is not None and component not in context.forbidden and item["metadata"]["uid"] not in deleted
    )


def stop_all(
    namespace: str, sync: Manifest | None, jobs: Iterable[JobFacts], embedders: Iterable[Manifest] = ()
) -> Halt:
    """Return the stop of the sync worker, if it is given, and of these Jobs and Deployments of embedders.

    How many pods an embedder had is recorded on it, since the operator does not always decide their number.
    """
    ended = tuple(embedders)
    running = [job for job in jobs if job.state is JobState.ACTIVE and not job.deleting]
    actions = [_scaled(sync, 0)] if sync and _replicas(sync) else []
    actions += [_recorded(_scaled(one, 0), stopped_at(one) or _replicas(one)) for one in ended if _replicas(one)]
    actions += [_suspended(namespace, job, suspend=True) for job in running if not job.suspended]
    names = [_name(sync)] if sync else []
    return Halt(tuple(actions), (*names, *(f"Job {job.name}" for job in running)), tuple(_name(one) for one in ended))


def resume(namespace: str, jobs: Iterable[JobFacts]) -> tuple[Patch, ...]:
    """Return the writes that resume those of these Jobs which the operator has stopped."""
    return tuple(_suspended(namespace, job, suspend=False) for job in jobs if job.stopped)


def with_halt(
    context: Context, steps: Mapping[ConditionType, Step], halt: Halt, refused: Verdict | None
) -> dict[ConditionType, Step]:
    """Return the steps where that of Backfilled stops and resumes pods, and says so if the object is refused.

    The condition of an embedder whose existing pods must not run says why. No write starts again what is stopped.
    """
    step = steps[ConditionType.BACKFILLED]
    verdict = step.verdict
    if refused and (halt.workers or halt.embedders):
        verdict = Verdict.no(Reason.WAITING, f"{refused.message} {halt.text}")
    verdicts = {CONDITION_OF[component]: with_stopped(why, halt) for component, why in context.forbidden.items()}
    verdicts[ConditionType.BACKFILLED] = verdict
    kept = {kind: replace(one, verdict=verdicts.get(kind, one.verdict)) for kind, one in steps.items()}
    others = tuple(one for one in step.actions if not _restarts(one, halt.workers))
    return {**kept, ConditionType.BACKFILLED: Step(verdict, (*halt.actions, *others))}


def _restarts(action: Action, stopped: Collection[str]) -> bool:
    """Return whether a write gives pods to a Deployment that is stopped."""
    if not isinstance(action, Apply) or action.manifest["kind"] != "Deployment":
        return False
    return bool(action.manifest["spec"]["replicas"]) and _name(action.manifest) in stopped


def with_stopped(refused: Verdict, halt: Halt) -> Verdict:
    """Return the verdict of a refused object with a sentence about what is stopped."""
    return replace(refused, message=f"{refused.message} {halt.text}".strip())


def _named_secrets(index: MemoryIndex, observed: Observed) -> frozenset[str]:
    """Return the Secrets whose consent this reconcile has checked.

    The Secret of the embedder that the sync worker is configured for is among them.
    """
    sync = observed.children.get(("Deployment", f"{index.name}-sync"))
    former = configured_embedder(sync) if sync else None
    keys = (index.embedder_key, former.key if former else None)
    authorities = (index.embedder_authority, former.authority if former else None)
    named = [*(key.secret_name for key in keys if key), *(one.name for one in authorities if isinstance(one, CaSecret))]
    return frozenset({index.secret_name, index.certificate_secret, *named})


def _ends_pods(sync: Manifest, writes: Iterable[Action]) -> bool:
    """Return whether a planned write ends the present pods of the sync worker by another template or number."""
    return any(
        isinstance(one, Apply)
        and (one.manifest["kind"], one.manifest["metadata"]["name"]) == ("Deployment", sync["metadata"]["name"])
        and (one.manifest["spec"]["template"] != sync["spec"]["template"] or not one.manifest["spec"]["replicas"])
        for one in writes
    )


def _embedders(context: Context) -> dict[str, Manifest]:
    """Return the Deployments of the object's embedders, by component."""
    found = {component_of(item): item for (kind, _), item in context.observed.children.items() if kind == "Deployment"}
    return {component: found[component] for component in EMBEDDERS if component in found}


def _name(deployment: Manifest) -> str:
    return f"Deployment {deployment['metadata']['namespace']}/{deployment['metadata']['name']}"


def _replicas(deployment: Manifest) -> int:
    return int(deployment["spec"].get("replicas", 1))


def _scaled(deployment: Manifest, replicas: int) -> Patch:
    """Return the write that gives a Deployment this number of pods."""
    meta = deployment["metadata"]
    return Patch("Deployment", meta["namespace"], meta["name"], meta["uid"], {"spec": {"replicas": replicas}})


def _recorded(scaled: Patch, stopped_at: int | None) -> Patch:
    """Return the same write, which also records with how many pods the Deployment is stopped; None ends the record."""
    annotations = {ANNOTATION_STOPPED: None if stopped_at is None else str(stopped_at)}
    return replace(scaled, changes={"metadata": {"annotations": annotations}, **scaled.changes})


def _suspended(namespace: str, job: JobFacts, *, suspend: bool) -> Patch:
    annotations = {ANNOTATION_STOPPED: "true" if suspend else None}
    changes = {"metadata": {"annotations": annotations}, "spec": {"suspend": suspend}}
    return Patch("Job", namespace, job.name, job.uid, changes)
