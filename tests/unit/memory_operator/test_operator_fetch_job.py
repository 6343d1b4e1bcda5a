"""The claim and the Job of a model file that is fetched from a URL."""

from typing import Any

import pytest

from memory_operator.resources import embedder, model_fetch
from tests.unit.memory_operator.conftest import World, deep_update
from tests.unit.memory_operator.test_operator_resources import GPU, pod_spec, source


@pytest.mark.promise("model-download-bounded")
@pytest.mark.finding("M5")
@pytest.mark.parametrize(("size", "mebibytes"), [("300Mi", "300"), ("9Gi", "9216"), ("1Ti", "1048576")])
def test_a_fetched_file_is_limited_to_the_size_that_its_volume_asks_for(
    world: World, size: str, mebibytes: str
) -> None:
    """Not every volume plugin enforces it."""
    chosen = source(world, size=size)
    (container,) = pod_spec(model_fetch.fetch_job(world.index(**GPU), world.images, 0, source=chosen))["containers"]
    command = container["command"]
    assert command[command.index("--max-mebibytes") + 1] == mebibytes
    assert model_fetch.claim(world.index(), chosen)["spec"]["resources"] == {"requests": {"storage": size}}


@pytest.mark.promise("embedder-calls-nobody")
def test_the_job_that_fetches_a_model_has_no_credentials(world: World) -> None:
    """Neither the connection URI nor a key is in a pod that may connect to other hosts."""
    index = world.index(**deep_update(GPU, {"embedder": {"apiKey": {"secretName": "key"}}}))
    job = model_fetch.fetch_job(index, world.images, 0, source=source(world))
    assert [volume["name"] for volume in pod_spec(job)["volumes"]] == ["model"]


def test_the_job_that_fetches_a_model_runs_where_embedders_may_run_and_asks_for_no_gpu(world: World) -> None:
    """The first pod that mounts a volume can bind it to a node."""
    fetching = pod_spec(model_fetch.fetch_job(world.index(**GPU), world.images, 0, source=source(world)))
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
