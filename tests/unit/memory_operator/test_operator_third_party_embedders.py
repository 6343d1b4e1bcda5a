"""A third-party external embedder: what workers are told about it, before, during and after a swap."""

from dataclasses import replace
from typing import Any

import pytest

from memory_operator.api.spec import Manifest
from memory_operator.reconcile.authorization.permissions import Permitted
from memory_operator.reconcile.facts import ReportedModel
from memory_operator.resources.common import own_container
from memory_operator.resources.embedder import embedder_options
from memory_operator.resources.worker_pods import ConfiguredEmbedder, configured_embedder
from memory_recall.embedding.apis import OWN_OPTIONS, EmbedderApi, EmbedderOptions
from tests.unit.memory_operator.conftest import FULL, MODEL, NEXT_MODEL, Cluster, World, condition
from tests.unit.memory_operator.test_operator_swap_embedders import job
from tests.unit.memory_operator.test_operator_swap_external import change, flip, own, reconciled, settled

pytestmark = pytest.mark.finding("mission 4.3")

FORMER, OTHER = "http://a.one.svc:9000", "https://b.example:8443"
LLAMA: Manifest = {"url": FORMER, "api": "OpenAI", "model": "BAAI/mini"}
LITELLM: Manifest = {"url": OTHER, "api": "Cohere", "model": "embed-v4"}
OF_LLAMA = {
    "MEMORY_EMBEDDER_URL": FORMER, "MEMORY_EMBEDDER_API": "OpenAI", "MEMORY_EMBEDDER_SERVED_AS": "BAAI/mini",
}  # fmt: skip


def environment(cluster: Cluster) -> dict[str, str]:
    """What the sync worker is told about embedders and their permission."""
    pod = cluster.children["Deployment", "mem-sync"]["spec"]["template"]["spec"]
    return told({item["name"]: item["value"] for item in own_container(pod)["env"]})


def told(values: dict[str, str]) -> dict[str, str]:
    names = {"MEMORY_EMBEDDER_URL", "MEMORY_EMBEDDER_API", "MEMORY_EMBEDDER_SERVED_AS"}
    return {name: value for name, value in values.items() if name in names | {"MEMORY_QUERY_EGRESS"}}


def test_workers_are_told_the_api_and_the_name(world: World) -> None:
    cluster = settled(world, {"external": LLAMA}, FORMER)
    assert environment(cluster) == OF_LLAMA, "no permission to leave the cluster, which is not needed"


@pytest.mark.finding("security S13")
def test_workers_may_send_texts_beyond_the_cluster_only_where_the_embedder_is_there(world: World) -> None:
    world.permitted = Permitted(external_hosts=("b.example",))
    cluster = settled(world, {"external": LITELLM}, OTHER)
    assert environment(cluster)["MEMORY_QUERY_EGRESS"] == "allowed"
    gateway = settled(world, {"external": {**LITELLM, "url": FORMER}}, FORMER)
    assert environment(gateway)["MEMORY_QUERY_EGRESS"] == "allowed", "a gateway sends them on"
    change(cluster, {"external": LITELLM}, embedding={"queryEgress": "Denied"})
    reconciled(cluster)
    ready = cluster.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "InvalidSpec"), ready
    assert "queryEgress" in ready["message"]


@pytest.mark.parametrize(
    "options",
    [
        OWN_OPTIONS,
        EmbedderOptions(EmbedderApi.OPENAI, "org/m"),
        EmbedderOptions(EmbedderApi.TEI, None, "ask $(HOME): ", "say: "),
        EmbedderOptions(EmbedderApi.COHERE, "embed-v4"),
    ],
)
def test_the_deployment_of_the_sync_worker_keeps_how_its_embedder_is_asked(
    world: World, options: EmbedderOptions
) -> None:
    """From it the operator learns how to ask a former embedder; a dollar sign is taken literally."""
    external: dict[str, Any] = {"url": FORMER, "api": options.api.value, "model": options.served_as}
    prefixes = {"queryPrefix": options.query_prefix, "documentPrefix": options.document_prefix}
    egress = {"queryEgress": "Allowed"} if options.api is EmbedderApi.COHERE else {}
    world.permitted = Permitted(external_hosts=("a.one.svc",))
    cluster = Cluster(world, world.manifest(embedder={"external": external}, embedding={**prefixes, **egress}))
    assert embedder_options(cluster.index) == options
    cluster.database = replace(FULL, active_model=MODEL)
    reconciled(cluster, 5)
    found = configured_embedder(cluster.children["Deployment", "mem-sync"])
    assert found == ConfiguredEmbedder(FORMER, None, options)


