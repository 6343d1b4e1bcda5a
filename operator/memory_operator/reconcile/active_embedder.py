"""Decide EmbedderReady during a swap, when the specification names the next model's embedder, not the active one's.

The Deployment of the sync worker keeps the address of the active model's embedder and the name of the Secret with its
API key. The operator wrote both from a specification that it had checked. An address that only the database records is
neither called by the operator nor opened to workers, because whoever may write rows chooses it. A former external
embedder is called only while the operator's chart permits its host.
"""

from pydantic import ValidationError

from memory_operator.api.conditions import ConditionStatus, Verdict
from memory_operator.api.embedder import COMPONENT, CaConfigMap, CaSecret, External
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import Manifest, MemoryIndex
from memory_operator.reconcile.authorization.permissions import Permitted, check_external
from memory_operator.reconcile.context import Context
from memory_operator.reconcile.embedder import mismatch, scale_live, with_unused_gpu
from memory_operator.reconcile.embedder_tls import certificate_obstacle, refused_by_pod
from memory_operator.reconcile.facts import Observed, Problem
from memory_operator.reconcile.plan import Step, failed_step
from memory_operator.reconcile.rollout import embeds, rollout_obstacle, serves
from memory_operator.resources.embedder import NEXT_COMPONENT, embedder_url, own_urls
from memory_operator.resources.worker_pods import ConfiguredEmbedder, configured_embedder
from memory_recall.status import DatabaseFacts

_UNTIL_THE_END = "It serves the active model until the swap has ended; spec names the next model's embedder."


def needs_swap(index: MemoryIndex, facts: DatabaseFacts) -> bool:
    """Return whether the specification names another model than the active one."""
    return facts.active_name is not None and facts.active_name != index.spec.embedding.model


def embedder_of_active(facts: DatabaseFacts, sync: Manifest | None) -> ConfiguredEmbedder | None:
    """Return the embedder that the sync worker's Deployment names for the active model.

    The result is None without such a Deployment, and if it is set up for another model.
    """
    return configured_embedder(sync) if sync is not None and embeds(sync, facts.active_name or "") else None


def before_swap(index: MemoryIndex, facts: DatabaseFacts, sync: Manifest | None) -> MemoryIndex | None:
    """Return the MemoryIndex with the active model and its external embedder; None if none is known to serve it."""
    found = embedder_of_active(facts, sync)
    former = _with_external(index, found) if found else None
    if former is None or facts.active_model is None:
        return None
    active = {"model": facts.active_model.name, "dimensions": facts.active_model.dimensions}
    embedding = former.spec.embedding.model_copy(update={**active, "source": None})
    return former.model_copy(update={"spec": former.spec.model_copy(update={"embedding": embedding})})


def former_external(index: MemoryIndex, observed: Observed, permitted: Permitted) -> str | None:
    """Return the URL of the external embedder that workers still call although the specification names another one.

    That is so during a swap, and until the sync worker is set up for the embedder that the operator has rolled out
    after it. The result is None if the operator no longer permits the host.
    """
    facts, sync = observed.database_facts, observed.children.get(("Deployment", f"{index.name}-sync"))
    handing_over = ("Deployment", f"{index.name}-{NEXT_COMPONENT}") in observed.children
    if facts is None or sync is None or not (handing_over or needs_swap(index, facts)):
        return None
    found = configured_embedder(sync)
    former = _with_external(index, found) if found and found.url != embedder_url(index) else None
    return found.url if found and former and check_external(former, permitted) is None else None


def permitted_embedder(index: MemoryIndex, observed: Observed, permitted: Permitted) -> ConfiguredEmbedder | None:
    """Return the embedder of the active model for the Job of a swap; None if it is not known or not permitted."""
    facts, sync = observed.database_facts, observed.children.get(("Deployment", f"{index.name}-sync"))
    found = embedder_of_active(facts, sync) if facts else None
    if found is None or found.url in own_urls(index):
        return found
    former = _with_external(index, found)
    return found if former and check_external(former, permitted) is None else None


def may_receive(index: MemoryIndex, to: ConfiguredEmbedder, permitted: Permitted) -> bool:
    """Return whether workers may send texts to this embedder, whatever the specification names now."""
    return not _refusal(index, to, permitted)


def withdrawal(index: MemoryIndex, observed: Observed, facts: DatabaseFacts, permitted: Permitted) -> str:
    """Return why no text may be sent to the embedder of the active model any more; empty if texts may be sent."""
    found = embedder_of_active(facts, observed.children.get(("Deployment", f"{index.name}-sync")))
    return _refusal(index, found, permitted) if found else ""


def _refusal(index: MemoryIndex, to: ConfiguredEmbedder, permitted: Permitted) -> str:
    """Return why no text may be sent to an embedder, as the end of a sentence; empty if texts may be sent."""
    if to.url in own_urls(index):
        return ""
    found = _with_external(index, to)
    refused = check_external(found, permitted) if found else None
    if found and refused is None:
        return ""
    if refused and refused.reason is not Reason.NOT_PERMITTED:
        return "spec.embedding.queryEgress is Denied"
    return f"the operator no longer permits the host of {to.url}"


