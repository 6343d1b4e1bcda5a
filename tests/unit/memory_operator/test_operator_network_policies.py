"""Who may call embedders and workers, and whom they may call."""

from typing import Any

import pytest

from memory_operator.api.embedder import PORT
from memory_operator.api.spec import MemoryIndex
from memory_operator.clients import object_facts
from memory_operator.reconcile.authorization.addresses import is_forbidden
from memory_operator.reconcile.facts import Credentials
from memory_operator.reconcile.plan import Apply, Plan
from memory_operator.resources import embedder, model_fetch, workers
from memory_operator.resources.drift import drifted
from memory_operator.resources.network_policies import (
    ELSEWHERE,
    WORKER_COMPONENTS,
    embedder_policy,
    fetch_policy,
    worker_policy,
)
from tests.unit.memory_operator.conftest import HOSTED, HOSTED_URL, Cluster, World
from tests.unit.memory_operator.test_operator_resources import BUILDERS

WORKERS = {
    "podSelector": {
        "matchLabels": {"app.kubernetes.io/instance": "mem", "app.kubernetes.io/managed-by": "memory-operator"},
        "matchExpressions": [
            {"key": "app.kubernetes.io/component", "operator": "In", "values": list(WORKER_COMPONENTS)}
        ],
    }
}
DNS = {"ports": [{"port": port, "protocol": protocol} for port in (53, 5353) for protocol in ("UDP", "TCP")]}
API = {"podSelector": {"matchLabels": {"app": "memory-server"}}}
URI = "postgresql://u:p@{}/app"


def callers(policy: Any, port: int) -> Any:
    """Who may call this port."""
    (peers,) = [rule["from"] for rule in policy["spec"]["ingress"] if rule["ports"][0]["port"] == port]
    return peers


@pytest.mark.promise("embedder-callers-named")
@pytest.mark.finding("M1")
def test_by_default_the_pods_of_the_objects_namespace_call_its_embedder(world: World) -> None:
    assert callers(embedder_policy(world.index()), PORT) == [{"podSelector": {}}]


@pytest.mark.promise("embedder-callers-named")
@pytest.mark.finding("M1")
@pytest.mark.parametrize(
    "allowed", [[], [API], [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"a": "b"}}}]]
)
def test_the_peers_that_are_named_replace_the_default_and_workers_keep_access(world: World, allowed: list[Any]) -> None:
    policy = embedder_policy(world.index(embedder={"allowFrom": allowed}))
    assert callers(policy, PORT) == [*allowed, WORKERS]


def test_a_peer_with_empty_fields_is_no_drift_for_ever(world: World) -> None:
    given = {
        "podSelector": {"matchLabels": {}, "matchExpressions": []},
        "namespaceSelector": {"matchLabels": {"a": "b"}},
    }
    peer, _ = callers(embedder_policy(world.index(embedder={"allowFrom": [given]})), PORT)
    assert peer == {"podSelector": {}, "namespaceSelector": {"matchLabels": {"a": "b"}}}


def test_the_operator_calls_embedders_from_its_own_namespace_alone(world: World) -> None:
    *_, operator = callers(embedder_policy(world.index(), operator_namespace="system"), PORT)
    assert operator == {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "system"}},
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "memory-operator"}},
    }


def test_scrapers_of_any_namespace_read_metrics_and_nothing_else(world: World) -> None:
    policy = embedder_policy(world.index(embedder={"allowFrom": []}))
    assert callers(policy, embedder.PROBE_PORT) == [{"namespaceSelector": {}}]
    (only,) = worker_policy(world.index(), (5432,))["spec"]["ingress"]
    assert [port["port"] for port in only["ports"]] == [workers.METRICS_PORT]


def fetched(world: World, url: str) -> MemoryIndex:
    return world.index(embedding={"source": {"http": {"url": url, "sha256": "a" * 64}}})


