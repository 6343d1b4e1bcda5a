"""The embedder of the active model during a swap: the gate and the operator ask it, with its own API key."""

import base64
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest

from memory_operator.api.conditions import ConditionType
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import Manifest
from memory_operator.clients.embedder import EmbedderProbe
from memory_operator.clients.http import Answer
from memory_operator.controller.observe import Observer
from memory_operator.controller.secret_reader import SecretReader
from memory_operator.reconcile.authorization.permissions import Permitted
from memory_operator.reconcile.core import reconcile
from memory_operator.reconcile.facts import DeploymentFacts, Problem, ReportedModel
from memory_operator.reconcile.plan import Apply, Delete, Patch, Plan
from tests.unit.memory_operator.conftest import MODEL, NEXT_MODEL, Cluster, World, anywhere
from tests.unit.memory_operator.test_operator_swap_external import (
    FORMER,
    GATE,
    OTHER,
    OWN,
    OWN_NEXT,
    TO_OTHER,
    change,
    egress,
    external,
    own,
    reconciled,
    settled,
)


def job(cluster: Cluster) -> tuple[list[str], dict[str, str], dict[str, str]]:
    """The command, the environment and, by mount path, the Secret of each volume of the swap's Job in the next plan."""
    (manifest,) = [
        action.manifest
        for action in decide(cluster).actions
        if isinstance(action, Apply) and action.manifest["kind"] == "Job"
    ]
    pod = manifest["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    names = {volume["name"]: volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}
    mounted = {one["mountPath"]: names[one["name"]] for one in container["volumeMounts"] if one["name"] in names}
    return container["command"], {item["name"]: item["value"] for item in container["env"]}, mounted


def decide(cluster: Cluster, **facts: Any) -> Plan:
    world = cluster.world
    observed = replace(cluster.observe(), **facts)
    return reconcile(cluster.index, observed, world.images, world.now, world.intervals, permitted=world.permitted)


SWAPS = [
    (own("k1"), OWN, external(OTHER, "k2"), OTHER),
    (own("k1"), OWN, external(OTHER), OTHER),
    (own(), OWN, external(OTHER, "k2"), OTHER),
    (external(FORMER, "k1"), FORMER, own("k2"), OWN_NEXT),
    (external(FORMER, "k1"), FORMER, own(), OWN_NEXT),
    (external(FORMER), FORMER, external(OTHER, "k2"), OTHER),
    (external(FORMER, "k1"), FORMER, external(OTHER, "k2"), OTHER),
    (own("k1"), OWN, own("k2"), OWN_NEXT),
]


@pytest.mark.parametrize(("before", "url", "after", "next_url"), SWAPS)
def test_the_gate_asks_the_active_models_embedder_and_each_embedder_gets_its_own_key(
    world: World, before: Manifest, url: str, after: Manifest, next_url: str
) -> None:
    """The specification names the next embedder and its key alone."""
    cluster = settled(world, before, url)
    change(cluster, after)
    if next_url == OWN_NEXT:
        cluster.reconcile()  # the next embedder is started first
    command, environment, mounted = job(cluster)
    assert (environment["MEMORY_MODEL"], environment["MEMORY_EMBEDDER_URL"]) == ("all-MiniLM-L6-v2", url)
    assert command[command.index("--url") + 1] == next_url
    keys = {key_of(environment.get("MEMORY_EMBEDDER_API_KEY_FILE"), mounted), "k1" if "k1" in str(before) else None}
    assert len(keys) == 1
    option = command[command.index("--api-key-file") + 1] if "--api-key-file" in command else None
    assert key_of(option, mounted) == ("k2" if "k2" in str(after) else None)
    assert ("--without-api-key" in command) is ("k1" in str(before) and "k2" not in str(after))


def test_a_job_without_a_gate_gets_neither_the_address_nor_the_key_of_a_host_that_is_no_longer_permitted(
    world: World,
) -> None:
    cluster = settled(world, external(FORMER, "k1"), FORMER)
    world.permitted = Permitted(external_hosts=("b.example",))
    change(cluster, external(OTHER, "k2"), swap={})
    _, environment, mounted = job(cluster)
    assert environment["MEMORY_EMBEDDER_URL"] == OTHER
    assert "k1" not in mounted.values()


def key_of(file: str | None, mounted: dict[str, str]) -> str | None:
    return mounted[file.removesuffix("/key")] if file else None


@pytest.mark.parametrize("secret", ["", "k1"])
def test_one_key_for_both_embedders_needs_no_option(world: World, secret: str) -> None:
    cluster = settled(world, own(secret), OWN)
    change(cluster, external(OTHER, secret))
    command, environment, _ = job(cluster)
    assert not [option for option in command if "api-key" in option]
    assert ("MEMORY_EMBEDDER_API_KEY_FILE" in environment) is bool(secret)


AWAY = Problem(Reason.EXTERNAL_UNREACHABLE, "The embedder at http://a.one.svc:9000 does not answer: refused.")


def test_the_job_waits_for_a_former_external_embedder_that_is_known_to_be_away(world: World) -> None:
    """Its gate would fail and be repeated; the operator's own request tells when it answers again."""
    cluster = settled(world, external(FORMER), FORMER)
    change(cluster, external(OTHER))
    waiting = decide(cluster, active_external=AWAY)
    assert verdict(waiting, ConditionType.EMBEDDER_READY) == ("False", "ExternalEmbedderUnreachable")
    assert verdict(waiting, ConditionType.MODEL_ACTIVE) == ("False", "Waiting")
    assert "does not answer" in waiting.steps[ConditionType.MODEL_ACTIVE].verdict.message
    assert not jobs(waiting)
    going = decide(cluster, active_external=ReportedModel(f"The embedder at {FORMER}"))
    assert verdict(going, ConditionType.EMBEDDER_READY) == ("True", "Available")
    assert jobs(going)


def test_another_file_at_the_former_external_embedder_is_noticed(world: World) -> None:
    cluster = settled(world, external(FORMER), FORMER)
    cluster.change(active_model=replace(MODEL, embedder_url=FORMER, digest="sha256:aa"))
    change(cluster, external(OTHER))
    plan = decide(cluster, active_external=ReportedModel(f"The embedder at {FORMER}", "sha256:bb"))
    assert verdict(plan, ConditionType.EMBEDDER_READY) == ("False", "ModelMismatch")
    assert not jobs(plan)


@pytest.mark.parametrize("gate", [GATE, {}], ids=["with a gate", "without a gate"])
def test_the_job_waits_for_the_own_embedder_only_if_its_gate_asks_it_and_is_not_stopped(
    world: World, gate: Manifest
) -> None:
    cluster = settled(world, own(), OWN)
    change(cluster, external(OTHER), swap=gate)
    starting = DeploymentFacts(replicas=1, ready=0, current=True)
    assert bool(jobs(decide(cluster, embedder=starting))) is (gate == {})
    cluster.reconcile()
    assert cluster.running() == ["swap"]
    again = decide(cluster, embedder=starting)
    assert [one for one in again.actions if isinstance(one, Delete)] == []
    assert verdict(again, ConditionType.MODEL_ACTIVE) == ("False", "Swapping")


def test_a_gate_that_cannot_measure_since_the_own_embedder_was_deleted_is_said_to(world: World) -> None:
    cluster = settled(world, own(), OWN)
    change(cluster, own())
    del cluster.children["Deployment", "mem-embedder"]
    reconciled(cluster)
    assert cluster.running() == []
    found = cluster.condition("EmbedderReady")
    assert (found["reason"], "remove spec.swap.gate" in found["message"]) == ("EmbedderUnavailable", True)
    change(cluster, own(), swap={})
    reconciled(cluster)
    assert cluster.running() == ["swap"]


def verdict(plan: Plan, kind: ConditionType) -> tuple[str, str]:
    found = plan.steps[kind].verdict
    return found.status.value, found.reason.code


def jobs(plan: Plan) -> list[str]:
    return [
        a.manifest["metadata"]["name"] for a in plan.actions if isinstance(a, Apply) and a.manifest["kind"] == "Job"
    ]


class Secrets:
    """Holds the keys k1 and k2, of which `refused` may not be used as an API key."""

    def __init__(self, refused: str = "") -> None:
        self.refused = refused

    async def get(self, _kind: str, _namespace: str, name: str) -> Manifest:
        labels = {"memory-index.dev/allow": "dsn" if name == self.refused else "api-key"}
        data = {"apiKey": base64.b64encode(f"key of {name}".encode()).decode()}
        return {"metadata": {"name": name, "labels": labels}, "data": data}


async def former(observer: Observer, cluster: Cluster, sync: Manifest | None) -> ReportedModel | Problem | None:
    """What is observed of the active model's external embedder."""
    secrets = SecretReader(observer._kube, cluster.index.namespace)
    return await observer._active_external(cluster.index, secrets, cluster.database, sync)


async def test_the_operator_asks_the_former_external_embedder_with_its_own_key(world: World) -> None:
    requests: list[tuple[str, str]] = []

    async def get(url: str, headers: Mapping[str, str], *_: Any) -> Answer:
        requests.append((url, headers.get("Authorization", "")))
        return Answer(200, b'{"data": [{"id": "all-MiniLM-L6-v2", "dimensions": 384, "digest": "sha256:aa"}]}')

    cluster = settled(world, external(FORMER, "k1"), FORMER)
    change(cluster, external(OTHER, "k2"))
    sync = cluster.children["Deployment", "mem-sync"]
    observer = Observer(Secrets(), None, EmbedderProbe(get, world.permitted, anywhere))  # type: ignore[arg-type]
    found = await former(observer, cluster, sync)
    assert found == ReportedModel(f"The embedder at {FORMER}", "sha256:aa")
    assert requests == [(f"{FORMER}/v1/models", "Bearer key of k1")]
    assert await former(observer, cluster, None) is None
    cluster.change(active_model=replace(NEXT_MODEL, embedder_url=OTHER))
    assert await former(observer, cluster, sync) is None, "it serves no longer"
    assert len(requests) == 1


@pytest.mark.parametrize(("refused", "permitted"), [("k1", ("a.one.svc",)), ("", ("b.example",))])
async def test_a_former_external_embedder_without_consent_or_permission_is_not_asked(
    world: World, refused: str, permitted: tuple[str, ...]
) -> None:
    async def get(_url: str, _headers: Mapping[str, str]) -> Answer:
        raise AssertionError("the operator called it")

    cluster = settled(world, external(FORMER, "k1"), FORMER)
    change(cluster, external(OTHER, "k2"))
    sync = cluster.children["Deployment", "mem-sync"]
    probe = EmbedderProbe(get, Permitted(external_hosts=permitted), anywhere)
    observer = Observer(Secrets(refused), None, probe)  # type: ignore[arg-type]  # only what is needed here
    found = await former(observer, cluster, sync)
    assert isinstance(found, Problem)
    assert found.reason is (Reason.CONSENT_MISSING if refused else Reason.NOT_PERMITTED)
    if refused:
        actions = decide(cluster, active_external=found).actions
        assert [(one.name, one.changes) for one in actions if isinstance(one, Patch)] == [
            ("mem-sync", {"spec": {"replicas": 0}})
        ]
        assert len(actions) == 1


@pytest.mark.finding("security S4")
async def test_a_key_that_only_the_running_sync_worker_mounts_needs_its_label_too(world: World) -> None:
    async def get(_url: str, _headers: Mapping[str, str]) -> Answer:
        raise AssertionError("the operator called it")

    cluster = settled(world, external(FORMER, "k1"), FORMER)
    sync = cluster.children["Deployment", "mem-sync"]
    cluster.manifest["spec"]["embedder"] = external(OTHER, "k2")
    observer = Observer(Secrets("k1"), None, EmbedderProbe(get, world.permitted, anywhere))  # type: ignore[arg-type]
    found = await former(observer, cluster, sync)
    assert isinstance(found, Problem)
    assert found.reason is Reason.CONSENT_MISSING
    plan = decide(cluster, active_external=found)
    assert [one.name for one in plan.actions if isinstance(one, Patch)] == ["mem-sync"]


@pytest.mark.finding("security S4")
def test_during_a_swap_no_text_goes_to_a_former_host_that_is_permitted_no_more_until_it_is_again(world: World) -> None:
    cluster = settled(world, external(FORMER), FORMER)
    change(cluster, external(OTHER))
    cluster.reconcile()
    assert cluster.replicas("mem-sync") == 1
    permitted, world.permitted = world.permitted, Permitted(external_hosts=(urlsplit(OTHER).hostname or "",))
    for _ in range(3):
        cluster.reconcile()
        assert cluster.replicas("mem-sync") == 0
    assert f"no longer permits the host of {FORMER}" in cluster.condition("Backfilled")["message"]
    assert [
        job.component
        for job in cluster.jobs.values()
        if any(to.url == FORMER for to in job.sends_to) and not job.suspended
    ] == []
    world.permitted = permitted
    cluster.reconcile()
    assert cluster.replicas("mem-sync") == 1


@pytest.mark.parametrize("url", ["ftp://a.one.svc", "http://user@a.one.svc", "nonsense", "http://a.one.svc:0"])
def test_an_unusable_address_in_an_edited_sync_deployment_is_neither_called_nor_an_error(
    world: World, url: str
) -> None:
    cluster = settled(world, external(FORMER), FORMER)
    container = cluster.children["Deployment", "mem-sync"]["spec"]["template"]["spec"]["containers"][0]
    container["env"] = [
        one | {"value": url} if one["name"] == "MEMORY_EMBEDDER_URL" else one for one in container["env"]
    ]
    change(cluster, external(OTHER))
    _, environment, _ = job(cluster)
    assert environment["MEMORY_EMBEDDER_URL"] == OTHER
    reconciled(cluster)
    assert egress(cluster) == [TO_OTHER]
    assert cluster.condition("EmbedderReady")["status"] == "Unknown"
