"""A consent, a permission or a claim that is taken away stops what it had allowed, and is given back without a loss."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from memory_operator.api.conditions import ConditionType
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import FINALIZER
from memory_operator.reconcile.authorization.permissions import Permitted
from memory_operator.reconcile.core import LONGEST_REQUEUE_SECONDS
from memory_operator.reconcile.facts import Credentials, JobState, Observed, Problem
from memory_operator.reconcile.plan import Patch, Plan
from memory_operator.resources.worker_pods import ConfiguredEmbedder
from memory_recall.embedding.apis import EmbedderApi, EmbedderOptions
from memory_recall.postgres.identity_sql import DatabaseIdentity
from memory_recall.schema.claims_sql import TableClaim
from memory_recall.status import RowCounts
from tests.unit.memory_operator.conftest import SERVER, Cluster, World, deep_update

EXTERNAL = {"embedder": {"external": {"url": "http://x.ml.svc:8080", "apiKey": {"secretName": "key"}}}}
Withdraw = Callable[[Cluster, Observed], Observed]


def problem(what: str) -> Problem:
    return Problem(Reason.CONSENT_MISSING, f"{what} is not allowed; this line does: `kubectl label ...`.")


def of_annotation(_: Cluster, observed: Observed) -> Observed:
    return replace(observed, cluster=problem("Cluster dbaas/pg"), database=None)


def of_uri(_: Cluster, observed: Observed) -> Observed:
    return replace(observed, credentials=problem("Secret team/dsn"), database=None)


def of_key(_: Cluster, observed: Observed) -> Observed:
    return replace(observed, external=problem("Secret team/key"))


def of_host(cluster: Cluster, observed: Observed) -> Observed:
    cluster.world.permitted = Permitted()
    return observed


def of_database_host(_: Cluster, observed: Observed) -> Observed:
    return replace(observed, database=Problem(Reason.NOT_PERMITTED, "The host of the connection URI is db.example."))


def of_service(_: Cluster, observed: Observed) -> Observed:
    return replace(observed, external=Problem(Reason.NOT_PERMITTED, "The host is a Service without a selector."))


def of_claim(_: Cluster, observed: Observed) -> Observed:
    assert observed.database_facts
    theirs = TableClaim(SERVER, "other", "mem", "u-2", "2025-01-01T00:00:00Z", "k-1", cluster_name="pg")
    return replace(observed, database=replace(observed.database_facts, claim=theirs))


def of_server(_: Cluster, observed: Observed) -> Observed:
    assert observed.database_facts
    return replace(observed, database=replace(observed.database_facts, identity=DatabaseIdentity("7", "app", "pg")))


def of_database(_: Cluster, observed: Observed) -> Observed:
    return replace(observed, credentials=Credentials("staging"), database=None)


WITHDRAWALS = [
    (of_annotation, "ConsentMissing"),
    (of_uri, "ConsentMissing"),
    (of_key, "ConsentMissing"),
    (of_host, "NotPermitted"),
    (of_database_host, "NotPermitted"),
    (of_service, "NotPermitted"),
    (of_claim, "TableTaken"),
    (of_server, "DatabaseIdentityMismatch"),
    (of_database, "DatabaseNameMismatch"),
]
each_kind = pytest.mark.parametrize(("withdraw", "reason"), WITHDRAWALS, ids=lambda one: getattr(one, "__name__", None))


class Consenting(Cluster):
    """A cluster of which a consent can be withdrawn and given back."""

    withdraw: Withdraw | None = None

    def observe(self) -> Observed:
        observed = super().observe()
        return self.withdraw(self, observed) if self.withdraw else observed


def consenting(world: World, **spec: Any) -> Consenting:
    manifest = world.manifest(**(spec or EXTERNAL))
    manifest["status"] = {}
    return Consenting(world, manifest)


@pytest.fixture
def ready(world: World) -> Consenting:
    """An object whose sync worker sends texts to an external embedder."""
    cluster = consenting(world)
    cluster.until_ready()
    assert cluster.replicas("mem-sync") == 1
    return cluster


def settle(cluster: Cluster) -> Plan:
    for _ in range(4):
        plan = cluster.reconcile()
    return plan


@pytest.mark.promise("consent-has-an-end")
@pytest.mark.finding("security S4")
@each_kind
def test_a_withdrawal_stops_the_sync_worker_says_so_and_is_given_back(
    ready: Consenting, withdraw: Withdraw, reason: str
) -> None:
    permitted = ready.world.permitted
    ready.withdraw = withdraw
    plan = ready.reconcile()
    assert ready.replicas("mem-sync") == 0
    condition = ready.condition("Ready")
    assert (condition["status"], condition["reason"]) == ("False", reason)
    assert "Deployment team/mem-sync is stopped" in condition["message"]
    assert ready.condition("Backfilled")["status"] == "False"
    assert plan.requeue_after <= LONGEST_REQUEUE_SECONDS
    ready.writes.clear()
    settle(ready)
    assert set(ready.writes) <= {"status"}, "it is stopped once"
    ready.withdraw, ready.world.permitted = None, permitted
    settle(ready)
    assert ready.replicas("mem-sync") == 1
    assert ready.condition("Ready")["status"] == "True"


@pytest.mark.promise("consent-has-an-end")
@pytest.mark.finding("security S4")
@each_kind
def test_a_withdrawal_suspends_the_running_backfill_which_goes_on_afterwards(
    world: World, withdraw: Withdraw, reason: str
) -> None:
    cluster = consenting(world)
    permitted = world.permitted
    settle(cluster)
    cluster.change(extension_version="0.8.7")
    settle(cluster)
    cluster.migrate()
    settle(cluster)
    (name,) = (job.name for job in cluster.jobs.values() if job.state is JobState.ACTIVE)
    assert cluster.jobs[name].component == "backfill"
    cluster.withdraw = withdraw
    settle(cluster)
    assert cluster.jobs[name].suspended
    assert f"Job {name}" in cluster.condition("Ready")["message"]
    assert cluster.condition("Ready")["reason"] == reason
    cluster.withdraw, world.permitted = None, permitted
    settle(cluster)
    assert not cluster.jobs[name].suspended
    cluster.embed()
    settle(cluster)
    cluster.build()
    settle(cluster)
    assert cluster.condition("Ready")["status"] == "True"


@pytest.mark.promise("consent-has-an-end")
@pytest.mark.finding("security S4")
@each_kind
def test_a_suspended_object_is_stopped_too_and_resumed_only_with_the_object(
    ready: Consenting, withdraw: Withdraw, reason: str
) -> None:
    permitted = ready.world.permitted
    ready.manifest["spec"]["suspend"] = True
    settle(ready)
    assert ready.replicas("mem-sync") == 1, "a suspended object leaves what runs"
    ready.withdraw = withdraw
    settle(ready)
    assert ready.replicas("mem-sync") == 0
    assert reason
    ready.withdraw, ready.world.permitted = None, permitted
    settle(ready)
    assert ready.replicas("mem-sync") == 0, "nothing is begun"
    ready.manifest["spec"]["suspend"] = False
    settle(ready)
    assert ready.replicas("mem-sync") == 1


@pytest.mark.finding("security S4")
@pytest.mark.parametrize("withdraw", [of_annotation, of_uri, of_key, of_host])
@pytest.mark.parametrize("policy", ["Delete", "Retain"])
def test_an_object_that_cannot_be_deleted_for_want_of_consent_sends_nothing_more(
    ready: Consenting, withdraw: Withdraw, policy: str
) -> None:
    ready.withdraw = withdraw
    ready.delete(FINALIZER, deletionPolicy=policy, graph={"enabled": True})
    ready.reconcile()
    assert ready.gone or ready.replicas("mem-sync") is None
    assert not ready.running() or ready.running() in (["uninstall"], ["graph"])


@pytest.mark.finding("security S4")
@pytest.mark.parametrize("withdraw", [of_key, of_host, of_service])
def test_without_consent_for_the_embedder_alone_the_migrations_are_undone_all_the_same(
    ready: Consenting, withdraw: Withdraw
) -> None:
    ready.withdraw = withdraw
    ready.delete(FINALIZER, deletionPolicy="Delete")
    for _ in range(4):
        ready.reconcile()
    assert ready.running() == ["uninstall"]
    before = dict(ready.jobs)
    ready.reconcile()
    assert ready.jobs == before


@pytest.mark.parametrize(
    ("spec", "reason", "running"),
    [
        ({"embedding": {"dimensions": 7}}, "DimensionMismatch", 1),
        ({"embedding": {"model": "unheard-of"}}, "UnknownModel", 1),
        ({"embedder": {"external": {"url": "https://embed.example"}}}, "InvalidSpec", 0),
    ],
)
def test_a_refused_specification_stops_the_workers_only_where_it_concerns_who_may_get_the_texts(
    ready: Consenting, spec: dict[str, Any], reason: str, running: int
) -> None:
    ready.world.permitted = Permitted(external_hosts=("x.ml.svc", "embed.example"))
    ready.manifest["spec"] = deep_update(ready.manifest["spec"], spec)
    settle(ready)
    assert ready.condition("Ready")["reason"] == reason
    assert ready.replicas("mem-sync") == running


@pytest.mark.finding("security S4")
def test_a_job_that_somebody_else_has_suspended_is_not_resumed(world: World) -> None:
    cluster = consenting(world)
    settle(cluster)
    cluster.change(extension_version="0.8.7")
    settle(cluster)
    cluster.migrate()
    settle(cluster)
    (job,) = (job for job in cluster.jobs.values() if job.component == "backfill")
    cluster.jobs[job.name] = replace(job, suspended=True)
    cluster.withdraw = of_key
    settle(cluster)
    cluster.withdraw = None
    settle(cluster)
    assert cluster.jobs[job.name].suspended


@pytest.mark.finding("security S4")
@pytest.mark.parametrize("named", ["sends_to", "secrets"])
def test_a_job_of_a_former_specification_is_stopped_when_what_it_uses_is_permitted_no_more(
    ready: Consenting, named: str
) -> None:
    """The specification names another host and another Secret by now, and only the running Job uses the former."""
    ready.change(rows=RowCounts(total=500, embedded=100, pending=380, sensitive=20))
    settle(ready)
    (job,) = (job for job in ready.jobs.values() if job.component == "backfill" and job.state is JobState.ACTIVE)
    former = {"sends_to": frozenset({ConfiguredEmbedder("http://former.example")}), "secrets": job.secrets | {"former"}}
    given = replace(job, **{named: former[named]})
    observed = replace(ready.observe(), jobs=(given,))
    plan = ready.world.decide(ready.index, **vars(observed))
    stops = [one for one in plan.actions if isinstance(one, Patch) and one.name == job.name]
    assert [one.changes["spec"] for one in stops] == [{"suspend": True}]
    assert plan.status is not None
    ready_condition = next(one for one in plan.status["conditions"] if one["type"] == ConditionType.READY)
    assert ready_condition["reason"] not in {"ConsentMissing", "NotPermitted"}, "the object itself is not refused"


@pytest.mark.parametrize("api", [EmbedderApi.VOYAGE, EmbedderApi.OPENAI])
def test_a_job_that_sends_texts_to_a_gateway_of_a_hosted_provider_is_stopped_without_consent(
    ready: Consenting, api: EmbedderApi
) -> None:
    """The gateway is in the cluster and passes the texts on; another server of the same address keeps them."""
    ready.change(rows=RowCounts(total=500, embedded=100, pending=380, sensitive=20))
    settle(ready)
    (job,) = (job for job in ready.jobs.values() if job.component == "backfill" and job.state is JobState.ACTIVE)
    gateway = ConfiguredEmbedder("http://x.ml.svc:8080", options=EmbedderOptions(api))
    observed = replace(ready.observe(), jobs=(replace(job, sends_to=frozenset({gateway})),))
    plan = ready.world.decide(ready.index, **vars(observed))
    stopped = [one for one in plan.actions if isinstance(one, Patch) and one.name == job.name]
    assert bool(stopped) is (api is EmbedderApi.VOYAGE)


@pytest.mark.finding("security S4")
def test_what_is_stopped_is_named_by_its_uid_and_nothing_else_of_it_is_changed(ready: Consenting) -> None:
    ready.withdraw = of_uri
    observed = ready.observe()
    plan = ready.world.decide(ready.index, **vars(observed))
    uid = observed.children["Deployment", "mem-sync"]["metadata"]["uid"]
    assert plan.actions == (Patch("Deployment", "team", "mem-sync", uid, {"spec": {"replicas": 0}}),)
