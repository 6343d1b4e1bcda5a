"""Another model in `spec.embedding` than the active one: the swap, and what comes after it.

While it lasts, the active model's embedder and the sync worker are left exactly as they are, because the specification
no longer describes them. The next model gets an embedder of its own beside them and a Job that fills, measures and
flips. After the flip the ordinary embedder is rolled over to the new model while the second one serves; the second one
goes once the database says that the model is served at the ordinary address, to which running API pods then turn.
"""

from dataclasses import replace
from datetime import datetime

from memory_operator.api.conditions import ConditionType, Verdict
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import Manifest, MemoryIndex
from memory_operator.reconcile import jobs
from memory_operator.reconcile.backfill import trickle
from memory_operator.reconcile.observed import DatabaseFacts, JobFacts, JobState, Observed
from memory_operator.reconcile.plan import Action, Apply, Delete
from memory_operator.reconcile.step import Step, failed, waiting
from memory_operator.resources import embedder as resources
from memory_operator.resources import workers
from memory_operator.resources.common import Images
from memory_operator.resources.drift import drifted
from memory_recall.embedding.profiles import PROFILES
from memory_recall.swap.machine import OPEN_STAGES, Stage

Steps = dict[ConditionType, Step]


def wanted(index: MemoryIndex, facts: DatabaseFacts) -> bool:
    """Whether the active model is to be replaced by one that we can serve beside it."""
    active = facts.active_model
    if active is None or index.hosted or active == index.spec.embedding.model:
        return False
    return active in PROFILES or active == "custom"


def swap_steps(index: MemoryIndex, seen: Observed, images: Images, now: datetime, *, before: Steps) -> Steps:
    """All steps while the swap lasts; `before` holds those of database and extension."""
    facts = seen.facts
    if facts is None:
        return {**before, ConditionType.MODEL_ACTIVE: waiting("the database")}
    ready = all(step.verdict.holds for step in before.values()) and facts.schema_current
    swap = _swap(index, seen, images, now, facts=facts) if ready else waiting("the database")
    valid = (
        Verdict.yes(Reason.VALID, "The HNSW index is valid.")
        if facts.index_valid
        else Verdict.no(Reason.WAITING, "The HNSW index of the active model is not valid; the swap builds a new one.")
    )
    schema = (
        Verdict.yes(Reason.MIGRATED, f"The schema is at revision {facts.schema_revision}.")
        if facts.schema_current
        else Verdict.no(Reason.SCHEMA_BEHIND, f"The schema is at revision {facts.schema_revision}.")
    )
    return {
        **before,
        ConditionType.SCHEMA_READY: Step(schema),
        ConditionType.EMBEDDER_READY: Step(_active_embedder(index, seen, facts)),
        ConditionType.BACKFILLED: Step(trickle(facts.rows)),
        ConditionType.INDEX_READY: Step(valid),
        ConditionType.MODEL_ACTIVE: swap,
    }


def settled(index: MemoryIndex, seen: Observed, images: Images, now: datetime, *, steps: Steps) -> Steps:
    """The ordinary steps, with what a swap that was given up or has just flipped still needs."""
    facts, wish = seen.facts, index.spec.embedding.model
    if facts is None or facts.active_model is None:
        missing = waiting("the database" if facts is None else "the schema")
        return {**steps, ConditionType.MODEL_ACTIVE: missing}
    if facts.active_model != wish:
        message = f"The vectors are of {facts.active_model}."
        return {**steps, ConditionType.MODEL_ACTIVE: Step(Verdict.no(Reason.MODEL_CHANGE_NEEDS_SWAP, message))}
    if facts.swap_stage in OPEN_STAGES:
        return {**steps, ConditionType.MODEL_ACTIVE: _give_up(index, seen, images, now)}
    if ("Deployment", f"{index.name}-{resources.NEXT_COMPONENT}") in seen.children:
        return _hand_over(index, seen, facts, steps)
    return {**steps, ConditionType.MODEL_ACTIVE: Step(Verdict.yes(Reason.ACTIVE, f"Recalls use {wish}."))}


def _active_embedder(index: MemoryIndex, seen: Observed, facts: DatabaseFacts) -> Verdict:
    name = f"Deployment {index.namespace}/{index.name}-embedder"
    if index.spec.embedder.external:
        return Verdict.yes(Reason.AVAILABLE, f"Recalls use the embedder of {facts.active_model}.")
    if seen.embedder is not None and (seen.embedder.ready > 0 or seen.embedder.replicas == 0):
        return Verdict.yes(Reason.AVAILABLE, f"{name} serves {facts.active_model}.")
    return Verdict.no(
        Reason.EMBEDDER_UNAVAILABLE, f"{name} has no ready pod; recalls are by words alone until it has or the flip."
    )


