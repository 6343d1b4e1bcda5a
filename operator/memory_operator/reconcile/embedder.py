"""Decide EmbedderReady: whether the embedding service runs as specified, and how many pods it has.

The service is started as soon as the database has answered, without waiting for the migration, because loading a model
takes longest. Only the database tells which model and file made the stored vectors. Therefore, while it does not
answer, no embedder is created, deleted, or given another pod template; an existing one is still scaled.

The number of pods follows the queued work. The work is measured as queued tokens divided by the tokens that one pod
embeds in a second. If more pods are needed to finish the queued work within the target time, the number rises at once.
It falls only to the highest number that was needed within the scale-down delay, so that no model is loaded again after
a short pause. If texts are queued and no pod has measured its rate, the number stays the same. A recall that finds no
embedder records this in the database, which is the only sign of queries while no pod runs.
"""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from memory_operator.api.conditions import Verdict
from memory_operator.api.embedder import COMPONENT
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import Manifest, MemoryIndex
from memory_operator.reconcile.context import Context
from memory_operator.reconcile.embedder_tls import certificate_obstacle, refused_by_pod
from memory_operator.reconcile.facts import (
    EmbedderLoad,
    Observed,
    PodFacts,
    Problem,
    Recommendation,
    ReportedModel,
)
from memory_operator.reconcile.jobs import active_job
from memory_operator.reconcile.model_file.cleanup import delete_unneeded
from memory_operator.reconcile.model_file.fetch import plan_fetch
from memory_operator.reconcile.plan import Action, Step, apply_drifted, delete_existing, failed_step, waiting_for
from memory_operator.reconcile.rollout import (
    computes_on_gpu,
    latest_problem,
    rollout_obstacle,
    template_drifted,
    update_waits,
    with_live_template,
)
from memory_operator.resources import embedder as resources
from memory_operator.resources.network_policies import embedder_policy
from memory_recall.embedding.apis import PREFIXED_APIS
from memory_recall.embedding.canary import may_be_same_file
from memory_recall.embedding.profiles import PROFILES

# The library repeats the mark of a recall that misses the embedder at most every 30 s; an older one is over.
WANTED_SECONDS = 60
OTHER_FILE_REMEDY = (
    "Serve that file again, with the same pooling and prefixes; another file of a model is a model of another name, "
    "such as custom."
)
NO_POD_MEANWHILE = " Recalls are by words alone meanwhile, since a GPU holds one model at a time."


@dataclass(frozen=True)
class ReplicaBounds:
    """The bounds that the specification sets on the number of embedder pods; times are in seconds."""

    minimum: int
    maximum: int
    target_seconds: float
    delay_seconds: float


def plan_replicas(
    index: MemoryIndex, observed: Observed, now: datetime, *, at_least: int = 0
) -> tuple[int, Recommendation | None]:
    """Return the number of replicas to set, and the number that the present work needs as a recommendation.

    Both are `at_least` or more, also if the specification allows fewer, unless somebody else scales the embedder.

    The recommendation is None if the operator does not scale the embedder: it runs none, or somebody else scales it. An
    embedder that the specification no longer names has a number, too, because it may still serve the active model.
    """
    embedder = index.spec.embedder
    if not index.runs_embedder and observed.embedder is None:
        return 0, None
    if embedder.scaling == "External":
        return (observed.embedder.stopped_at or observed.embedder.replicas if observed.embedder else 1), None
    current, facts = observed.embedder.replicas if observed.embedder else None, observed.database_facts
    minimum = max(embedder.min_replicas, at_least)
    existing = (current or 0) if embedder.external else 0  # then the bounds are not those of the embedder that exists
    bounds = ReplicaBounds(
        minimum=minimum,
        maximum=max(embedder.max_replicas, minimum, existing),
        target_seconds=embedder.target_queue_seconds,
        delay_seconds=embedder.scale_down_delay_seconds,
    )
    needed = needed_replicas(
        observed.loads,
        bounds,
        current=current or 0,
        pods=observed.embedder.ready if observed.embedder else 0,
        bulk_workers=index.spec.backfill.parallelism if active_job(observed.jobs_of("backfill")) else 0,
        wanted=facts.rows.pending > 0 or _is_wanted(facts.seconds_since_wanted) if facts else current != 0,
    )
    desired = desired_replicas(needed, bounds, current=current, history=observed.recommendations, now=now)
    return desired, Recommendation(now, needed)


