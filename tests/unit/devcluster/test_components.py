"""The command lines of the components, and the order in which they start."""

from graphlib import TopologicalSorter

import pytest

from devcluster.node.components import Component, components

NAMES = (
    "kubectl",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "etcd",
    "coredns",
)
PROGRAMS = {name: f"/programs/{name}" for name in (*NAMES, "containerd", "ctr", "python")}
IMAGES = {"pause": "/images/pause.tar", "postgresql": "/images/postgresql.tar"}


@pytest.fixture
def by_name() -> dict[str, Component]:
    return {component.name: component for component in components(PROGRAMS, IMAGES, 7)}


def test_needs_name_existing_components_and_have_no_cycle(by_name: dict[str, Component]) -> None:
    graph = {name: set(component.needs) for name, component in by_name.items()}
    order = list(TopologicalSorter(graph).static_order())
    assert set(order) == set(by_name)
    assert order.index("etcd") < order.index("apiserver") < order.index("kubelet")


def test_every_component_runs_a_given_program_from_an_absolute_path(by_name: dict[str, Component]) -> None:
    assert {component.argv[0] for component in by_name.values()} <= set(PROGRAMS.values())


def test_images_are_imported_one_after_the_other(by_name: dict[str, Component]) -> None:
    assert by_name["image-pause"].needs == ("containerd",)
    assert by_name["image-postgresql"].needs == ("image-pause",)
    assert by_name["image-postgresql"].argv[-1] == "/images/postgresql.tar"
    assert by_name["image-pause"].is_task


def test_only_the_forwarder_inherits_the_listening_socket(by_name: dict[str, Component]) -> None:
    assert {name: component.descriptors for name, component in by_name.items() if component.descriptors} == {
        "forwarder": (7,)
    }
    assert "7" in by_name["forwarder"].argv


@pytest.mark.parametrize(
    "flag", ["--authorization-mode=Node,RBAC", "--audit-policy-file=", "--client-ca-file=", "--allow-privileged=true"]
)
def test_the_api_server_is_secured_and_audited(by_name: dict[str, Component], flag: str) -> None:
    assert any(argument.startswith(flag) for argument in by_name["apiserver"].argv)


def test_the_api_server_takes_no_static_tokens(by_name: dict[str, Component]) -> None:
    assert not any("token-auth-file" in argument for argument in by_name["apiserver"].argv)


def test_coredns_starts_only_when_it_has_its_rights(by_name: dict[str, Component]) -> None:
    assert by_name["coredns"].needs == ("addon-dns",)
