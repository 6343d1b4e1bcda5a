"""What an author adds to the pods of embedder and workers, and that what the operator sets itself wins."""

from typing import Any

import pytest

from memory_operator.api.spec import MemoryIndex
from memory_operator.clients import object_facts
from memory_operator.resources import embedder, model_fetch, workers
from memory_operator.resources.network_policies import WORKER_COMPONENTS
from memory_operator.resources.worker_pods import ConfiguredEmbedder, configured_embedder, destinations
from tests.unit.memory_operator.conftest import World

AFFINITY = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
DEDICATED = {"key": "dedicated", "operator": "Equal", "value": "memory", "effect": "NoSchedule"}
GPU = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
SOURCE = {"http": {"url": "https://models.example/m.gguf", "sha256": "a" * 64, "volume": {"size": "1Gi"}}}
SPREAD = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
GIVEN = {
    "labels": {"team": "memory"},
    "annotations": {"linkerd.io/inject": "disabled"},
    "nodeSelector": {"kubernetes.io/arch": "amd64"},
    "tolerations": [DEDICATED],
    "priorityClassName": "home",
    "affinity": AFFINITY,
    "topologySpreadConstraints": [SPREAD],
    "imagePullSecrets": [{"name": "registry"}],
    "env": [{"name": "OMP_WAIT_POLICY", "value": "PASSIVE"}],
}


WORKERS = (
    workers.migrate_job,
    workers.index_job,
    workers.backfill_job,
    workers.uninstall_job,
    workers.graph_job,
    workers.swap_abort_job,
)


def templates(world: World, own: dict[str, Any] | None = None, /, **template: Any) -> dict[str, Any]:
    """The pod templates of the embedder, of the Job that fetches its model, and of all workers.

    `own` are the embedder's own fields.
    """
    index = world.index(embedder={"podTemplate": template, **(own or {})}, embedding={"source": SOURCE})
    source = index.fetched_source
    assert source
    made = [
        embedder.deployment(index, world.images, replicas=1),
        embedder.deployment(index, world.images, replicas=1, component=embedder.NEXT_COMPONENT),
        model_fetch.fetch_job(index, world.images, 0, source=source),
        workers.sync_deployment(index, world.images, replicas=1),
        workers.swap_job(index, world.images, 0, active="m", dimensions=384),
        *(build(index, world.images, 0) for build in WORKERS),
    ]
    return {item["metadata"]["labels"]["app.kubernetes.io/component"]: item["spec"]["template"] for item in made}


@pytest.mark.finding("operator F5")
def test_every_pod_has_what_its_author_adds(world: World) -> None:
    made = templates(world, **GIVEN)
    assert made.keys() == {"embedder", "embedder-next", "fetch", *WORKER_COMPONENTS}
    for name, template in made.items():
        pod, labels = template["spec"], template["metadata"]["labels"]
        (container,) = pod["containers"]
        assert labels["team"] == "memory", name
        assert (pod["affinity"], pod["imagePullSecrets"]) == (AFFINITY, [{"name": "registry"}]), name
        assert {"name": "OMP_WAIT_POLICY", "value": "PASSIVE"} in container["env"], name
        assert template["metadata"]["annotations"]["linkerd.io/inject"] == "disabled", name
        assert pod["nodeSelector"] == {"kubernetes.io/arch": "amd64"}, name
        assert (pod["tolerations"], pod["priorityClassName"]) == ([DEDICATED], "home"), name


@pytest.mark.finding("operator F5")
def test_what_is_said_of_the_embedder_alone_reaches_no_worker_and_wins_for_its_own_pods(world: World) -> None:
    own = {
        "nodeSelector": {"gpu": "yes"},
        "tolerations": [GPU],
        "priorityClassName": "gpu",
        "podAnnotations": {"a": "b"},
    }
    made = templates(world, own, **{**GIVEN, "annotations": {"a": "c"}})
    for component in WORKER_COMPONENTS:
        pod = made[component]["spec"]
        assert (pod["nodeSelector"], pod["tolerations"]) == ({"kubernetes.io/arch": "amd64"}, [DEDICATED])
        assert (pod["priorityClassName"], made[component]["metadata"]["annotations"]["a"]) == ("home", "c")
    for component in ("embedder", "embedder-next", "fetch"):
        pod = made[component]["spec"]
        assert pod["nodeSelector"] == {"kubernetes.io/arch": "amd64", "gpu": "yes"}
        assert (pod["tolerations"], pod["priorityClassName"]) == ([GPU, DEDICATED], "gpu")
    assert made["embedder"]["metadata"]["annotations"]["a"] == "b"


