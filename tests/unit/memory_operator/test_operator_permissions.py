"""What an author may choose beyond its own namespace is what the chart lists, and nothing by default."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from memory_operator.api.reasons import Reason
from memory_operator.api.spec import FINALIZER
from memory_operator.reconcile.authorization.permissions import Permitted, check_permissions, permitted_part
from memory_operator.reconcile.plan import Apply
from memory_operator.settings import Settings
from tests.unit.memory_operator.conftest import ENABLED_GRAPH, Cluster, World, deep_update

NOTHING = Permitted()
SOURCE = {"image": {"path": "/m.gguf", "digest": "sha256:" + "a" * 64}}
CHOICES: list[tuple[dict[str, Any], str, str, Permitted]] = [
    (
        {"embedder": {"image": "registry.example/emb:2"}},
        "spec.embedder.image is registry.example/emb:2", "permitted.imagePrefixes",
        Permitted(image_prefixes=("registry.example/",)),
    ),
    (
        {"embedding": {"source": {"image": {**SOURCE["image"], "reference": "registry.example/models:2"}}}},
        "spec.embedding.source.image.reference", "permitted.imagePrefixes",
        Permitted(image_prefixes=("registry.example/models",)),
    ),
    (
        {"embedder": {"priorityClassName": "system-node-critical"}},
        "system-node-critical", "permitted.priorityClasses", Permitted(priority_classes=("system-node-critical",)),
    ),
    (
        {"embedder": {"runtimeClassName": "nvidia"}},
        "spec.embedder.runtimeClassName is nvidia", "permitted.runtimeClasses", Permitted(runtime_classes=("nvidia",)),
    ),
    (
        {"embedder": {"podAnnotations": {"k8s.v1.cni.cncf.io/networks": "host"}}},
        "k8s.v1.cni.cncf.io/networks", "permitted.podAnnotationPrefixes",
        Permitted(pod_annotation_prefixes=("k8s.v1.cni.cncf.io/",)),
    ),
    (
        {"embedder": {"podTemplate": {"annotations": {"k8s.v1.cni.cncf.io/networks": "host"}}}},
        "spec.embedder.podTemplate.annotations", "permitted.podAnnotationPrefixes",
        Permitted(pod_annotation_prefixes=("k8s.v1.cni.cncf.io/",)),
    ),
    (
        {"embedder": {"podTemplate": {"priorityClassName": "system-node-critical"}}},
        "spec.embedder.podTemplate.priorityClassName", "permitted.priorityClasses",
        Permitted(priority_classes=("system-node-critical",)),
    ),
    (
        {"embedder": {"podTemplate": {"labels": {"access/payroll": "yes"}}}},
        "access/payroll", "permitted.podLabelPrefixes", Permitted(pod_label_prefixes=("access/",)),
    ),
    (
        {"embedder": {"podTemplate": {"env": [{"name": "HTTPS_PROXY", "value": "http://evil.example"}]}}},
        "HTTPS_PROXY", "permitted.environmentVariables", Permitted(environment_variables=("HTTPS_PROXY",)),
    ),
    (
        {"embedder": {"external": {"url": "https://embed.example:8443"}}, "embedding": {"queryEgress": "Allowed"}},
        "embed.example", "permitted.externalHosts", Permitted(external_hosts=("embed.example",)),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "named", "value", "permitted"), CHOICES)
def test_a_choice_is_refused_until_the_chart_lists_it(
    world: World, spec: dict[str, Any], named: str, value: str, permitted: Permitted
) -> None:
    index = world.index(**spec)
    verdict = check_permissions(index, NOTHING)
    assert verdict is not None
    assert named in verdict.text
    assert value in verdict.text
    assert check_permissions(index, permitted) is None


@pytest.mark.promise("pod-fields-by-permission")
@pytest.mark.finding("M6")
@pytest.mark.parametrize(("spec", "named", "value", "permitted"), CHOICES)
def test_a_refused_choice_stalls_and_nothing_is_written(
    world: World, spec: dict[str, Any], named: str, value: str, permitted: Permitted
) -> None:
    world.permitted = NOTHING
    plan = world.decide(world.index(**spec))
    assert plan.actions == ()
    assert plan.status is not None
    ready = next(c for c in plan.status["conditions"] if c["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "NotPermitted")


@pytest.mark.finding("M6")
@pytest.mark.parametrize(
    ("image", "prefix"),
    [
        ("registry.example.evil.com/x", "registry.example"),
        ("registry.example:5000/x", "registry.example"),
        ("registry.example/teams/x", "registry.example/team"),
        ("docker.io/registry.example/x", "registry.example"),
    ],
)
def test_a_prefix_ends_where_a_part_of_the_images_name_ends(world: World, image: str, prefix: str) -> None:
    index = world.index(embedder={"image": image})
    assert check_permissions(index, Permitted(image_prefixes=(prefix,))) is not None


@pytest.mark.parametrize(
    "image", ["registry.example/team/x", "registry.example/team:1", "registry.example/team@sha256:a"]
)
def test_a_prefix_permits_what_is_below_it(world: World, image: str) -> None:
    index = world.index(embedder={"image": image})
    assert check_permissions(index, Permitted(image_prefixes=("registry.example/team",))) is None


@pytest.mark.parametrize(
    "spec", [lambda own: {"embedder": {"image": own}}, lambda own: {"embedding": {"source": {"image": {
        **SOURCE["image"], "reference": own}}}}], ids=["embedder", "model"],
)  # fmt: skip
def test_an_object_that_names_the_operators_own_image_is_refused_at_once_and_not_by_an_upgrade(
    world: World, spec: Callable[[str], dict[str, Any]]
) -> None:
    """The next version's own image is another one, so that the named one would need a permission then."""
    index = world.index(**spec(world.images.embedder))
    verdict = check_permissions(index, NOTHING)
    assert verdict is not None
    assert verdict.reason is Reason.NOT_PERMITTED
    assert check_permissions(index, Permitted(image_prefixes=(world.images.embedder,))) is None


