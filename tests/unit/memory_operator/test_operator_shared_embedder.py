"""One embedder for many: an object uses the embedder of another one, with its consent, and the other keeps it."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from memory_operator.api.embedder import COMPONENT, embedder_owner, service_url
from memory_operator.api.spec import ANNOTATION_ALLOWED_NAMESPACES, API_VERSION, FINALIZER, parse
from memory_operator.clients.http import Answer
from memory_operator.clients.kube import KubeError
from memory_operator.controller.cache import ObjectCache
from memory_operator.reconcile.deletion import plan_finalizer
from memory_operator.reconcile.facts import DeletionFacts, JobState
from memory_operator.reconcile.plan import Apply, Delete, Plan
from memory_operator.resources.common import LABEL_INSTANCE, LABEL_MANAGED_BY, MANAGER
from memory_operator.resources.network_policies import embedder_policy, worker_policy
from memory_recall.status import RowCounts
from tests.unit.memory_operator.conftest import FULL, MODEL, Cluster, World, condition
from tests.unit.memory_operator.test_operator_controller import KEY, Bench, bench

__all__ = ["bench"]  # the fixture

URL = "http://shared-embedder.ai.svc:8080"
REF = {"ref": {"name": "shared", "namespace": "ai"}}
CARD = {"id": MODEL.name, "dimensions": MODEL.dimensions, "digest": MODEL.digest, "pooling": MODEL.pooling}
MALFORMED = {"name": "key", "secret": {"items": [{"key": "k", "path": "p"}]}}  # of which secret, it does not say
OTHERS = ("crm/mem", "shop/mem")


def owner(world: World, allowed: str | None = "team", **spec: Any) -> dict[str, Any]:
    """The object that shares its embedder."""
    annotations = {} if allowed is None else {ANNOTATION_ALLOWED_NAMESPACES: allowed}
    meta = {"namespace": "ai", "name": "shared", "uid": "u-ai", "annotations": annotations}
    made = world.manifest(**spec)
    return {**made, "metadata": {**made["metadata"], **meta}}


def use(bench: Bench, world: World, shared: dict[str, Any] | None) -> None:
    """Let the object use the embedder of `shared`, which answers."""
    answered = json.dumps({"data": [CARD]}).encode()

    async def answer(url: str, *_: Any) -> Answer:
        bench.urls.append(url)
        return Answer(200, answered) if url.startswith(URL) else Answer(503, b"")

    bench.probe._send = answer  # type: ignore[assignment]
    bench.database = replace(FULL, rows=RowCounts(total=100, embedded=90, sensitive=10))
    bench.api.index["spec"]["embedder"] = dict(REF)
    bench.api.objects.pop(("MemoryIndex", "ai", "shared"), None)
    if shared:
        bench.api.objects["MemoryIndex", "ai", "shared"] = shared


def deployments(bench: Bench) -> dict[str, Any]:
    return {name: item for (kind, _, name), item in bench.api.objects.items() if kind == "Deployment"}


async def test_with_consent_workers_send_texts_to_the_other_objects_embedder_and_none_is_run(
    bench: Bench, world: World
) -> None:
    use(bench, world, owner(world))
    await bench.reconcile(2)
    ready = bench.api.condition("EmbedderReady")
    assert (ready["status"], ready["message"]) == ("True", f"The external embedder at {URL} answers.")
    assert list(deployments(bench)) == ["mem-sync"]
    (container,) = deployments(bench)["mem-sync"]["spec"]["template"]["spec"]["containers"]
    assert {"name": "MEMORY_EMBEDDER_URL", "value": URL} in container["env"]
    assert bench.api.index["status"]["embedder"]["url"] == URL


@pytest.mark.promise("embedder-by-consent")
@pytest.mark.parametrize(
    ("allowed", "reason"),
    [(None, "ConsentMissing"), ("", "ConsentMissing"), ("*", "ConsentMissing"), ("teams,other", "ConsentMissing")],
)
async def test_without_consent_the_embedder_is_not_even_asked_and_nothing_is_written(
    bench: Bench, world: World, allowed: str | None, reason: str
) -> None:
    use(bench, world, owner(world, allowed))
    await bench.reconcile(2)
    ready = bench.api.condition("Ready")
    present = "PRESENT_NAMES," if allowed and allowed != "*" else ""
    line = f"kubectl -n ai annotate memoryindex shared --overwrite {ANNOTATION_ALLOWED_NAMESPACES}={present}team"
    assert (ready["status"], ready["reason"]) == ("False", reason)
    assert f"`{line}`" in ready["message"]
    assert "teams" not in ready["message"], "the names of other teams are not for this status"
    assert bench.urls == []
    assert set(bench.api.writes) == {"status"}


@pytest.mark.promise("consent-has-an-end")
@pytest.mark.parametrize("gone", [False, True])
async def test_a_consent_that_ends_stops_the_workers_and_one_that_is_given_back_resumes_them(
    bench: Bench, world: World, *, gone: bool
) -> None:
    use(bench, world, owner(world))
    await bench.reconcile(2)
    assert deployments(bench)["mem-sync"]["spec"]["replicas"] == 1
    use(bench, world, None if gone else owner(world, None))
    await bench.reconcile(2)
    assert deployments(bench)["mem-sync"]["spec"]["replicas"] == 0, "an object that is gone consents to nothing"
    assert bench.api.condition("Ready")["reason"] == ("EmbedderNotShared" if gone else "ConsentMissing")
    use(bench, world, owner(world))
    await bench.reconcile(2)
    assert deployments(bench)["mem-sync"]["spec"]["replicas"] == 1


async def test_an_embedder_of_the_same_namespace_needs_no_consent_and_the_namespace_need_not_be_named(
    bench: Bench, world: World
) -> None:
    shared = owner(world, None)
    shared["metadata"]["namespace"] = "team"
    use(bench, world, None)
    bench.api.objects["MemoryIndex", "team", "shared"] = shared
    bench.api.index["spec"]["embedder"] = {"ref": {"name": "shared"}}
    await bench.reconcile(2)
    assert bench.api.index["status"]["embedder"]["url"] == "http://shared-embedder.team.svc:8080"
    assert bench.api.condition("Ready")["reason"] not in {"ConsentMissing", "NotPermitted"}
    assert bench.urls


async def test_an_owner_that_the_operator_may_not_read_is_no_consent(bench: Bench, world: World) -> None:
    use(bench, world, owner(world))
    real = bench.api.get

    async def refusing(kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        if (kind, namespace) == ("MemoryIndex", "ai"):
            raise KubeError("reading MemoryIndex ai/shared", 403, "forbidden", refused=True)
        return await real(kind, namespace, name)

    bench.api.get = refusing  # type: ignore[method-assign]
    await bench.reconcile(2)
    ready = bench.api.condition("Ready")
    assert ready["reason"] == "NotPermitted"
    assert "watchNamespaces" in ready["message"]
    assert bench.urls == []


async def test_where_the_shared_embedder_does_not_answer_the_owners_status_is_named(bench: Bench, world: World) -> None:
    use(bench, world, owner(world))

    async def silent(url: str, *_: Any) -> Answer:
        return Answer(503, b"")

    bench.probe._send = silent  # type: ignore[assignment]
    await bench.reconcile(2)
    said = bench.api.condition("EmbedderReady")
    assert said["reason"] == "ExternalEmbedderUnreachable"
    assert "See the status of MemoryIndex ai/shared." in said["message"]


async def test_a_swap_away_from_a_shared_embedder_keeps_it_as_long_as_its_owner_allows_that(
    bench: Bench, world: World
) -> None:
    use(bench, world, owner(world))
    await bench.reconcile(2)
    bench.api.index["spec"] |= {
        "embedding": {"model": "bge-small-en-v1.5", "dimensions": 384},
        "embedder": {"gpuLayers": 0},
    }
    await bench.reconcile(2)
    assert bench.api.condition("EmbedderReady")["message"] == (
        f"The external embedder at {URL} answers and serves {MODEL.name}."
    )
    assert deployments(bench)["mem-sync"]["spec"]["replicas"] == 1
    seen_by_owner = await bench.observer.observe(parse(owner(world)))
    assert seen_by_owner.referring == ("team/mem",), "its worker still calls the embedder that spec names no longer"
    bench.api.objects["MemoryIndex", "ai", "shared"] = owner(world, None)
    asked = len(bench.urls)
    await bench.reconcile(2)
    assert deployments(bench)["mem-sync"]["spec"]["replicas"] == 0
    assert not [url for url in bench.urls[asked:] if url.startswith(URL)]


async def test_an_object_that_refers_to_itself_is_told_so(bench: Bench, world: World) -> None:
    use(bench, world, None)
    bench.api.index["spec"]["embedder"] = {"ref": {"name": "mem"}}
    await bench.reconcile(2)
    ready = bench.api.condition("Ready")
    assert ready["reason"] == "InvalidSpec"
    assert "names this object itself" in ready["message"]


def test_only_the_address_of_an_embedders_service_names_its_owner() -> None:
    assert embedder_owner(service_url("ai", "shared", "embedder")) == ("ai", "shared")
    assert embedder_owner(service_url("ai", "a-embedder", "embedder")) == ("ai", "a-embedder")
    for other in (
        "http://shared-embedder.ai.svc:9090",
        "http://shared.ai.svc:8080",
        "https://api.openai.com",
        "http://shared-embedder.ai.svc.evil.com:8080",
        f"{URL}/v1",
        "http://x@shared-embedder.ai.svc:8080",
    ):
        assert embedder_owner(other) is None, other  # fmt: skip


async def test_the_owner_knows_who_uses_its_embedder_with_its_consent(bench: Bench, world: World) -> None:
    users = {("shop", "mem"), ("crm", "mem"), ("stranger", "mem")}
    for namespace, name in users:
        made = world.manifest(embedder={"ref": {"name": "mem", "namespace": "team"}})
        made["metadata"] |= {"namespace": namespace, "name": name, "uid": f"u-{namespace}"}
        bench.api.objects["MemoryIndex", namespace, name] = made
    bench.api.index["metadata"]["annotations"] = {ANNOTATION_ALLOWED_NAMESPACES: "shop,crm"}
    observed = await bench.observer.observe(parse(bench.api.index))
    assert observed.referring == OTHERS


def test_the_cache_finds_who_uses_an_embedder_without_parsing_the_other_objects(world: World) -> None:
    cache, index = ObjectCache(), {}
    for number in range(3):
        made = world.manifest(embedder={"ref": {"name": "shared", "namespace": "ai"}} if number else {})
        made["metadata"] |= {"name": f"m{number}", "uid": f"u-{number}"}
        index |= {key: [entry] for key, entry in cache.admit("MemoryIndex", made).items()}
    assert cache.referring(("ai", "shared"), {"team"}) is None, "without an index nothing is known"
    cache.use((), {"MemoryIndex": index})
    assert cache.referring(("ai", "shared"), {"team", "other"}) == [("team", "m1"), ("team", "m2")]
    assert cache.referring(("ai", "other"), {"team"}) == []
    assert cache.referring(("ai", "shared"), {"elsewhere"}) == []
    cache.ignore("MemoryIndex", "", frozenset({"u-2"}))
    assert cache.referring(("ai", "shared"), {"team"}) == [("team", "m1")]


OWN = service_url("team", "mem", COMPONENT)


@pytest.mark.parametrize(
    ("worker", "owner", "namespaces", "found"),
    [
        ({}, ("ai", "shared"), {"team"}, [("team", "mem")]),
        ({}, ("ai", "shared"), {"other"}, []),
        ({"url": OWN}, ("team", "mem"), {"team"}, []),
        ({"name": "forged-sync"}, ("ai", "shared"), {"team"}, []),
        ({"instance": "nobody", "name": "nobody-sync"}, ("ai", "shared"), {"team"}, []),
        ({"volumes": [MALFORMED]}, ("ai", "shared"), {"team"}, [("team", "mem")]),
    ],
    ids=["calls it", "without consent", "its own", "other name", "without object", "other volumes"],
)
def test_the_cache_finds_those_whose_worker_still_calls_an_embedder(
    world: World, worker: dict[str, Any], owner: tuple[str, str], namespaces: set[str], found: list[tuple[str, str]]
) -> None:
    """Whoever may create Deployments in a namespace can neither invent a user nor break the search for users."""
    cache = ObjectCache()
    kept = {"MemoryIndex": world.manifest(), "Deployment": sync_worker(**worker)}
    indexes = {kind: {key: [one] for key, one in cache.admit(kind, item).items()} for kind, item in kept.items()}
    cache.use((), indexes)
    assert cache.referring(owner, namespaces) == found


def sync_worker(
    url: str = URL, name: str = "mem-sync", instance: str = "mem", volumes: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    """A Deployment of the namespace `team` that names this embedder, as the operator's sync worker does."""
    container = {"name": "worker", "env": [{"name": "MEMORY_EMBEDDER_URL", "value": url}]}
    controller = {"apiVersion": API_VERSION, "kind": "MemoryIndex", "name": instance, "controller": True}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "namespace": "team",
            "name": name,
            "uid": "u-sync",
            "labels": {LABEL_INSTANCE: instance, LABEL_MANAGED_BY: MANAGER},
            "ownerReferences": [controller],
        },
        "spec": {"template": {"spec": {"containers": [container], "volumes": list(volumes)}}},
    }


