"""Which hosts workers may give the embedder's API key to, where the operator runs the embedder."""

from pathlib import Path
from typing import Any

import pytest

from memory_operator.api.spec import Manifest
from memory_operator.resources import workers
from memory_operator.resources.worker_pods import configured_embedder
from memory_recall.embedding import external_client
from memory_recall.indexing.embedders import connector
from memory_recall.indexing.progress import LogProgress, WorkerMetrics
from memory_recall.settings import Settings
from tests.unit.memory_operator.conftest import World
from tests.unit.memory_recall.test_swap_api_keys import Opened

KEYED: dict[str, Any] = {"apiKey": {"secretName": "k1"}}
TLS: dict[str, Any] = {"tls": {"secretName": "certificate"}}
TRUSTED = "MEMORY_EMBEDDER_TRUSTED_HOSTS"


def environment(manifest: Manifest) -> dict[str, str]:
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    return {item["name"]: item["value"] for item in container["env"]}


@pytest.mark.parametrize(("embedder", "scheme"), [(KEYED, "http"), ({**KEYED, **TLS}, "https")], ids=["plain", "TLS"])
@pytest.mark.parametrize(
    ("host", "gets_key"),
    [("mem-embedder", True), ("mem-embedder-next", True), ("other-embedder-next", False), ("db", False)],
)
async def test_workers_give_their_key_to_the_second_embedder_of_a_swap_and_to_no_other_neighbour(
    world: World, monkeypatch: pytest.MonkeyPatch, embedder: dict[str, Any], scheme: str, host: str, *, gets_key: bool
) -> None:
    """From the flip to the hand-over the database names the second one, which demands the key."""
    index = world.index(embedder=embedder)
    for made in (
        workers.sync_deployment(index, world.images, replicas=1),
        workers.backfill_job(index, world.images, 0),
    ):
        found = environment(made)
        for name, value in found.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(external_client, "EmbedderClient", Opened)
        connect = connector(Settings(), LogProgress(WorkerMetrics(), worker="sync"))
        async with connect(f"{scheme}://{host}.team.svc:8080", "bge-small-en-v1.5") as client:
            given: Any = client
            assert given.key == (Path(found["MEMORY_EMBEDDER_API_KEY_FILE"]) if gets_key else None)


@pytest.mark.parametrize(
    "embedder",
    [
        {},
        {"external": {"url": "http://e.team.svc:80", **KEYED}},
        {"ref": {"name": "shared", "namespace": "ml", **KEYED}},
    ],
    ids=["no key", "external", "of another object"],
)
def test_no_host_is_trusted_beside_the_configured_one_where_no_second_embedder_asks_for_its_key(
    world: World, embedder: dict[str, Any]
) -> None:
    assert TRUSTED not in environment(workers.sync_deployment(world.index(embedder=embedder), world.images, replicas=1))


def test_the_key_of_a_former_external_embedder_is_not_for_the_second_one_of_the_operator(world: World) -> None:
    """The Job of a swap to a model of the operator's calls both, and each demands a key of its own."""
    external = workers.sync_deployment(
        world.index(embedder={"external": {"url": "http://e.team.svc:80", **KEYED}}), world.images, replicas=1
    )
    job = workers.swap_job(
        world.index(embedder={"apiKey": {"secretName": "k2"}}), world.images, 0,
        active="all-MiniLM-L6-v2", dimensions=384, served_by=configured_embedder(external),
    )  # fmt: skip
    assert TRUSTED not in environment(job)


def test_the_trusted_host_does_not_change_with_the_model(world: World) -> None:
    """Else a swap would roll the sync worker out once more."""
    indexes = (world.index(embedder=KEYED), world.index(embedder=KEYED, embedding={"model": "bge-small-en-v1.5"}))
    hosts = {environment(workers.sync_deployment(one, world.images, replicas=1))[TRUSTED] for one in indexes}
    assert hosts == {"mem-embedder-next.team.svc"}