def test_the_remedy_for_the_embedders_image_is_to_leave_it_out(world: World) -> None:
    verdict = check_permissions(world.index(embedder={"image": world.images.embedder}), NOTHING)
    assert verdict is not None
    assert "Leave it out for the chart's own image" in verdict.text


@pytest.mark.finding("H4")
@pytest.mark.parametrize(
    ("url", "permitted"),
    [
        ("http://emb.team.svc:8080", True),
        ("http://emb.team.svc.cluster.local:8080", True),
        ("http://emb.other.svc:8080", False),
        ("http://emb.team.svc.evil.com", False),
        ("http://team.svc", False),
        ("http://emb:8080", False),
        ("http://169.254.169.254", False),
        ("https://below.listed.example", True),
        ("https://BELOW.listed.example", True),
        ("https://listed.example", False),
        ("https://unlisted.example", False),
    ],
)
def test_texts_go_to_hosts_of_the_own_namespace_and_to_listed_ones(world: World, url: str, permitted: bool) -> None:
    index = world.index(embedder={"external": {"url": url}}, embedding={"queryEgress": "Allowed"})
    verdict = check_permissions(index, Permitted(external_hosts=(".listed.example",)))
    assert (verdict is None) == permitted


@pytest.mark.promise("hosted-provider-by-consent")
@pytest.mark.finding("security S13")
@pytest.mark.parametrize(
    ("url", "api", "egress", "fine"),
    [
        ("https://embed.example", "OpenAI", "Denied", False),
        ("https://embed.example", "MemoryIndex", "Denied", False),
        ("http://embed.example", "OpenAI", "Allowed", False),
        ("https://embed.example", "OpenAI", "Allowed", True),
        ("https://203.0.113.9", "OpenAI", "Denied", False),
        ("http://emb.team.svc:8080", "OpenAI", "Denied", True),
        ("http://192.168.1.7:8080", "TEI", "Denied", True),
        ("http://emb.team.svc:8080", "Cohere", "Denied", False),
        ("http://emb.team.svc:8080", "Voyage", "Denied", False),
        ("http://emb.team.svc:8080", "Cohere", "Allowed", True),
    ],
)
def test_texts_leave_the_cluster_with_consent_and_encrypted_or_not_at_all(
    world: World, url: str, api: str, egress: str, fine: bool
) -> None:
    """That the installer permits the host is not enough, and a hosted provider is one behind a gateway, too."""
    hosts = Permitted(external_hosts=("embed.example", "203.0.113.9", "192.168.1.7"))
    index = world.index(embedder={"external": {"url": url, "api": api}}, embedding={"queryEgress": egress})
    verdict = check_permissions(index, hosts)
    assert (verdict is None) == fine
    assert verdict is None or verdict.reason is Reason.INVALID_SPEC