def decide(cluster: Cluster, *referring: str, **facts: Any) -> Plan:
    observed = replace(cluster.observe(), referring=referring, **facts)
    return cluster.world.decide(cluster.index, **vars(observed))


def ready(world: World, **spec: Any) -> Cluster:
    cluster = Cluster(world, world.manifest(**spec))
    cluster.until_ready()
    cluster.reconcile()
    return cluster


def test_an_embedder_that_others_use_keeps_a_pod(world: World) -> None:
    cluster = ready(world)
    cluster.manifest["spec"]["embedder"] |= {"minReplicas": 0, "scaleDownDelaySeconds": 0}
    for used_by, wanted in (((), [0]), (OTHERS, [])):
        applied = [one.manifest for one in decide(cluster, *used_by).actions if isinstance(one, Apply)]
        scaled = [one["spec"]["replicas"] for one in applied if one["metadata"]["name"] == "mem-embedder"]
        assert scaled == wanted


def test_the_owners_swap_is_refused_by_the_names_of_those_who_use_its_model(world: World) -> None:
    cluster = ready(world)
    cluster.manifest["spec"]["embedding"] = {"model": "bge-small-en-v1.5", "dimensions": 384}
    plan = decide(cluster, *OTHERS)
    said = condition(plan, "ModelActive")
    assert (said["status"], said["reason"]) == ("False", "EmbedderInUse")
    assert "used by crm/mem, shop/mem" in said["message"]
    assert not [one for one in plan.actions if isinstance(one, Apply) and "next" in one.manifest["metadata"]["name"]]
    assert condition(plan, "EmbedderReady")["status"] == "True", "the others are served meanwhile"
    assert condition(plan, "Stalled")["status"] == "True"
    assert condition(decide(cluster), "ModelActive")["reason"] == "Swapping"