@pytest.mark.promise("embedder-calls-nobody")
@pytest.mark.finding("M5")
def test_the_embedder_calls_nobody_wherever_its_model_comes_from(world: World) -> None:
    assert embedder_policy(world.index())["spec"]["egress"] == []
    assert embedder_policy(fetched(world, "https://models.example/m.gguf"))["spec"]["egress"] == []


def elsewhere(port: int) -> dict[str, Any]:
    return {"to": ELSEWHERE, "ports": [{"port": port, "protocol": "TCP"}]}


HTTPS = elsewhere(443)
ANY_HTTPS = {"ports": [{"port": 443, "protocol": "TCP"}]}


@pytest.mark.finding("security L4")
def test_the_job_that_fetches_a_model_calls_no_metadata_service() -> None:
    blocks = [peer["ipBlock"] for peer in ELSEWHERE if "ipBlock" in peer]
    refused = [excepted for block in blocks for excepted in block["except"]]
    assert {block["cidr"] for block in blocks} == {"0.0.0.0/0", "::/0"}
    assert all(is_forbidden(network.partition("/")[0]) for network in refused)
    assert "169.254.0.0/16" in refused


@pytest.mark.parametrize(
    ("url", "rules"),
    [
        ("https://models.example/m.gguf", [HTTPS]),
        ("http://models.example/m.gguf", [HTTPS, elsewhere(80)]),
        (
            "https://models.example:8443/m.gguf",
            [HTTPS, elsewhere(8443)],
        ),
        (
            "http://files.ml.svc/m.gguf",
            [HTTPS, {"to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ml"}}}]}],
        ),
    ],
)
def test_the_job_that_fetches_a_model_calls_its_url_and_others_over_https_alone(
    world: World, url: str, rules: list[Any]
) -> None:
    index = fetched(world, url)
    assert index.fetched_source is not None
    policy = fetch_policy(index, index.fetched_source)
    dns, *others = policy["spec"]["egress"]
    assert dns == DNS
    assert others == rules
    assert policy["spec"]["ingress"] == []


def test_the_policy_of_the_job_that_fetches_a_model_selects_its_pods_and_no_others(world: World) -> None:
    index = fetched(world, "https://models.example/m.gguf")
    assert index.fetched_source is not None
    selected = fetch_policy(index, index.fetched_source)["spec"]["podSelector"]["matchLabels"].items()
    job = model_fetch.fetch_job(index, world.images, 0, source=index.fetched_source)
    serving = embedder.deployment(index, world.images, replicas=1)
    found = [selected <= one["spec"]["template"]["metadata"]["labels"].items() for one in (job, serving)]
    assert found == [True, False]


def to_embedder(world: World, **spec: Any) -> Any:
    """The last egress rule of the workers, after those for DNS and the database."""
    dns, database, rule = worker_policy(world.index(**spec), (5432,))["spec"]["egress"]
    assert dns == DNS
    assert database == {"ports": [{"port": 5432, "protocol": "TCP"}]}
    return rule


def test_workers_call_both_embedders_of_their_object(world: World) -> None:
    rule = to_embedder(world)
    assert rule["to"][0]["podSelector"]["matchExpressions"][0]["values"] == ["embedder", "embedder-next"]
    assert rule["ports"] == [{"port": 8080, "protocol": "TCP"}]


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("http://e.ml.svc:80", {"to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ml"}}}]}),
        (
            "http://e.ml.svc.cluster.local:80",
            {"to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ml"}}}]},
        ),
        ("https://embed.example", {"ports": [{"port": 443, "protocol": "TCP"}]}),
        ("http://embed.example", {"ports": [{"port": 80, "protocol": "TCP"}]}),
        ("https://embed.example:8443", {"ports": [{"port": 8443, "protocol": "TCP"}]}),
    ],
)
def test_workers_call_an_external_embedder_by_its_namespace_or_else_by_its_port(
    world: World, url: str, rule: Any
) -> None:
    assert to_embedder(world, embedder={"external": {"url": url}}) == rule