@pytest.mark.promise("key-encrypted-or-unsent")
@pytest.mark.finding("H4")
@pytest.mark.parametrize(
    ("url", "fine"), [("http://e", False), ("https://e", True), ("http://emb.team.svc:8080", True)]
)
def test_a_key_leaves_the_cluster_encrypted_or_not_at_all(world: World, url: str, fine: bool) -> None:
    index = world.index(embedder={"external": {"url": url, "apiKey": {"secretName": "key"}}})
    assert (check_permissions(index, world.permitted) is None) == fine


def test_the_chart_hands_the_lists_over_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings().permitted == NOTHING
    monkeypatch.setenv("MEMORY_OPERATOR_PERMITTED", '{"runtime_classes": ["nvidia"], "external_hosts": []}')
    assert Settings().permitted == Permitted(runtime_classes=("nvidia",))


CHOSEN = (
    "emb:2", "models:2", "system-node-critical", "nvidia", "k8s.v1.cni.cncf.io", "k8s.v1.cni.cncf.io",
    "system-node-critical", "access/payroll", "HTTPS_PROXY", "embed.example",
)  # fmt: skip
POLICIES = {"deletionPolicy": "Delete"}, {"graph": {"enabled": True}}


@pytest.mark.promise("pod-fields-by-permission")
@pytest.mark.finding("security S5")
@pytest.mark.parametrize("policy", POLICIES, ids=["undone", "graph"])
@pytest.mark.parametrize(
    ("spec", "chosen"), [(choice[0], chosen) for choice, chosen in zip(CHOICES, CHOSEN, strict=True)]
)
def test_nothing_that_is_made_for_a_deletion_contains_a_choice_that_is_not_permitted(
    world: World, spec: dict[str, Any], chosen: str, policy: dict[str, Any]
) -> None:
    """The choice came after the object was ready, so that it was refused, and the object is deleted then."""
    manifest = world.manifest(**policy)
    manifest["status"] = {}
    cluster = Cluster(world, manifest)
    cluster.until_ready()
    cluster.change(graph=ENABLED_GRAPH)
    made: list[str] = []
    cluster.children = {key: item for key, item in cluster.children.items() if key[0] != "NetworkPolicy"}
    world.permitted = NOTHING
    cluster.manifest["spec"] = deep_update(cluster.manifest["spec"], spec)
    cluster.reconcile()
    cluster.delete(FINALIZER)
    for _ in range(6):
        plan = cluster.reconcile()
        made += [json.dumps(action.manifest) for action in plan.actions if isinstance(action, Apply)]
    assert any('"Job"' in one for one in made)
    assert not any(chosen in one for one in made)


@pytest.mark.finding("security S5")
@pytest.mark.parametrize("spec", [choice[0] for choice in CHOICES])
def test_what_is_left_of_a_specification_is_permitted(world: World, spec: dict[str, Any]) -> None:
    index = world.index(**spec)
    assert check_permissions(index, NOTHING)
    assert check_permissions(permitted_part(index, NOTHING), NOTHING) is None