def test_a_message_about_thousands_of_users_stays_short(world: World) -> None:
    """Whoever may create objects in an allowed namespace would otherwise make the owner's status too long to write."""
    cluster = ready(world)
    cluster.manifest["spec"]["embedding"] = {"model": "bge-small-en-v1.5", "dimensions": 384}
    users = tuple(f"team/{'m' * 40}{number}" for number in range(5000))
    said = condition(decide(cluster, *users), "ModelActive")["message"]
    assert "and 4990 more" in said
    assert len(said) < 2000
    cluster.delete(FINALIZER)
    plan = world.conclude(cluster.index, DeletionFacts((), referring=users))
    assert "and 4990 more" in condition(plan, "Ready")["message"]


def test_a_swap_that_runs_when_another_object_begins_to_use_the_embedder_is_stopped(world: World) -> None:
    cluster = ready(world)
    cluster.manifest["spec"]["embedding"] = {"model": "bge-small-en-v1.5", "dimensions": 384}
    for _ in range(3):
        cluster.reconcile()
    (job,) = (job for job in cluster.jobs.values() if job.component == "swap" and job.state is JobState.ACTIVE)
    deleted = [one.name for one in decide(cluster, *OTHERS).actions if isinstance(one, Delete)]
    assert deleted == [job.name]