def _swap(index: MemoryIndex, seen: Observed, images: Images, now: datetime, *, facts: DatabaseFacts) -> Step:
    active, model = facts.active_model or "", index.spec.embedding.model
    going_on = f"recalls go on with {active}"
    objects = () if index.spec.embedder.external else _objects(index, images)
    stale: tuple[Action, ...] = tuple(
        Apply(item) for item in objects if drifted(item, seen.children.get((item["kind"], item["metadata"]["name"])))
    )
    problem = _not_serving(index, seen)
    if problem is not None:
        return replace(problem, actions=stale)
    work = jobs.Work(
        namespace=index.namespace,
        config=workers.config_of(index, images, "swap"),
        build=lambda sequence: workers.swap_job(
            index, images, sequence, active=active, dimensions=facts.column_dimensions or 0
        ),
        reason=Reason.SWAPPING,
        doing=f"swaps {active} for {model}{f' ({facts.swap_stage})' if facts.next_model else ''}; {going_on}",
        pods=seen.pods_of("swap"),
    )
    runs = seen.jobs_of("swap")
    if facts.swap_stage == Stage.REFUSED and _ended_in_refusal(runs, work.config):
        return Step(Verdict.no(Reason.SWAP_REFUSED, f"{model} was refused: {facts.swap_message}"), stale)
    step = jobs.run(runs, work, now)
    return replace(step, actions=(*stale, *step.actions))


def _objects(index: MemoryIndex, images: Images) -> tuple[Manifest, ...]:
    return resources.objects(index, images, replicas=1, component=resources.NEXT_COMPONENT)


def _not_serving(index: MemoryIndex, seen: Observed) -> Step | None:
    """Why the next model's embedder cannot be asked yet, if so."""
    if index.spec.embedder.external:
        return failed(seen.external) if seen.external else None
    if seen.next_embedder is not None and seen.next_embedder.ready > 0:
        return None
    pods = seen.pods_of(resources.NEXT_COMPONENT)
    problem = next((pod.problem for pod in pods if pod.problem and not pod.deleting), None)
    if problem:
        return failed(problem, "The next model's embedder: ")
    name = f"Deployment {index.namespace}/{index.name}-{resources.NEXT_COMPONENT}"
    return Step(Verdict.no(Reason.SWAPPING, f"{name} loads {index.spec.embedding.model}; recalls go on meanwhile."))


def _ended_in_refusal(runs: tuple[JobFacts, ...], config: str) -> bool:
    """Whether the last run of this very configuration was refused; asking again would give the same numbers."""
    mine = [job for job in runs if job.config == config]
    return bool(mine) and mine[-1].state is JobState.FAILED


def _give_up(index: MemoryIndex, seen: Observed, images: Images, now: datetime) -> Step:
    """The specification names the active model again while a swap is open: end it."""
    running = jobs.active(seen.jobs_of("swap"))
    removals = (
        *_removals(index, seen),
        *((Delete("batch/v1", "Job", index.namespace, running.name),) if running else ()),
    )
    if running or any(not pod.ended for pod in seen.pods_of("swap")):
        return Step(Verdict.no(Reason.SWAPPING, "The swap is being given up; stopping its Job."), removals)
    work = jobs.Work(
        namespace=index.namespace,
        config=workers.config_of(index, images, "swap-abort"),
        build=lambda sequence: workers.swap_abort_job(index, images, sequence),
        reason=Reason.SWAPPING,
        doing="drops the second column of a swap that was given up",
        pods=seen.pods_of("swap-abort"),
    )
    step = jobs.run(seen.jobs_of("swap-abort"), work, now)
    return replace(step, actions=(*removals, *step.actions))


def _hand_over(index: MemoryIndex, seen: Observed, facts: DatabaseFacts, steps: Steps) -> Steps:
    """After the flip: the ordinary embedder takes the model over, then the sync worker, then the second one goes."""
    model, home = index.spec.embedding.model, seen.embedder
    rolled = (
        home is not None
        and home.current
        and (home.ready > 0 or home.replicas == 0)
        and not steps[ConditionType.EMBEDDER_READY].actions
    )
    if not rolled:
        filling = steps[ConditionType.BACKFILLED]
        held = tuple(one for one in filling.actions if not (isinstance(one, Apply) and _is_sync(index, one)))
        message = f"{model} is active; Deployment {index.namespace}/{index.name}-embedder is being rolled over to it."
        return {
            **steps,
            ConditionType.BACKFILLED: replace(filling, actions=held),
            ConditionType.MODEL_ACTIVE: Step(Verdict.no(Reason.SWAPPING, message)),
        }
    if facts.active_url != index.embedder_url:
        message = f"{model} is active; waiting for the sync worker to write down that {index.embedder_url} serves it."
        return {**steps, ConditionType.MODEL_ACTIVE: Step(Verdict.no(Reason.SWAPPING, message))}
    done = Step(Verdict.yes(Reason.ACTIVE, f"Recalls use {model}."), _removals(index, seen))
    return {**steps, ConditionType.MODEL_ACTIVE: done}


def _is_sync(index: MemoryIndex, action: Apply) -> bool:
    return bool(action.manifest["metadata"]["name"] == f"{index.name}-sync")


def _removals(index: MemoryIndex, seen: Observed) -> tuple[Action, ...]:
    name = f"{index.name}-{resources.NEXT_COMPONENT}"
    kinds = (("apps/v1", "Deployment"), ("v1", "Service"), ("networking.k8s.io/v1", "NetworkPolicy"))
    return tuple(
        Delete(version, kind, index.namespace, name) for version, kind in kinds if (kind, name) in seen.children
    )
