"""A model file that a Job fetches into a volume: before which no pod starts, and when which volume goes."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from memory_operator.api.reasons import Reason
from memory_operator.api.spec import Manifest
from memory_operator.clients import object_facts
from memory_operator.clients.kube import KINDS
from memory_operator.controller.cache import WATCHED
from memory_operator.controller.entries import CHILDREN
from memory_operator.reconcile.facts import JobState, PodFacts, Problem
from memory_operator.reconcile.plan import Apply, Delete, Plan
from memory_operator.resources import embedder, model_fetch
from memory_operator.resources.network_policies import ELSEWHERE, fetch_policy
from tests.unit.memory_operator.conftest import FULL, MODEL, NEXT_MODEL, Cluster, World, deep_update, swap_record
from tests.unit.memory_operator.test_operator_resources import GPU, pod_spec
from tests.unit.memory_operator.test_operator_resources import source as resource_source
from tests.unit.memory_operator.test_operator_swap import HOME, NEXT, change

URL = "https://models.example/m.gguf"
CLAIM = "PersistentVolumeClaim"


def source(sha256: str = "a" * 64, url: str = URL, **volume: Any) -> dict[str, Any]:
    return {"source": {"http": {"url": url, "sha256": sha256, "volume": volume}}}


def cluster_with(world: World, **spec: Any) -> Cluster:
    made = Cluster(world, world.manifest(**spec))
    made.database = replace(FULL, active_model=replace(MODEL, embedder_url=HOME))
    made.reconcile()
    return made


@pytest.fixture
def fetching(world: World) -> Cluster:
    """A cluster in which the model file is being fetched."""
    return cluster_with(world, embedding=source())


@pytest.fixture
def serving(fetching: Cluster) -> Cluster:
    """A cluster in which the fetched file is served and nothing is left to do."""
    fetching.finish("fetch")
    settle(fetching)
    assert fetching.condition("Ready")["status"] == "True"
    return fetching


def settle(cluster: Cluster) -> None:
    for _ in range(5):
        cluster.reconcile()


def claims(cluster: Cluster) -> list[str]:
    return sorted(name for kind, name in cluster.children if kind == CLAIM)


def mounted(cluster: Cluster, deployment: str = "mem-embedder") -> str:
    volumes = cluster.children["Deployment", deployment]["spec"]["template"]["spec"]["volumes"]
    (found,) = [item["persistentVolumeClaim"] for item in volumes if item["name"] == "model"]
    assert found["readOnly"] is True
    return str(found["claimName"])


def applied(plan: Plan) -> list[str]:
    return [action.manifest["kind"] for action in plan.actions if isinstance(action, Apply)]


@pytest.mark.finding("M5")
def test_no_embedder_pod_is_started_before_its_file_is_fetched(fetching: Cluster) -> None:
    assert fetching.running() == ["fetch"]
    settle(fetching)
    assert fetching.replicas("mem-embedder") is None
    found = fetching.condition("EmbedderReady")
    assert (found["status"], found["reason"]) == ("False", "Fetching")
    assert claims(fetching)[0] in found["message"]
    assert fetching.condition("Reconciling")["status"] == "True"
    fetching.finish("fetch")
    fetching.reconcile()
    assert fetching.replicas("mem-embedder") == 1
    assert [mounted(fetching)] == claims(fetching)


def test_the_policy_and_the_claim_are_there_before_the_job(world: World) -> None:
    made = Cluster(world, world.manifest(embedding=source()))
    made.database = FULL
    kinds = applied(made.reconcile())
    assert kinds.index("NetworkPolicy") < kinds.index(CLAIM) < kinds.index("Job")


@pytest.mark.finding("M5")
def test_the_pod_that_serves_may_call_nobody_and_the_one_that_fetches_may(serving: Cluster) -> None:
    egress = {
        name: item["spec"]["egress"] for (kind, name), item in serving.children.items() if kind == "NetworkPolicy"
    }
    assert egress["mem-embedder"] == []
    assert egress["mem-fetch"] != []


def test_every_object_of_a_fetch_is_watched(serving: Cluster) -> None:
    """What is not watched would be applied for ever."""
    assert {kind for kind, _ in serving.children} <= {*CHILDREN}
    assert {*CHILDREN} < {*WATCHED} <= KINDS.keys()


def test_a_fetch_that_is_done_causes_no_write(serving: Cluster) -> None:
    serving.writes.clear()
    settle(serving)
    assert serving.writes == []


def test_a_file_is_not_fetched_again_once_its_job_is_collected(serving: Cluster) -> None:
    serving.jobs.clear()
    settle(serving)
    assert serving.running() == []
    assert serving.condition("Ready")["status"] == "True"


def test_a_claim_that_somebody_deleted_is_made_and_filled_again(serving: Cluster) -> None:
    """Its former Job has completed, but in another volume of the same name."""
    (name,) = claims(serving)
    del serving.children[CLAIM, name]
    serving.reconcile()
    assert claims(serving) == [name]
    created = serving.world.now.isoformat()
    serving.children[CLAIM, name]["metadata"]["creationTimestamp"] = created
    for _ in range(10):
        serving.reconcile()
    assert serving.running() == ["fetch"]
    assert serving.condition("EmbedderReady")["reason"] == "Fetching"
    assert serving.replicas("mem-embedder") == 1, "the pods that serve are left alone"
    serving.finish("fetch")
    settle(serving)
    assert serving.condition("Ready")["status"] == "True"


def test_a_volume_that_somebody_expanded_does_not_shrink(fetching: Cluster) -> None:
    """The API server would refuse it."""
    (name,) = claims(fetching)
    expanded = deep_update(fetching.children[CLAIM, name], {"spec": {"resources": {"requests": {"storage": "20Gi"}}}})
    fetching.children[CLAIM, name] = expanded
    fetching.finish("fetch")
    settle(fetching)
    assert fetching.children[CLAIM, name]["spec"]["resources"]["requests"]["storage"] == "20Gi"


@pytest.mark.parametrize(
    ("reason", "message", "remedy"),
    [
        (Reason.MODEL_NOT_VERIFIED, "it has the digest sha256:bb", "sha256 must agree"),
        (Reason.MODEL_NOT_FETCHED, "the address answered 404", "Correct spec.embedding.source.http"),
        (Reason.MODEL_NOT_FETCHED, "the file is larger than 9216 MiB", "volume.size"),
    ],
)
def test_a_failed_fetch_is_reported_with_its_message_and_remedy_and_tried_again(
    fetching: Cluster, reason: Reason, message: str, remedy: str
) -> None:
    fetching.finish("fetch", JobState.FAILED, Problem(reason, message))
    fetching.reconcile()
    found = fetching.condition("EmbedderReady")
    assert (found["status"], found["reason"]) == ("False", reason.code)
    assert message in found["message"]
    assert remedy in found["message"]
    assert fetching.replicas("mem-embedder") is None
    settle(fetching)
    assert fetching.running() == ["fetch"], "after 15 seconds"


def test_the_failure_of_a_fetch_job_is_what_its_pod_said() -> None:
    end = {"exitCode": 1, "message": '{"reason": "ModelNotVerified", "message": "It has another digest."}'}
    status = {"containerStatuses": [{"name": "fetch", "state": {"terminated": end}}]}
    pod: Manifest = {"metadata": {"name": "p", "labels": {"job-name": "mem-fetch-1"}}, "status": status}
    failed = {"type": "Failed", "status": "True", "lastTransitionTime": "2026-01-01T12:00:00Z"}
    job = {"metadata": {"name": "mem-fetch-1"}, "status": {"conditions": [failed]}}
    found = object_facts.job_facts(job, [pod]).failure
    assert found == Problem(Reason.MODEL_NOT_VERIFIED, "It has another digest.")


@pytest.mark.parametrize("other", [source(url="https://mirror.example/m.gguf"), source("b" * 64)])
def test_another_url_or_digest_replaces_the_running_job(fetching: Cluster, other: dict[str, Any]) -> None:
    (before,) = fetching.jobs
    change(fetching, embedding=other)
    running = replace(fetching.observe(), pods=(PodFacts("p", "fetch", running=True),))
    actions = fetching.world.decide(fetching.index, **vars(running)).actions
    assert Delete("Job", "team", before, fetching.jobs[before].uid) in actions
    assert [action.manifest["kind"] for action in actions if isinstance(action, Apply)][-1] == "Job"


def test_another_volume_is_filled_before_the_pods_change_and_the_former_one_goes_after_them(serving: Cluster) -> None:
    (before,) = claims(serving)
    change(serving, embedding=source(accessModes=["ReadWriteMany"]))
    settle(serving)
    assert mounted(serving) == before
    (after,) = {*claims(serving)} - {before}
    serving.finish("fetch")
    serving.reconcile()
    assert mounted(serving) == after
    assert before in claims(serving), "pods of the former template may still mount it"
    settle(serving)
    assert claims(serving) == [after]


def test_a_former_claim_stays_while_a_pod_of_the_former_template_is_left(serving: Cluster) -> None:
    change(serving, embedding={})
    serving.reconcile()
    rolling = replace(serving.observe().embedder or pytest.fail("no embedder"), current=False)
    plan = serving.world.decide(serving.index, **{**vars(serving.observe()), "embedder": rolling})
    assert CLAIM not in {action.kind for action in plan.actions if isinstance(action, Delete)}


@pytest.mark.parametrize("ended", [JobState.FAILED, JobState.COMPLETE])
def test_a_job_that_fetched_another_file_goes_since_its_pods_keep_the_claim(fetching: Cluster, ended: JobState) -> None:
    """Kubernetes does not delete a claim while a pod names it, not even one that has ended."""
    (former,) = fetching.jobs
    fetching.finish("fetch", ended, Problem(Reason.MODEL_NOT_VERIFIED, "It has another digest."))
    change(fetching, embedding=source("b" * 64))
    settle(fetching)
    assert former not in fetching.jobs
    fetching.finish("fetch")
    (wanted,) = (name for name, job in fetching.jobs.items() if job.component == "fetch")
    settle(fetching)
    assert wanted in fetching.jobs, "the pods of the wanted file's Job keep a claim that is to stay"


@pytest.mark.parametrize("spec", [{}, {"embedder": {"external": {"url": "http://e.ml.svc:8080"}}}])
def test_nothing_of_a_fetch_is_left_where_no_url_is_named_any_more(fetching: Cluster, spec: dict[str, Any]) -> None:
    change(fetching, **spec)
    settle(fetching)
    assert claims(fetching) == []
    assert fetching.running() == []
    assert ("NetworkPolicy", "mem-fetch") not in fetching.children


def test_a_claim_that_is_being_deleted_is_not_deleted_again(serving: Cluster) -> None:
    change(serving, embedding={})
    serving.reconcile()
    (name,) = claims(serving)
    serving.children[CLAIM, name]["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z"
    serving.writes.clear()
    settle(serving)
    assert f"delete {CLAIM}" not in serving.writes


def test_in_a_swap_the_next_file_is_fetched_beside_the_active_one(serving: Cluster) -> None:
    (active,) = claims(serving)
    change(serving, embedding={**NEXT, **source("b" * 64)})
    settle(serving)
    assert serving.running() == ["fetch"]
    assert serving.replicas("mem-embedder-next") is None
    assert serving.condition("ModelActive")["reason"] == "Fetching"
    assert serving.condition("EmbedderReady")["status"] == "True"
    serving.finish("fetch")
    settle(serving)
    assert serving.running() == ["swap"]
    (following,) = {*claims(serving)} - {active}
    assert (mounted(serving), mounted(serving, "mem-embedder-next")) == (active, following)
    serving.finish("swap")
    serving.change(active_model=replace(NEXT_MODEL, embedder_url=HOME), next_model=None, swap=swap_record("flipped"))
    settle(serving)
    assert mounted(serving) == following
    assert claims(serving) == [following]
    assert serving.condition("Ready")["status"] == "True"


def test_the_file_of_a_swap_that_was_given_up_goes_and_that_of_the_active_model_stays(serving: Cluster) -> None:
    before = claims(serving)
    change(serving, embedding={**NEXT, **source("b" * 64)})
    settle(serving)
    change(serving, embedding=source())
    settle(serving)
    assert serving.running() == []
    assert claims(serving) == before
    assert serving.condition("Ready")["status"] == "True"


def test_a_suspended_object_fetches_nothing(world: World) -> None:
    made = cluster_with(world, suspend=True, embedding=source())
    settle(made)
    assert made.running() == []
    assert claims(made) == []


def test_an_object_whose_source_becomes_http_serves_as_before_until_the_file_is_on_the_volume(world: World) -> None:
    made = cluster_with(world)
    change(made, embedding=source())
    settle(made)
    before = made.children["Deployment", "mem-embedder"]["spec"]["template"]
    assert not [volume for volume in before["spec"]["volumes"] if volume["name"] == "model"]
    made.finish("fetch")
    made.reconcile()
    assert [mounted(made)] == claims(made)


def test_a_claim_is_younger_than_any_job_that_filled_a_former_one(fetching: Cluster) -> None:
    (name,) = claims(fetching)
    fetching.finish("fetch")
    later = fetching.world.now + timedelta(seconds=1)
    fetching.children[CLAIM, name]["metadata"]["creationTimestamp"] = later.isoformat()
    fetching.reconcile()
    assert fetching.replicas("mem-embedder") is None


@pytest.mark.promise("model-download-bounded")
@pytest.mark.finding("M5")
@pytest.mark.parametrize(("size", "mebibytes"), [("300Mi", "300"), ("9Gi", "9216"), ("1Ti", "1048576")])
def test_a_fetched_file_is_limited_to_the_size_that_its_volume_asks_for(
    world: World, size: str, mebibytes: str
) -> None:
    """Not every volume plugin enforces it."""
    chosen = resource_source(world, size=size)
    (container,) = pod_spec(model_fetch.fetch_job(world.index(**GPU), world.images, 0, source=chosen))["containers"]
    command = container["command"]
    assert command[command.index("--max-mebibytes") + 1] == mebibytes
    assert model_fetch.claim(world.index(), chosen)["spec"]["resources"] == {"requests": {"storage": size}}


@pytest.mark.promise("embedder-calls-nobody")
def test_the_job_that_fetches_a_model_has_no_credentials(world: World) -> None:
    """Neither the connection URI nor a key is in a pod that may connect to other hosts."""
    index = world.index(**deep_update(GPU, {"embedder": {"apiKey": {"secretName": "key"}}}))
    job = model_fetch.fetch_job(index, world.images, 0, source=resource_source(world))
    assert [volume["name"] for volume in pod_spec(job)["volumes"]] == ["model"]


def test_the_job_that_fetches_a_model_runs_where_embedders_may_run_and_asks_for_no_gpu(world: World) -> None:
    """The first pod that mounts a volume can bind it to a node."""
    fetching = pod_spec(model_fetch.fetch_job(world.index(**GPU), world.images, 0, source=resource_source(world)))
    serving = pod_spec(embedder.deployment(world.index(**GPU), world.images, replicas=1))
    for field in ("nodeSelector", "tolerations"):
        assert fetching[field] == serving[field]
    assert fetching["containers"][0]["resources"]["limits"].keys() == {"memory"}


@pytest.mark.parametrize(
    "changed",
    [
        {"sha256": "b" * 64},
        {"volume": {"size": "1Gi"}},
        {"volume": {"storageClassName": "other"}},
        {"volume": {"accessModes": ["ReadWriteMany"]}},
    ],
)
def test_another_file_or_another_volume_is_another_claim(world: World, changed: dict[str, Any]) -> None:
    """Two files are never on one volume, and the specification of a claim cannot be changed."""
    other = world.index(**deep_update(GPU, {"embedding": {"source": {"http": changed}}}))
    names = {model_fetch.claim_name(one, one.fetched_source) for one in (world.index(**GPU), other)}
    assert len(names) == 2


ROUTE = model_fetch.FetchRoute("http://proxy.example:3128", (".home.example",), ("models.example", ".hf.co"))
TO_PROXY = {"ports": [{"port": 3128, "protocol": "TCP"}]}


@pytest.mark.parametrize(
    ("url", "fetches"),
    [
        ("https://models.example/m.gguf", True),
        ("https://cdn.hf.co/m.gguf", True),
        ("https://files.home.example/m.gguf", True),
        ("https://other.example/m.gguf", False),
        ("https://notmodels.example/m.gguf", False),
        ("http://169.254.169.254/m.gguf", False),
    ],
)
def test_only_hosts_that_the_installer_lists_are_fetched_from_through_the_proxy(
    world: World, url: str, fetches: bool
) -> None:
    """And those that bypass it, under the policy of addresses."""
    world.route = ROUTE
    fetching = cluster_with(world, embedding=source(url=url))
    assert (fetching.running() == ["fetch"]) is fetches
    if not fetches:
        found = fetching.condition("EmbedderReady")
        assert found["reason"] == "NotPermitted"
        assert "fetch.proxy.hosts" in found["message"]


def test_the_job_has_the_proxy_in_its_environment_and_its_hosts_in_its_command(world: World) -> None:
    """An author's variable of the same name, though permitted, does not replace it."""
    world.route = replace(ROUTE, ca_config_map="corporate-ca", ca_key="bundle.pem")
    pod_template = {"env": [{"name": "HTTPS_PROXY", "value": "http://evil.example"}]}
    index = world.index(embedding=source(), embedder={"podTemplate": pod_template})
    assert index.fetched_source is not None
    job = model_fetch.fetch_job(index, world.images, 0, source=index.fetched_source, route=world.route)
    pod = pod_spec(job)
    (container,) = pod["containers"]
    assert {one["name"]: one["value"] for one in container["env"]} == {
        "HTTPS_PROXY": "http://proxy.example:3128",
        "HTTP_PROXY": "http://proxy.example:3128",
        "NO_PROXY": ".home.example",
    }
    command = container["command"]
    assert [command[at + 1] for at, one in enumerate(command) if one == "--proxied-host"] == [
        "models.example",
        ".hf.co",
    ]
    assert command[command.index("--ca-file") + 1] == "/var/run/memory-index-fetch-ca/ca.crt"
    (bundle,) = [volume for volume in pod["volumes"] if volume["name"] == "ca"]
    assert bundle["configMap"] == {"name": "corporate-ca", "items": [{"key": "bundle.pem", "path": "ca.crt"}]}