def needed_replicas(
    loads: Collection[EmbedderLoad],
    bounds: ReplicaBounds,
    *,
    current: int,
    bulk_workers: int,
    wanted: bool,
    pods: int = 0,
) -> int:
    """Return how many embedder pods are needed, within the bounds.

    `pods` is the number of pods that serve. If only some of them were asked, the others count with the same load.
    The number is the largest of three: the pods that compute the queued texts in time at their measured speed, the
    number of `bulk_workers` of a running backfill, and one if `wanted` is true.
    """
    measured = [load for load in loads if load.tokens_per_second > 0]
    queued = sum(load.queued_tokens for load in loads) * max(1.0, pods / len(loads) if loads else 1.0)
    floor = max(bulk_workers, 1 if wanted else 0)
    if not measured:
        by_queue = current if queued else 0
    else:
        rate = sum(load.tokens_per_second for load in measured) / len(measured)
        by_queue = math.ceil(min(bounds.maximum, queued / rate / bounds.target_seconds))  # a tiny rate overflows
    return min(bounds.maximum, max(bounds.minimum, floor, by_queue))


def desired_replicas(
    needed: int, bounds: ReplicaBounds, *, current: int | None, history: Iterable[Recommendation], now: datetime
) -> int:
    """Return the number of replicas to set: a lower one only if the history covers the whole scale-down delay."""
    if current is None or needed >= current:
        return needed
    since = now - timedelta(seconds=bounds.delay_seconds)
    past = sorted(history, key=lambda item: item.at)
    if bounds.delay_seconds > 0 and (not past or past[0].at > since):
        return min(current, bounds.maximum)
    recent = [item.replicas for item in past if item.at >= since]
    return min(bounds.maximum, max([needed, *recent]))


def _is_wanted(seconds_since_wanted: float | None) -> bool:
    return seconds_since_wanted is not None and seconds_since_wanted <= WANTED_SECONDS


def plan_embedder(context: Context, *, database: Verdict, replicas: int) -> Step:
    """Return the verdict on EmbedderReady, and the writes that bring the embedder's objects to the specification.

    While a model file is being fetched, or the certificate in the Secret cannot be served, no new pod starts, and
    existing pods keep serving their present model.
    """
    index, observed = context.index, context.observed
    name = f"{index.name}-{COMPONENT}"
    live = observed.children.get(("Deployment", name))
    if not database.holds:
        return _without_database(context, live, replicas)
    unneeded = delete_unneeded(index, observed)
    if not index.runs_embedder:
        deletions = () if observed.referring else delete_embedder(index, observed, COMPONENT)
        return Step(_unmanaged_verdict(index, observed), (*deletions, *unneeded))
    *guards, deployment = _objects(context, replicas)
    fetch = plan_fetch(context)
    waits = live is not None and update_waits(index, observed, context.images, deployment, live)
    untrusted = certificate_obstacle(index, observed, context.now)
    starts = fetch.verdict.holds and untrusted is None
    if live is not None and (waits or not starts):
        deployment = with_live_template(deployment, live)
    changes = template_drifted(observed, deployment)
    pods = (deployment,) if live is not None or starts else ()
    several = resources.has_several_pods(index)
    budget = (resources.disruption_budget(index),) if several else ()
    actions = apply_drifted(observed, *guards, *pods, *budget)
    if not several:
        actions = (*actions, *delete_existing(observed, ("PodDisruptionBudget", name)))
    actions = (*actions, *fetch.actions, *unneeded)
    if untrusted:
        return Step(untrusted, actions)
    if isinstance(observed.external, Problem):
        return Step(failed_step(observed.external).verdict, actions)
    if not fetch.verdict.holds:
        return Step(fetch.verdict, actions)
    return Step(_verdict(index, observed, replicas, changes=changes, waits=waits), actions)


