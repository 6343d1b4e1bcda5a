"""With an embedder beyond the cluster none runs in it, workers get its key, and the operator sends it no text."""

import base64
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import generate_latest

from memory_operator.api.reasons import Reason
from memory_operator.api.spec import parse
from memory_operator.clients.embedder import EmbedderProbe
from memory_operator.clients.http import Answer
from memory_operator.controller.observe import Observer
from memory_operator.controller.secret_reader import SecretReader
from memory_operator.reconcile.facts import JobState, PodFacts, Problem, WorkerReport
from memory_operator.resources import workers
from memory_recall.errors import DatabaseFull, DatabaseUnreachable, EmbedderUnauthorized, EmbedderUnavailable
from memory_recall.indexing.progress import WorkerMetrics
from memory_recall.retrying import Awaited
from memory_recall.status import NO_INDEX, RowCounts
from tests.unit.memory_operator.conftest import HOSTED, HOSTED_MODEL, HOSTED_URL, Cluster, World, anywhere, condition


def kinds(plan: Any) -> list[str]:
    return sorted(action.manifest["kind"] for action in plan.actions if hasattr(action, "manifest"))


def full(world: World, **changes: Any) -> Any:
    observed = world.observed()
    return replace(observed.database_facts, embedding_dimensions=1024, active_model=HOSTED_MODEL, **changes)


def test_a_hosted_index_runs_workers_and_no_embedder(world: World) -> None:
    plan = world.decide(world.index(**HOSTED), database=full(world))
    assert kinds(plan) == ["ConfigMap", "Deployment", "NetworkPolicy"]
    names = [action.manifest["metadata"]["name"] for action in plan.actions if hasattr(action, "manifest")]
    assert sorted(names) == ["mem-database-ca", "mem-sync", "mem-workers"]
    assert condition(plan, "EmbedderReady")["status"] == "True"
    assert "sensitive rows are never sent there" in condition(plan, "EmbedderReady")["message"]


def test_pending_rows_are_backfilled_without_waiting_for_a_pod(world: World) -> None:
    rows = RowCounts(total=5000, pending=5000)
    plan = world.decide(world.index(**HOSTED), database=full(world, rows=rows, index=NO_INDEX))
    assert "Job" in kinds(plan)


def test_workers_get_the_address_the_api_the_consent_and_the_reference_to_the_key(world: World) -> None:
    pod = workers.backfill_job(world.index(**HOSTED), world.images, 0)["spec"]["template"]["spec"]
    env = {item["name"]: item for item in pod["containers"][0]["env"]}
    assert (env["MEMORY_EMBEDDER_URL"]["value"], env["MEMORY_EMBEDDER_API"]["value"]) == (HOSTED_URL, "Voyage")
    assert env["MEMORY_QUERY_EGRESS"]["value"] == "allowed"
    (mounted,) = [volume["secret"] for volume in pod["volumes"] if volume["name"] == "key"]
    assert (mounted["secretName"], mounted["items"][0]["key"]) == ("voyage", "apiKey")
    assert env["MEMORY_EMBEDDER_API_KEY_FILE"]["value"].endswith("/key")


def test_workers_of_an_embedder_in_the_cluster_get_no_consent(world: World) -> None:
    pod = workers.backfill_job(world.index(), world.images, 0)["spec"]["template"]["spec"]
    names = {item["name"] for item in pod["containers"][0]["env"]}
    assert not names & {"MEMORY_EMBEDDER_API", "MEMORY_QUERY_EGRESS"}


@pytest.mark.parametrize("spec", [HOSTED, {"embedder": {"external": {"url": "http://e:8080"}}}])
def test_an_embedder_that_ran_before_is_removed(world: World, spec: dict[str, Any]) -> None:
    _, settled, _ = world.settled()
    facts = full(world) if spec is HOSTED else settled.database_facts
    plan = world.decide(world.index(**spec), **{**vars(settled), "database": facts})
    removed = {(action.kind, action.name) for action in plan.actions if hasattr(action, "kind")}
    assert removed == {(kind, "mem-embedder") for kind in ("Deployment", "Service", "NetworkPolicy")}


def test_a_missing_key_is_named_with_the_field_that_names_it(world: World) -> None:
    problem = Problem(Reason.SECRET_MISSING, "Secret team/voyage is away.", "correct spec.embedder.external.apiKey.")
    plan = world.decide(world.index(**HOSTED), database=full(world), external=problem)
    assert "spec.embedder.external.apiKey" in condition(plan, "EmbedderReady")["message"]


class Kube:
    """Knows one Secret."""

    def __init__(self, data: dict[str, str] | None, allowed: str = "api-key") -> None:
        self.data = data
        self.allowed = allowed

    async def get(self, _kind: str, _namespace: str, name: str) -> Any:
        if self.data is None or name != "voyage":
            return None
        labels = {"memory-index.dev/allow": self.allowed}
        data = {key: base64.b64encode(value.encode()).decode() for key, value in self.data.items()}
        return {"metadata": {"name": name, "labels": labels}, "data": data}


@pytest.mark.parametrize(
    ("data", "reason"),
    [(None, Reason.SECRET_MISSING), ({"other": "x"}, Reason.SECRET_KEY_MISSING), ({"apiKey": "pa-key"}, None)],
)
async def test_the_operator_checks_the_key_and_sends_the_provider_nothing(
    world: World, data: dict[str, str] | None, reason: Reason | None
) -> None:
    async def send(*_arguments: Any, **_options: Any) -> Answer:
        raise AssertionError("the operator sent something to a hosted provider")

    probe = EmbedderProbe(send, world.permitted, anywhere)
    observer = Observer(Kube(data), None, probe)  # type: ignore[arg-type]  # only what is needed here
    found = await observer._external(parse(world.manifest(**HOSTED)), SecretReader(observer._kube, "team"))
    assert (found.reason if isinstance(found, Problem) else None) == reason
    if isinstance(found, Problem):
        assert "spec.embedder.external.apiKey" in found.remedy
        assert "connection URI" not in found.message