def test_a_proxy_without_hosts_is_asked_for_nothing(world: World) -> None:
    """A download from a host that bypasses it could redirect anywhere."""
    index = world.index(embedding=source(url="https://files.home.example/m.gguf"))
    assert index.fetched_source is not None
    route = replace(ROUTE, proxied_hosts=())
    (container,) = pod_spec(model_fetch.fetch_job(index, world.images, 0, source=index.fetched_source, route=route))[
        "containers"
    ]
    assert "env" not in container


@pytest.mark.parametrize(
    ("proxy", "url", "rules"),
    [
        ("http://10.9.8.7:3128", URL, [{"to": [{"ipBlock": {"cidr": "10.9.8.7/32"}}], **TO_PROXY}]),
        ("http://[fd00::7]:3128", URL, [{"to": [{"ipBlock": {"cidr": "fd00::7/128"}}], **TO_PROXY}]),
        (
            "http://proxy.egress.svc:3128",
            URL,
            [{"to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "egress"}}}]}],
        ),
        ("http://proxy.example:3128", URL, [{"to": ELSEWHERE, **TO_PROXY}]),
        (
            "http://10.9.8.7:3128",
            "https://files.home.example:8443/m",
            [
                {"to": [{"ipBlock": {"cidr": "10.9.8.7/32"}}], **TO_PROXY},
                {"to": ELSEWHERE, "ports": [{"port": 8443, "protocol": "TCP"}]},
            ],
        ),
    ],
)
def test_the_job_may_connect_to_its_proxy_and_to_no_port_443_anywhere(
    world: World, proxy: str, url: str, rules: list[Any]
) -> None:
    index = world.index(embedding=source(url=url))
    assert index.fetched_source is not None
    _dns, *others = fetch_policy(index, index.fetched_source, replace(ROUTE, proxy=proxy))["spec"]["egress"]
    assert others == rules