def scale_live(context: Context, *, replicas: int) -> tuple[Action, ...]:
    """Return the writes that scale the existing embedder and leave its pod template as it is.

    They also restore its NetworkPolicy and its Service. With an external embedder in the specification they do not,
    because the specification then no longer says who may call the existing one. If there is no Deployment, the result
    is empty.
    """
    index, observed = context.index, context.observed
    live = observed.children.get(("Deployment", f"{index.name}-{COMPONENT}"))
    if live is None:
        return ()
    *guards, deployment = _objects(context, replicas)
    kept = () if index.spec.embedder.external else guards
    return apply_drifted(observed, *kept, with_live_template(deployment, live))


def _objects(context: Context, replicas: int) -> tuple[Manifest, ...]:
    """Return the embedder's NetworkPolicy, Service and Deployment, in this order: no pod runs without its policy."""
    policy = embedder_policy(context.index, operator_namespace=context.observed.operator_namespace)
    return policy, *resources.objects(context.index, context.images, replicas=replicas)


def _without_database(context: Context, live: Manifest | None, replicas: int) -> Step:
    """Return the step while the database does not answer: an existing embedder is scaled, and otherwise left alone."""
    index, observed = context.index, context.observed
    if live is None:
        return Step(_unmanaged_verdict(index, observed)) if not index.runs_embedder else waiting_for("the database")
    actions = scale_live(context, replicas=replicas)
    untrusted = certificate_obstacle(index, observed, context.now)
    if untrusted:
        return Step(untrusted, actions)
    if isinstance(observed.external, Problem):
        return Step(failed_step(observed.external).verdict, actions)
    if not index.runs_embedder:
        name = f"Deployment {index.namespace}/{index.name}-embedder"
        message = f"{name} stays until the database answers, since it may serve the active model."
        return Step(Verdict.unknown(Reason.WAITING, message), actions)
    verdict = _verdict(index, observed, replicas, changes=False, waits=False)
    *_, deployment = _objects(context, replicas)
    if template_drifted(observed, deployment):
        message = f"{verdict.message.rstrip('.')}. Its pods are changed only once the database answers."
        verdict = replace(verdict, message=message)
    return Step(verdict, actions)


def delete_embedder(index: MemoryIndex, observed: Observed, component: str) -> tuple[Action, ...]:
    """Return the writes that delete those objects of an embedder that exist."""
    kinds = ("Deployment", "Service", "NetworkPolicy", "PodDisruptionBudget")
    return delete_existing(observed, *((kind, f"{index.name}-{component}") for kind in kinds))


def mismatch(index: MemoryIndex, observed: Observed) -> Verdict | None:
    """Return a failing verdict if an embedder serves another file or pooling than the stored vectors were made with.

    The result is None while no embedder is known to differ. During a swap the operator's pods still serve the active
    model, but the external embedder of the specification is expected to serve the next model.
    """
    active = observed.database_facts.active_model if observed.database_facts else None
    if active is None:
        return None
    served = [load.model for load in observed.loads if load.model]
    if isinstance(observed.external, ReportedModel) and active.name == index.spec.embedding.model:
        served.append(observed.external)
    if isinstance(observed.active_external, ReportedModel):
        served.append(observed.active_external)
    recorded = {"file": active.digest, "pooling": active.pooling}
    for one in served:
        for what, given in (("file", one.digest), ("pooling", one.pooling)):
            if not may_be_same_file(recorded[what], given):
                return Verdict.no(
                    Reason.MODEL_MISMATCH,
                    f"{one.location} serves {active.name} with {what} {given}; "
                    f"the vectors were made with {what} {recorded[what]}.",
                    OTHER_FILE_REMEDY,
                )
    return None