def test_an_owner_that_turns_to_another_embedder_leaves_its_own_to_those_who_use_it(world: World) -> None:
    cluster = ready(world)
    cluster.manifest["spec"]["embedder"] = {"external": {"url": "http://emb.ml.svc:8080"}}
    for used_by, deleted in ((OTHERS, False), ((), True)):
        actions = decide(cluster, *used_by).actions
        assert any(isinstance(one, Delete) and one.name == "mem-embedder" for one in actions) is deleted


@pytest.mark.parametrize("terminating", [False, True])
def test_the_deletion_of_an_owner_waits_for_those_who_use_it_but_a_namespace_can_always_be_deleted(
    world: World, *, terminating: bool
) -> None:
    cluster = ready(world)
    plain = {"database_objects": (), "cluster": None}
    cluster.manifest["metadata"]["finalizers"] = []
    assert plan_finalizer(cluster.index, replace(cluster.observe(), **plain), ()) is None
    used = replace(cluster.observe(), referring=OTHERS, **plain)
    assert plan_finalizer(cluster.index, used, ()) is True, "else nothing could hold the deletion back"
    cluster.delete(FINALIZER)
    plan = world.conclude(cluster.index, DeletionFacts((), referring=OTHERS, namespace_terminating=terminating))
    assert (plan.finalizer is False) is terminating
    if not terminating:
        said = condition(plan, "Ready")
        assert said["reason"] == "EmbedderInUse"
        assert "used by crm/mem, shop/mem" in said["message"]
        assert plan.actions == (), "its embedder goes on"
    assert world.conclude(cluster.index, DeletionFacts(())).finalizer is False


