"""Decide whether the file of a model URL is on its volume, and fetch it before a pod mounts the volume.

The claim of the volume records that its file is complete. Therefore a Job that was deleted is not run again, and a
claim that was deleted is made and filled again.
"""

from datetime import UTC, datetime
from functools import partial

from memory_operator.api.conditions import Verdict, parse_timestamp
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import HttpSource, Manifest
from memory_operator.reconcile.authorization.addresses import is_listed
from memory_operator.reconcile.context import Context
from memory_operator.reconcile.facts import JobFacts, JobState
from memory_operator.reconcile.jobs import JobRequest, plan_job
from memory_operator.reconcile.plan import Apply, Step, apply_drifted
from memory_operator.resources import model_fetch as resources
from memory_operator.resources.model_fetch import FetchRoute
from memory_operator.resources.network_policies import fetch_policy
from memory_operator.resources.workers import work_of

AVAILABLE = Verdict.yes(Reason.AVAILABLE, "The model file is where embedder pods read it.")


def plan_fetch(context: Context) -> Step:
    """Return whether embedder pods may start: their model file is fetched, or need not be fetched."""
    index, observed = context.index, context.observed
    source = index.fetched_source
    if source is None:
        return Step(AVAILABLE)
    claim = resources.claim(index, source)
    name = claim["metadata"]["name"]
    live = observed.children.get((resources.CLAIM, name))
    policy = apply_drifted(observed, fetch_policy(index, source, context.route))
    if live is not None and resources.is_fetched(live):
        return Step(AVAILABLE, policy)
    refused = _refused(context.route, source)
    if refused:
        return Step(refused, policy)
    build = partial(resources.fetch_job, source=source, route=context.route)
    work = resources.fetch_work(index, source)
    jobs = [job for job in observed.jobs_of(resources.COMPONENT) if work_of(job.config) == work]
    if live is not None and any(_has_filled(job, live) for job in jobs):
        return Step(AVAILABLE, (*policy, Apply(resources.fetched_claim(index, source, live))))
    activity = f"fetches {index.spec.embedding.model} into {resources.CLAIM} {index.namespace}/{name}"
    step = plan_job(context, JobRequest(resources.COMPONENT, build, Reason.FETCHING, activity))
    return Step(step.verdict, (*policy, *(() if live else (Apply(claim),)), *step.actions))


def _refused(route: FetchRoute, source: HttpSource) -> Verdict | None:
    """Return why a file is not fetched through the proxy, which may reach what its author may not; None if it is."""
    host = resources.host_of(source.url)
    if not route.leads_through_proxy(source.url) or is_listed(host, route.proxied_hosts):
        return None
    message = f"The host of spec.embedding.source.http.url is {host}, from which nothing may be fetched by proxy."
    return Verdict.no(Reason.NOT_PERMITTED, message, "Have it added to fetch.proxy.hosts of the operator's chart.")


def _has_filled(job: JobFacts, claim: Manifest) -> bool:
    """Return whether the Job has filled this claim, and not a former one of the same name."""
    created = claim["metadata"].get("creationTimestamp")
    since = parse_timestamp(created) if created else datetime.min.replace(tzinfo=UTC)
    return job.state is JobState.COMPLETE and job.finished_at is not None and job.finished_at >= since
