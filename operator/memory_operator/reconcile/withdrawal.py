"""Stop what sends texts or holds a Secret when its permission is withdrawn, and resume it when it is given back.

A permission is withdrawn when an annotation, a label, a permitted host or the claim on the table is taken away, or when
the connection URI leads elsewhere. What runs was started under the former permission. Therefore the embedders and the
Secrets of the live objects are compared with what is permitted now, not only the specification, which may name others
by now. Nothing is lost: rows stay pending, a swap continues from its record in the database, and a stopped Job keeps
its place until it is resumed. A stopped Job is suspended, so that its pods, and the Secrets that they mount, go.

Workers of an object whose specification cannot be read are stopped, too, because nothing tells what they may use: an
author could keep a withdrawn permission by such a specification otherwise.

An object with `spec.suspend` begins nothing and resumes nothing, but a withdrawn permission stops it all the same.
Embedders keep running, since nothing sends them texts through the operator any more.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from memory_operator.api.conditions import ConditionType, Verdict
from memory_operator.api.embedder import CaSecret
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import Manifest, MemoryIndex
from memory_operator.reconcile.active_embedder import may_receive
from memory_operator.reconcile.context import Context
from memory_operator.reconcile.facts import JobFacts, JobState, Observed
from memory_operator.reconcile.plan import Action, Apply, Delete, Patch, Step
from memory_operator.resources.common import ANNOTATION_STOPPED
from memory_operator.resources.worker_pods import (
    ConfiguredEmbedder,
    configured_embedder,
    destinations,
    mounted_secrets,
)


@dataclass(frozen=True)
class Halt:
    """The writes that stop and resume workers, and the names of the workers that are stopped afterwards."""

    actions: tuple[Patch, ...] = ()
    stopped: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """A sentence about what is stopped; empty if nothing is."""
        if not self.stopped:
            return ""
        return f"Until then {', '.join(self.stopped)} {'is' if len(self.stopped) == 1 else 'are'} stopped; rows wait."


def plan_halt(context: Context, refused: Verdict | None, *, resumes: bool, planned: Iterable[Action]) -> Halt:
    """Return what is stopped now, and with `resumes` True what is resumed.

    `refused` says why the whole object is refused, or is None. `planned` are the other writes of this reconcile: what
    they end needs no stop.
    """
    index, observed = context.index, context.observed
    writes = tuple(planned)
    deleted = {one.uid for one in writes if isinstance(one, Delete)}
    jobs = [job for job in observed.jobs if job.state is JobState.ACTIVE and not job.deleting]
    named = _named_secrets(index, observed)

    def must_stop(sends_to: frozenset[ConfiguredEmbedder], secrets: frozenset[str]) -> bool:
        return refused is not None or not (
            secrets <= named and all(may_receive(index, to, context.permitted) for to in sends_to)
        )

    sync = observed.children.get(("Deployment", f"{index.name}-sync"))
    if sync is not None and _ends_pods(sync, writes):
        sync = None
    template = sync["spec"]["template"] if sync else {}
    stops_sync = sync is not None and must_stop(destinations(template), mounted_secrets(template))
    kept = [job for job in jobs if job.uid not in deleted]
    stops = [job for job in kept if must_stop(job.sends_to, job.secrets)]
    halt = stop_all(index.namespace, sync if stops_sync else None, stops)
    resumed = resume(index.namespace, (job for job in kept if job not in stops)) if resumes else ()
    return replace(halt, actions=(*halt.actions, *resumed))


def stop_all(namespace: str, sync: Manifest | None, jobs: Iterable[JobFacts]) -> Halt:
    """Return the stop of the sync worker, if it is given, and of these Jobs."""
    running = [job for job in jobs if job.state is JobState.ACTIVE and not job.deleting]
    actions = [_scaled_to_zero(sync)] if sync and sync["spec"].get("replicas", 1) else []
    actions += [_suspended(namespace, job, suspend=True) for job in running if not job.suspended]
    names = [f"Deployment {namespace}/{sync['metadata']['name']}"] if sync else []
    return Halt(tuple(actions), (*names, *(f"Job {job.name}" for job in running)))


def resume(namespace: str, jobs: Iterable[JobFacts]) -> tuple[Patch, ...]:
    """Return the writes that resume those of these Jobs which the operator has stopped."""
    return tuple(_suspended(namespace, job, suspend=False) for job in jobs if job.stopped)


def with_halt(steps: Mapping[ConditionType, Step], halt: Halt, refused: Verdict | None) -> dict[ConditionType, Step]:
    """Return the steps where that of Backfilled stops and resumes workers, and says so if the object is refused."""
    step = steps[ConditionType.BACKFILLED]
    verdict = step.verdict
    if refused and halt.stopped:
        verdict = Verdict.no(Reason.WAITING, f"{refused.message} {halt.text}")
    return {**steps, ConditionType.BACKFILLED: Step(verdict, (*halt.actions, *step.actions))}


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


def _scaled_to_zero(deployment: Manifest) -> Patch:
    meta = deployment["metadata"]
    return Patch("Deployment", meta["namespace"], meta["name"], meta["uid"], {"spec": {"replicas": 0}})


def _suspended(namespace: str, job: JobFacts, *, suspend: bool) -> Patch:
    annotations = {ANNOTATION_STOPPED: "true" if suspend else None}
    changes = {"metadata": {"annotations": annotations}, "spec": {"suspend": suspend}}
    return Patch("Job", namespace, job.name, job.uid, changes)