async def test_a_key_that_its_secret_does_not_allow_as_one_is_reported_before_any_worker_gets_it(world: World) -> None:
    kube = Kube({"apiKey": "pa-key"}, allowed="dsn")
    observer = Observer(kube, None, None)  # type: ignore[arg-type]  # only what is needed here
    problem = await observer._external(parse(world.manifest(**HOSTED)), SecretReader(observer._kube, "team"))
    assert isinstance(problem, Problem)
    assert problem.reason is Reason.CONSENT_MISSING
    rows = RowCounts(total=5000, pending=5000)
    plan = world.decide(world.index(**HOSTED), database=full(world, rows=rows, index=NO_INDEX), external=problem)
    assert plan.actions == ()


def hosted_cluster(world: World) -> Cluster:
    """A settled cluster whose embedder is the hosted provider."""
    cluster = Cluster(world, world.manifest(**HOSTED))
    cluster.database = full(world)
    for _ in range(3):
        cluster.reconcile()
    assert cluster.condition("Ready")["status"] == "True"
    return cluster


def test_a_refused_key_is_reported_with_its_remedy_until_the_sync_worker_has_another_one(world: World) -> None:
    """The pending rows are nobody's fault but the key's, so they are not called slow and none is given up."""
    cluster = hosted_cluster(world)
    cluster.change(rows=RowCounts(total=100, embedded=87, pending=3, sensitive=10))
    for refused, ready in ((True, "False"), (False, "True")):
        plan = world.decide(cluster.index, **{**vars(cluster.observe()), "key_refused": refused})
        assert condition(plan, "Ready")["status"] == ready
        assert plan.actions == ()
        for kind in ("EmbedderReady", "Backfilled"):
            found = condition(plan, kind)
            assert (found["status"], found["reason"] == "EmbedderUnauthorized") == (ready, refused)
            assert ("key apiKey of Secret team/voyage (spec.embedder.external.apiKey)" in found["message"]) is refused
        assert (condition(plan, "Stalled")["status"] == "True") is refused
        if refused:
            assert "3 rows are pending" in condition(plan, "Backfilled")["message"]
            assert plan.requeue_after <= 10, "a changed Secret causes no event"


def test_a_sync_worker_that_is_not_ready_for_its_refused_key_says_so(world: World) -> None:
    cluster = hosted_cluster(world)
    waits = PodFacts("mem-sync-0", "sync", running=True, unready_since=world.now)
    observed = cluster.observe()
    assert observed.sync
    facts = {**vars(observed), "sync": replace(observed.sync, ready=0), "pods": (waits,), "key_refused": True}
    found = condition(world.decide(cluster.index, **facts), "Backfilled")
    assert (found["status"], found["reason"]) == ("False", "EmbedderUnauthorized")


def test_a_backfill_that_the_provider_refused_says_so_and_is_tried_again(world: World) -> None:
    cluster = hosted_cluster(world)
    cluster.change(rows=RowCounts(total=5000, pending=5000))
    cluster.reconcile()
    refused = Problem(Reason.EMBEDDER_UNAUTHORIZED, "It answered 401.", "Put a valid key into the Secret.")
    cluster.finish("backfill", JobState.FAILED, refused)
    cluster.reconcile()
    found = cluster.condition("Backfilled")
    assert (found["reason"], "Put a valid key into the Secret." in found["message"]) == ("EmbedderUnauthorized", True)
    world.now += timedelta(minutes=6)
    cluster.reconcile()
    assert cluster.running() == ["backfill"]


@pytest.mark.parametrize("refused", [True, False])
async def test_the_operator_reads_from_the_sync_workers_metrics_whether_its_key_is_refused(
    world: World, refused: bool
) -> None:
    """The metrics are those that a worker really exports."""
    metrics = WorkerMetrics()
    metrics.outage_began(Awaited.EMBEDDER, EmbedderUnauthorized("refused") if refused else EmbedderUnavailable("gone"))

    async def get(_url: str, _headers: Mapping[str, str]) -> Answer:
        return Answer(200, generate_latest(metrics.registry))

    probe = EmbedderProbe(get, world.permitted, anywhere)
    pods = [PodFacts("mem-sync-0", "sync", ip="10.0.0.7", running=True, controlled=True)]
    assert (await probe.worker_report(pods)).key_refused is refused
    metrics.outage_ended(Awaited.EMBEDDER)
    assert (await probe.worker_report(pods)).key_refused is False
    assert (await probe.worker_report([replace(pods[0], ip=None)])).key_refused is False


async def test_the_operator_reads_from_a_workers_metrics_that_it_waits_for_room_on_the_databases_disk(
    world: World,
) -> None:
    metrics = WorkerMetrics()

    async def get(_url: str, _headers: Mapping[str, str]) -> Answer:
        return Answer(200, generate_latest(metrics.registry))

    probe = EmbedderProbe(get, world.permitted, anywhere)
    pods = [PodFacts("mem-backfill-0-x", "backfill", ip="10.0.0.7", running=True, controlled=True)]
    metrics.attempt_failed(Awaited.DATABASE, DatabaseUnreachable("It does not answer."), wait=1)
    assert await probe.worker_report(pods) == WorkerReport()
    metrics.attempt_failed(Awaited.DATABASE, DatabaseFull("It has no room left."), wait=1)
    assert await probe.worker_report(pods) == WorkerReport(disk_full=True)
    metrics.wait_ended(1)
    assert await probe.worker_report(pods) == WorkerReport()