def with_unused_gpu(index: MemoryIndex, observed: Observed, component: str = COMPONENT) -> tuple[PodFacts, ...]:
    """Return an embedder's pods, with a problem for each that computes on the CPU although it is to use a GPU.

    Such a pod neither ends nor becomes ready, so that Kubernetes reports nothing of it. What it is to use is what its
    Deployment says: the specification may say something else by now, as during a swap.
    """
    pods, live = observed.pods_of(component), observed.children.get(("Deployment", f"{index.name}-{component}"))
    if live is None or not computes_on_gpu(live):
        return pods
    loads = observed.loads if component == COMPONENT else observed.next_loads
    on_cpu = {load.pod for load in loads if load.device == "cpu"}
    replaced = index.spec.embedder.gpu_layers == 0
    return tuple(
        replace(
            pod,
            problem=Problem(
                Reason.GPU_NOT_USED,
                f"Pod {pod.name} computes on the CPU though its Deployment asks for a GPU.",
                "Give the pod a GPU until it is replaced by one that needs none." if replaced else "",
            ),
        )
        if pod.name in on_cpu and pod.problem is None
        else pod
        for pod in pods
    )


def _unmanaged_verdict(index: MemoryIndex, observed: Observed) -> Verdict:
    """Return the verdict on an external embedder, which the operator does not run."""
    if isinstance(observed.external, Problem):
        return failed_step(observed.external).verdict
    url = resources.embedder_url(index)
    if observed.key_refused:
        message = f"The embedder at {url} refuses the workers' API key, or they have none; recalls are by words alone."
        return Verdict.no(Reason.EMBEDDER_UNAUTHORIZED, message, index.key_remedy)
    note = "answers"
    if resources.leaves_cluster(index):
        note = "is beyond the cluster; sensitive rows are never sent there"
    message = f"The external embedder at {url} {note}.{_without_prefixes(index)}"
    return mismatch(index, observed) or Verdict.yes(Reason.AVAILABLE, message)


def _without_prefixes(index: MemoryIndex) -> str:
    """Return a sentence that no prefixes of an external model are known, where its callers put them before texts.

    It is empty where they are known, and where the specification names them, if only as empty ones.
    """
    embedding, options = index.spec.embedding, resources.embedder_options(index)
    given = (options.query_prefix, options.document_prefix) != (None, None)
    if options.api not in PREFIXED_APIS or embedding.model in PROFILES or given:
        return ""
    return (
        f" No prefix is put before its texts, since {embedding.model} has no profile. If its card names prefixes, set "
        "them in spec.embedding together with another name there, and this one in spec.embedder.external.model; else "
        'set queryPrefix to "".'
    )


def _verdict(index: MemoryIndex, observed: Observed, replicas: int, *, changes: bool, waits: bool) -> Verdict:
    name = f"Deployment {index.namespace}/{index.name}-embedder"
    deployment = observed.embedder
    if deployment is None:
        return Verdict.no(Reason.STARTING, f"{name} is being created.")
    if replicas == 0:
        return Verdict.no(Reason.SCALED_TO_ZERO, f"{name} has no pods; recalls are by words alone.")
    untrusted = refused_by_pod(index, observed)
    if untrusted and not changes:
        return untrusted
    note = "" if resources.serves_while_rolling_out(index) else NO_POD_MEANWHILE
    pods = with_unused_gpu(index, observed)
    obstacle = rollout_obstacle(name, deployment, pods, changes=changes, note=note) or mismatch(index, observed)
    if obstacle:
        return obstacle
    problem = latest_problem(deployment, pods) if deployment.ready < replicas else None
    notes = [problem.message] if problem else []
    notes += ["The new default image waits until another embedder's roll-out has ended."] if waits else []
    return Verdict.yes(Reason.AVAILABLE, " ".join([f"{name} serves.", *notes]))