def plan_active_embedder(context: Context, facts: DatabaseFacts, *, replicas: int) -> Step:
    """Return the step of EmbedderReady: whether the active model is served, and the writes that scale its embedder."""
    index, observed = context.index, context.observed
    active, name = facts.active_name or "", f"{index.name}-{COMPONENT}"
    where = f"Deployment {index.namespace}/{name}"
    if observed.embedder is None:
        return Step(_without_deployment(index, observed, facts, context.permitted))
    live = observed.children.get(("Deployment", name))
    if live is not None and not serves(live, active):
        message = f"{where} serves another model than {active}; it stays as it is until the swap has ended."
        remedy = f"Name {active} in spec.embedding.model to stay with it."
        return Step(Verdict.no(Reason.EMBEDDER_UNAVAILABLE, message, remedy))
    actions = scale_live(context, replicas=replicas)
    if replicas == 0:
        return Step(Verdict.no(Reason.SCALED_TO_ZERO, f"{where} has no pods; recalls are by words alone."), actions)
    untrusted = certificate_obstacle(index, observed, context.now) or refused_by_pod(index, observed)
    problem = observed.external if index.serves_tls and isinstance(observed.external, Problem) else None
    pods = with_unused_gpu(index, observed)
    obstacle = untrusted or rollout_obstacle(where, observed.embedder, pods, changes=False)
    if problem and not obstacle:
        obstacle = failed_step(problem).verdict
    serving = Verdict.yes(Reason.AVAILABLE, f"{where} serves {active}.")
    return Step(obstacle or mismatch(index, observed) or serving, actions)


def gate_obstacle(index: MemoryIndex, observed: Observed, facts: DatabaseFacts, embedder: Verdict) -> Verdict | None:
    """Return why the Job of a swap must not start yet: its gate would ask an embedder that is known not to serve.

    `embedder` is the verdict on EmbedderReady, or why its pods must not run. A Job that found no embedder would fail
    and be repeated. The gate of a model whose address only the database knows is left to itself. Until the swap has
    ended, the pods are those that the active model had before, so another choice for them in the specification does not
    help.
    """
    active = facts.active_name or ""
    live = observed.children.get(("Deployment", f"{index.name}-{COMPONENT}"))
    elsewhere = live is not None and not serves(live, active)
    if index.spec.swap.gate is None or elsewhere or embedder.status is not ConditionStatus.FALSE:
        return None
    message = f"The swap waits for the embedder of {active}, which its gate asks: {embedder.message}"
    if embedder.reason in {Reason.NOT_PERMITTED, Reason.CONSENT_MISSING}:
        message = f"{message} Permit it again, set spec.embedding.model back to {active}, or remove spec.swap.gate."
    return Verdict.no(Reason.WAITING, message)


def _without_deployment(index: MemoryIndex, observed: Observed, facts: DatabaseFacts, permitted: Permitted) -> Verdict:
    """Return the verdict on EmbedderReady if there is no Deployment that could serve the active model."""
    sync = observed.children.get(("Deployment", f"{index.name}-sync"))
    found, former = embedder_of_active(facts, sync), before_swap(index, facts, sync)
    if found and former:
        return _external_verdict(index, observed, former, permitted)
    active, own = facts.active_model, own_urls(index)
    name, where = facts.active_name, f"Deployment {index.namespace}/{index.name}-{COMPONENT}"
    if (found.url if found else active and active.embedder_url) not in own:
        message = f"No Deployment tells which embedder serves {name}; an address in the database is not asked."
        return Verdict.unknown(Reason.WAITING, message)
    if index.spec.swap.gate is None:
        message = f"{where} is missing; recalls are by words alone until the next model is active."
        return Verdict.no(Reason.EMBEDDER_UNAVAILABLE, message)
    message = f"{where} is missing; recalls are by words alone, and the gate cannot measure {name}."
    remedy = f"Set spec.embedding.model back to {name}, or remove spec.swap.gate."
    return Verdict.no(Reason.EMBEDDER_UNAVAILABLE, message, remedy)


def _external_verdict(index: MemoryIndex, observed: Observed, former: MemoryIndex, permitted: Permitted) -> Verdict:
    url, name = embedder_url(former), former.spec.embedding.model
    refused = check_external(former, permitted)
    if refused and refused.reason is not Reason.NOT_PERMITTED:
        message = f"No text is sent to the embedder of {name} at {url}: spec.embedding.queryEgress is Denied."
        return Verdict.no(Reason.WAITING, message)
    if refused:
        message = f"The external embedder at {url} serves {name}, and the operator no longer permits its host."
        remedy = "Have it added to permitted.externalHosts of the operator's chart until the swap has ended."
        return Verdict.no(Reason.NOT_PERMITTED, message, remedy)
    answer = observed.active_external
    if answer is None:
        return Verdict.unknown(Reason.WAITING, f"The external embedder at {url} serves {name}; it was not asked.")
    if isinstance(answer, Problem):
        return Verdict.no(answer.reason, answer.message, answer.remedy or _UNTIL_THE_END)
    message = f"The external embedder at {url} answers and serves {name}."
    return mismatch(index, observed) or Verdict.yes(Reason.AVAILABLE, message)


def _with_external(index: MemoryIndex, found: ConfiguredEmbedder) -> MemoryIndex | None:
    """Return the MemoryIndex with this external embedder in its specification.

    The result is None if the operator runs the embedder, or if somebody has replaced its URL by an unusable one.
    """
    authority = found.authority
    try:
        options = found.options
        external = External(
            url=found.url,
            api=options.api.value,
            model=options.served_as,
            api_key=found.key,
            ca_secret=authority if isinstance(authority, CaSecret) else None,
        )
    except ValidationError:
        return None
    if found.url in own_urls(index):
        return None
    embedder = index.spec.embedder.model_copy(update={"external": external, "ref": None})
    spec = index.spec.model_copy(update={"embedder": embedder})
    copied = authority if isinstance(authority, CaConfigMap) else None
    return index.model_copy(update={"spec": spec, "copied_authority": copied})
