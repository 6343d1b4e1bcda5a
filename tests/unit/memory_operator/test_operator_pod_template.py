"""What an author adds to the pods of embedder and workers, and that what the operator sets itself wins."""

from typing import Any

import pytest

from memory_operator.api.spec import MemoryIndex
from memory_operator.resources import embedder, workers
from memory_operator.resources.worker_pods import ConfiguredEmbedder, configured_embedder, destinations
from tests.unit.memory_operator.conftest import World

AFFINITY = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
SPREAD = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
GIVEN = {
    "labels": {"team": "memory"},
    "affinity": AFFINITY,
    "topologySpreadConstraints": [SPREAD],
    "imagePullSecrets": [{"name": "registry"}],
    "env": [{"name": "OMP_WAIT_POLICY", "value": "PASSIVE"}],
}


def templates(world: World, **template: Any) -> dict[str, Any]:
    """The pod templates of the embedder and of all workers."""
    index = world.index(embedder={"podTemplate": template})
    made = [
        embedder.deployment(index, world.images, replicas=1),
        workers.sync_deployment(index, world.images, replicas=1),
        workers.swap_job(index, world.images, 0, active="m", dimensions=384),
        *(build(index, world.images, 0) for build in (workers.migrate_job, workers.index_job, workers.backfill_job)),
    ]
    return {item["metadata"]["name"]: item["spec"]["template"] for item in made}


def test_every_pod_has_what_its_author_adds(world: World) -> None:
    for name, template in templates(world, **GIVEN).items():
        pod, labels = template["spec"], template["metadata"]["labels"]
        (container,) = pod["containers"]
        assert labels["team"] == "memory", name
        assert (pod["affinity"], pod["imagePullSecrets"]) == (AFFINITY, [{"name": "registry"}]), name
        assert {"name": "OMP_WAIT_POLICY", "value": "PASSIVE"} in container["env"], name


def test_without_a_template_no_field_is_added(world: World) -> None:
    for template in templates(world).values():
        assert not {"affinity", "topologySpreadConstraints", "imagePullSecrets"} & template["spec"].keys()


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
    assert destinations(sync["spec"]["template"]) == {url}