def test_workers_call_an_embedder_beyond_the_cluster_over_https(world: World) -> None:
    """A swap between it and one of our own needs both, in either direction."""
    assert to_embedder(world, **HOSTED) == ANY_HTTPS
    *_, own, hosted = worker_policy(world.index(**HOSTED), (5432,), own_pods=True)["spec"]["egress"]
    assert (own["ports"], hosted) == ([{"port": 8080, "protocol": "TCP"}], ANY_HTTPS)
    *_, own, hosted = worker_policy(world.index(), (5432,), former=HOSTED_URL)["spec"]["egress"]
    assert (own["ports"], hosted) == ([{"port": 8080, "protocol": "TCP"}], ANY_HTTPS)


@pytest.mark.parametrize(
    ("servers", "ports"),
    [
        ("pg", (5432,)),
        ("pg:6432", (6432,)),
        ("a:5433,b:5434", (5433, 5434)),
        ("[::1]:6000", (6000,)),
        ("[::1]", (5432,)),
    ],
)
def test_the_ports_of_the_database_are_those_of_the_connection_uri(servers: str, ports: tuple[int, ...]) -> None:
    found = object_facts.credentials(URI.format(servers), "team/dsn", "uri")
    assert found == Credentials("app", ports, "u")


@pytest.mark.promise("worker-egress-limited")
@pytest.mark.finding("M4")
def test_workers_call_the_port_of_the_connection_uri_beside_that_of_postgres(world: World) -> None:
    _, database, _ = worker_policy(world.index(), (6432,))["spec"]["egress"]
    assert [port["port"] for port in database["ports"]] == [5432, 6432]


@pytest.mark.promise("worker-egress-limited")
@pytest.mark.finding("M4")
def test_every_worker_that_the_operator_starts_is_selected(world: World) -> None:
    built = [
        BUILDERS[name](world)
        for name in ("migrate-job", "index-job", "backfill-job", "graph-job", "uninstall-job", "sync-deployment")
    ]
    built += [
        workers.swap_job(world.index(), world.images, 0, active="m", dimensions=384),
        workers.swap_abort_job(world.index(), world.images, 0),
    ]
    labels = [item["spec"]["template"]["metadata"]["labels"] for item in built]
    assert {one["app.kubernetes.io/component"] for one in labels} == set(WORKER_COMPONENTS)
    assert all(WORKERS["podSelector"]["matchLabels"].items() <= one.items() for one in labels)


def kinds(plan: Plan) -> list[tuple[str, str]]:
    return [(a.manifest["kind"], a.manifest["metadata"]["name"]) for a in plan.actions if isinstance(a, Apply)]


@pytest.mark.finding("M4")
def test_no_pod_is_started_before_its_policy(cluster: Cluster) -> None:
    order: list[tuple[str, str]] = []
    cluster.reconcile()
    cluster.change(extension_version="0.8.7")
    for advance in (lambda: None, cluster.migrate, cluster.embed):
        order += kinds(cluster.reconcile())
        advance()
    names = [name for kind, name in order if kind != "Database"]
    assert names.index("mem-workers") < next(i for i, (kind, _) in enumerate(order) if kind == "Job")
    embedders = [kind for kind, name in order if name == "mem-embedder"]
    assert embedders.index("NetworkPolicy") < embedders.index("Deployment")


def test_a_policy_that_somebody_opened_is_put_back(cluster: Cluster) -> None:
    cluster.until_ready()
    key = ("NetworkPolicy", "mem-workers")
    opened = {**cluster.children[key], "spec": {**cluster.children[key]["spec"], "egress": [{}]}}
    wanted, cluster.children[key] = cluster.children[key], opened
    cluster.reconcile()
    assert not drifted(wanted, cluster.children[key])
    assert cluster.children[key] == wanted
