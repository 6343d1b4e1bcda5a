"""What counts as a difference between an object as it should be and as the API server stores it."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from memory_operator.resources import embedder
from memory_operator.resources.drift import drifted
from memory_operator.resources.network_policies import embedder_policy
from memory_operator.resources.quantities import quantity, same_quantity
from tests.unit.memory_operator.conftest import World


def defaulted(manifest: Any) -> Any:
    """The object as the API server stores it: defaults added, empty values dropped, quantities rewritten."""
    live = copy.deepcopy(manifest)
    live["metadata"] |= {"uid": "1", "resourceVersion": "7", "generation": 1}
    live["status"] = {"replicas": 1}
    if live["kind"] == "NetworkPolicy":
        del live["spec"]["egress"]
    if live["kind"] == "Deployment":
        container = live["spec"]["template"]["spec"]["containers"][0]
        container["terminationMessagePath"] = "/dev/termination-log"
        container["resources"] = {"requests": {"cpu": "0.25", "memory": "0.5Gi"}, "limits": {"memory": "2048Mi"}}
        live["spec"]["template"]["spec"]["containers"].append({"name": "injected-sidecar", "image": "x"})
        live["spec"]["template"]["spec"]["schedulerName"] = "default-scheduler"
        live["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = "1"
    return live


def test_defaults_and_fields_of_others_are_no_drift(world: World) -> None:
    for wanted in embedder.objects(world.index(), world.images, replicas=1):
        assert not drifted(wanted, defaulted(wanted)), wanted["kind"]


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["spec"].update(replicas=5),
        lambda d: d["spec"]["template"]["spec"]["containers"][0].update(image="evil"),
        lambda d: d["spec"]["template"]["spec"]["containers"][0]["command"].reverse(),
        lambda d: d["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"].update(memory="1Gi"),
        lambda d: d["spec"]["template"]["spec"].update(volumes=[]),
        lambda d: d["metadata"]["labels"].pop("app.kubernetes.io/instance"),
        lambda d: d["metadata"]["annotations"].clear(),
    ],
)
def test_a_change_of_the_desired_state_is_drift(world: World, change: Callable[[Any], Any]) -> None:
    wanted = embedder.deployment(world.index(), world.images, replicas=1)
    live = defaulted(wanted)
    change(live)
    assert drifted(wanted, live)


POLICY_CHANGES: dict[str, Callable[[Any], Any]] = {
    "egress opened": lambda p: p["spec"].update(egress=[{}]),
    "another caller": lambda p: p["spec"]["ingress"].append({}),
    "a narrowed selector": lambda p: p["spec"]["podSelector"]["matchLabels"].update(x="y"),
    "another port": lambda p: p["spec"]["ingress"][0]["ports"].append({"port": 22, "protocol": "TCP"}),
    "egress not restricted": lambda p: p["spec"].update(policyTypes=["Ingress"]),
    "fewer callers": lambda p: p["spec"]["ingress"][0].pop("from"),
}


@pytest.mark.promise("embedder-calls-nobody")
@pytest.mark.finding("D12")
@pytest.mark.parametrize("change", POLICY_CHANGES.values(), ids=POLICY_CHANGES)
def test_every_change_of_a_network_policys_rules_is_drift(world: World, change: Callable[[Any], Any]) -> None:
    wanted = embedder_policy(world.index())
    live = defaulted(wanted)
    assert not drifted(wanted, live)
    change(live)
    assert drifted(wanted, live)


@pytest.mark.finding("D12")
def test_a_label_added_to_a_services_selector_is_drift(world: World) -> None:
    wanted = embedder.service(world.index())
    live = defaulted(wanted)
    live["spec"] |= {"clusterIP": "10.0.0.1", "sessionAffinity": "None"}
    assert not drifted(wanted, live)
    live["spec"]["selector"]["evil"] = "yes"
    assert drifted(wanted, live)


def test_an_empty_desired_value_is_not_contained_in_a_full_one(world: World) -> None:
    wanted = embedder.deployment(world.index(), world.images, replicas=1)
    wanted["spec"]["template"]["spec"]["tolerations"] = []
    live = defaulted(wanted)
    assert not drifted(wanted, live)
    live["spec"]["template"]["spec"]["tolerations"] = [{"operator": "Exists"}]
    assert drifted(wanted, live)


def test_a_field_that_is_no_longer_desired_is_drift(world: World) -> None:
    before = embedder.deployment(world.index(embedder={"nodeSelector": {"a": "b"}}), world.images, replicas=1)
    assert drifted(embedder.deployment(world.index(), world.images, replicas=1), defaulted(before))


def test_a_missing_object_is_drift(world: World) -> None:
    assert drifted(embedder.service(world.index()), None)


@pytest.mark.finding("security L2")
@pytest.mark.parametrize("value", ["1e99999999", "9" * 100_000, "1." + "0" * 100_000, "\N{SUPERSCRIPT TWO}"])
def test_a_number_that_somebody_has_written_into_an_object_is_compared_whatever_its_size(value: str) -> None:
    assert not same_quantity(value, "1")
    assert same_quantity("1000m", "1")


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        (2000, "2k"),
        ("1000m", "1"),
        ("0.5", "500m"),
        ("1024Mi", "1Gi"),
        ("1e3", 1000),
        ("0.5Gi", "512Mi"),
        (".5", "500m"),
    ],
)
def test_quantities_are_compared_as_numbers(written: object, stored: object) -> None:
    assert same_quantity(written, stored)
    assert not same_quantity(written, "7")


@pytest.mark.parametrize("value", [True, None, "1 GB", "k", "1Zi", [], {}])
def test_what_is_no_quantity_is_not_taken_for_one(value: object) -> None:
    assert quantity(value) is None
    assert not same_quantity(value, value)