@pytest.mark.parametrize(
    ("api", "embedding", "noted"),
    [
        ("OpenAI", {"model": "e5-large-de"}, True),
        ("TEI", {"model": "e5-large-de"}, True),
        ("OpenAI", {"model": "e5-large-de", "queryPrefix": ""}, False),
        ("OpenAI", {"model": "e5-large-de", "documentPrefix": "passage: "}, False),
        ("OpenAI", {"model": "multilingual-e5-small"}, False),
        ("Voyage", {"model": "voyage-3.5", "queryEgress": "Allowed"}, False),
    ],
)
def test_an_external_model_whose_prefixes_nobody_knows_is_noted_in_embedder_ready(
    world: World, api: str, embedding: dict[str, Any], noted: bool
) -> None:
    index = world.index(embedding=embedding, embedder={"external": {"url": "http://e.ml.svc:8080", "api": api}})
    active = replace(MODEL, name=index.spec.embedding.model)
    facts = {"database": replace(FULL, active_model=active), "external": ReportedModel("e")}
    found = condition(world.decide(index, **facts), "EmbedderReady")
    assert found["status"] == "True"
    assert ("No prefix is put before its texts" in found["message"]) is noted


@pytest.mark.parametrize("value", ["Ollama", "7.5", ""])
def test_an_edited_deployment_that_cannot_be_read_names_an_embedder_of_ours(world: World, value: str) -> None:
    cluster = settled(world, {"external": LLAMA}, FORMER)
    sync = cluster.children["Deployment", "mem-sync"]
    for item in own_container(sync["spec"]["template"]["spec"])["env"]:
        if item["name"] == "MEMORY_EMBEDDER_API":
            item["value"] = value
    found = configured_embedder(sync)
    assert found is not None
    assert found.options.api is EmbedderApi.MEMORY_INDEX


def test_a_swap_asks_each_embedder_by_its_own_api_and_workers_change_with_the_flip(world: World) -> None:
    cluster = settled(world, {"external": LLAMA}, FORMER)
    change(cluster, {"external": LITELLM})
    command, values, _ = job(cluster)
    assert told(values) == OF_LLAMA | {"MEMORY_QUERY_EGRESS": "allowed"}
    asked = ("--api=", "--served-as=", "--query-prefix=", "--document-prefix=", "--dimensions=")
    given = [part for part in command if part.startswith(asked)]
    assert given == ["--api=Cohere", "--served-as=embed-v4", "--dimensions=384"]
    reconciled(cluster)
    assert environment(cluster) == OF_LLAMA, "until the flip the sync worker stays as it is"
    flip(cluster, OTHER)
    reconciled(cluster)
    cluster.change(active_model=NEXT_MODEL)
    reconciled(cluster)
    assert environment(cluster)["MEMORY_EMBEDDER_API"] == "Cohere"
    assert cluster.condition("ModelActive")["status"] == "True", "no address of such an embedder is recorded"


def test_a_swap_from_a_third_party_embedder_to_an_embedder_of_ours_gives_the_next_one_no_options(world: World) -> None:
    cluster = settled(world, {"external": LLAMA}, FORMER)
    change(cluster, own())
    cluster.reconcile()
    command, values, _ = job(cluster)
    assert told(values) == OF_LLAMA
    assert not [part for part in command if part.startswith(("--api=", "--served-as"))]