@pytest.mark.parametrize(
    ("component", "said", "named", "unnamed"),
    [
        ("migrate", "1 node(s) had untolerated taint(s)", "spec.embedder.podTemplate", "spec.embedder.tolerations"),
        (
            "sync",
            "1 node(s) had untolerated taint(s)",
            "tolerations or affinity of spec.embedder.podTemplate",
            "backfill",
        ),
        ("backfill", "Insufficient memory", "spec.backfill.resources", "spec.embedder.resources"),
        ("embedder", "Insufficient nvidia.com/gpu", "spec.embedder.resources", "spec.backfill"),
        ("fetch", "1 node(s) had untolerated taint(s)", "spec.embedder.nodeSelector", "resources"),
        ("fetch", "pod has unbound immediate PersistentVolumeClaims", "storage class of spec.embedding", "toleration"),
    ],
)
@pytest.mark.finding("operator F5")
def test_a_pod_without_a_node_names_the_fields_that_apply_to_it(
    component: str, said: str, named: str, unnamed: str
) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}
    labels = {"app.kubernetes.io/component": component}
    pod = {"metadata": {"namespace": "a", "name": "p", "labels": labels}, "status": {"conditions": [condition]}}
    problem = object_facts.pod_facts(pod).problem
    assert problem is not None
    assert named in problem.remedy
    assert unnamed not in problem.remedy


@pytest.mark.finding("operator F6")
def test_pods_that_are_not_ready_never_keep_a_node_from_being_drained(world: World) -> None:
    budget = embedder.disruption_budget(world.index(embedder={"maxReplicas": 2}))
    assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    assert budget["spec"]["maxUnavailable"] == 1, "a single pod may always be evicted"


def test_without_a_template_no_field_is_added(world: World) -> None:
    fields = {"affinity", "topologySpreadConstraints", "imagePullSecrets", "tolerations", "nodeSelector"}
    for template in templates(world).values():
        assert not {*fields, "priorityClassName"} & template["spec"].keys()


def test_a_spread_constraint_without_labels_counts_the_pods_of_its_component(world: World) -> None:
    chosen = {**SPREAD, "labelSelector": {"matchLabels": {"a": "b"}}}
    for template in templates(world, topologySpreadConstraints=[SPREAD, chosen]).values():
        first, second = template["spec"]["topologySpreadConstraints"]
        assert first["labelSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
        assert "app.kubernetes.io/component" in first["labelSelector"]["matchLabels"]
        assert second == chosen


def test_labels_of_the_operator_win(world: World) -> None:
    """Its selectors, Services and policies depend on them."""
    own = [template["metadata"]["labels"] for template in templates(world).values()]
    given = {name: "other" for labels in own for name in labels}
    for before, template in zip(own, templates(world, labels=given).values(), strict=True):
        assert before.items() <= template["metadata"]["labels"].items()


def test_variables_of_the_operator_win(world: World) -> None:
    given = [{"name": "MEMORY_TABLE", "value": "other"}, {"name": "MEMORY_EMBEDDER_URL", "value": "http://evil"}]
    index = world.index(embedder={"podTemplate": {"env": given}})
    (container,) = workers.sync_deployment(index, world.images, replicas=1)["spec"]["template"]["spec"]["containers"]
    values = [(item["name"], item["value"]) for item in container["env"]]
    assert ("MEMORY_TABLE", "memories") in values
    assert len({name for name, _ in values}) == len(values)
    assert not {"other", "http://evil"} & {value for _, value in values}


@pytest.mark.parametrize("name", GIVEN)
def test_a_change_of_the_template_replaces_a_job_that_cannot_run(world: World, name: str) -> None:
    def config(index: MemoryIndex) -> str:
        return workers.config_fingerprint(index, world.images, "backfill")

    assert config(world.index(embedder={"podTemplate": {name: GIVEN[name]}})) != config(world.index())


REFERENCE = "$(MEMORY_DATABASE_URL_FILE)"


@pytest.mark.finding("security L10")
def test_kubernetes_expands_no_reference_in_what_an_author_writes(world: World) -> None:
    """A path and a host are checked as they are written, and `$$` is how Kubernetes is told to leave a `$` alone."""
    gate = {"pvc": {"claimName": "c", "path": f"{REFERENCE}/q.jsonl"}}
    url = f"http://{REFERENCE}.ml.svc:8080"
    prefixes = {"queryPrefix": REFERENCE, "documentPrefix": REFERENCE}
    index = world.index(embedding=prefixes, swap={"gate": gate}, database={"table": REFERENCE})
    external = world.index(embedder={"external": {"url": url}})
    swap = workers.swap_job(index, world.images, 0, active="all-MiniLM-L6-v2", dimensions=384)
    sync = workers.sync_deployment(external, world.images, replicas=1)
    made = [swap, sync, embedder.deployment(index, world.images, replicas=1)]
    for container in (item["spec"]["template"]["spec"]["containers"][0] for item in made):
        texts = [*container["command"], *(one["value"] for one in container.get("env", ()))]
        assert not [text for text in texts if "$" in text.replace("$$", "")]
    assert configured_embedder(sync) == ConfiguredEmbedder(url)
    assert destinations(sync["spec"]["template"]) == {ConfiguredEmbedder(url)}