async def test_a_deletion_asks_who_uses_the_embedder_and_ends_when_nobody_does(bench: Bench, world: World) -> None:
    bench.database = replace(FULL, rows=RowCounts(total=100, embedded=90, sensitive=10))
    await bench.reconcile(2)
    assert sorted(deployments(bench)) == ["mem-embedder", "mem-sync"]
    user = world.manifest(embedder={"ref": {"name": "mem"}})
    user["metadata"] |= {"name": "user", "uid": "u-2"}
    bench.api.objects["MemoryIndex", "team", "user"] = user
    bench.api.index["metadata"] |= {"deletionTimestamp": world.now.isoformat(), "finalizers": [FINALIZER]}
    await bench.reconcile(2)
    assert bench.api.index["metadata"]["finalizers"] == [FINALIZER]
    assert "used by team/user" in bench.api.condition("Ready")["message"]
    assert list(deployments(bench)) == ["mem-embedder"], "nothing more is embedded for an object that goes"
    del bench.api.objects["MemoryIndex", "team", "user"]
    await bench.reconcile(2)
    assert bench.api.objects["MemoryIndex", *KEY]["metadata"]["finalizers"] == []


def test_pods_of_the_namespaces_that_consent_names_may_call_and_the_workers_of_the_others_may_reach_them(
    world: World,
) -> None:
    made = parse(owner(world, "team,crm"))
    (calls, _) = embedder_policy(made)["spec"]["ingress"]
    named = [one["namespaceSelector"]["matchLabels"] for one in calls["from"] if "namespaceSelector" in one]
    assert named == [{"kubernetes.io/metadata.name": "crm"}, {"kubernetes.io/metadata.name": "team"}]
    rules = worker_policy(world.index(embedder=REF), (5432,))["spec"]["egress"]
    assert {"to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ai"}}}]} in rules


@pytest.mark.parametrize("allowed", ["*, crm", "crm,team a", "crm,Shop", f"crm,{'a' * 64}", "crm,a/b,-c"])
def test_a_name_that_no_namespace_can_have_does_not_spoil_the_embedders_policy(world: World, allowed: str) -> None:
    """The API server would refuse the whole NetworkPolicy, and without that no embedder is made or changed."""
    (calls, _) = embedder_policy(parse(owner(world, allowed)))["spec"]["ingress"]
    named = [one["namespaceSelector"]["matchLabels"] for one in calls["from"] if "namespaceSelector" in one]
    assert named == [{"kubernetes.io/metadata.name": "crm"}]


async def test_each_user_gives_its_own_key_and_a_lost_one_is_named_by_the_users_field(
    bench: Bench, world: World
) -> None:
    use(bench, world, owner(world))
    bench.api.index["spec"]["embedder"]["ref"]["apiKey"] = {"secretName": "mine"}
    await bench.reconcile(2)
    said = bench.api.condition("EmbedderReady")
    assert said["reason"] == "SecretMissing"
    assert "Secret team/mine" in said["message"]
    assert "spec.embedder.ref.apiKey" in said["message"]
