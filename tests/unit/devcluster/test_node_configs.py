"""Configuration files: what departs from a default, and only inside paths."""

import json
import tomllib

import pytest

from devcluster.node import configs
from devcluster.node.addons import storage
from devcluster.node.layout import INSIDE, Layout, Plan


@pytest.fixture
def files() -> dict[str, str]:
    return configs.files(
        cgroup="memory-index-x",
        pause_image="localhost/pause:1",
        snapshotter="native",
        cni_plugins="/opt/cni/bin",
        volumes=3,
    )


def test_containerd_reads_its_file_as_toml_with_our_pause_image(files: dict[str, str]) -> None:
    cri = tomllib.loads(files["containerd.toml"])["plugins"]["io.containerd.grpc.v1.cri"]
    assert cri["sandbox_image"] == "localhost/pause:1"
    assert cri["containerd"]["snapshotter"] == "native"
    assert cri["registry"]["config_path"] == str(Layout(INSIDE).registries)
    assert cri["cni"]["bin_dir"] == "/opt/cni/bin"


def test_kubelet_has_its_own_control_group_and_authorises_callers_through_the_api_server(files: dict[str, str]) -> None:
    kubelet = json.loads(files["kubelet.yaml"])
    assert kubelet["cgroupRoot"] == "/memory-index-x"
    assert kubelet["authentication"]["anonymous"] == {"enabled": False}
    assert kubelet["authorization"] == {"mode": "Webhook"}
    assert kubelet["podLogsDir"] == str(Layout(INSIDE).logs / "pods")


def test_only_the_operators_reads_are_audited_and_writes_are_with_metadata_only(files: dict[str, str]) -> None:
    rules = json.loads(files["audit.yaml"])["rules"]
    assert rules == [
        {"level": "Metadata", "users": ["system:serviceaccount:memory-index-system:memory-operator"]},
        {"level": "None", "verbs": ["get", "list", "watch"]},
        {"level": "Metadata"},
    ]


def test_names_outside_the_cluster_are_answered_in_a_block_of_their_own(files: dict[str, str]) -> None:
    inside, outside = files["Corefile"].split("\n.:53 {")
    assert "kubernetes cluster.local" in inside
    assert "template" not in inside
    assert "NXDOMAIN" in outside


def test_the_requested_number_of_volumes_have_distinct_directories(files: dict[str, str]) -> None:
    items = json.loads(files["addon-storage.json"])["items"]
    paths = {item["spec"]["local"]["path"] for item in items if item["kind"] == "PersistentVolume"}
    assert len(paths) == 3
    assert items[0]["metadata"]["annotations"] == {"storageclass.kubernetes.io/is-default-class": "true"}
    assert storage(3) == items


def test_a_plan_is_read_from_its_file_as_it_was_written(tmp_path: "object") -> None:
    from pathlib import Path

    path = Path(str(tmp_path)) / "plan.json"
    plan = Plan("x", "/state/x", {"etcd": "/e"}, {"pause": "/p"}, 3, "localhost/pause:1", 60.0, 4, 5, 6)
    plan.write(path)
    assert Plan.read(path) == plan
    assert plan.cgroup == "memory-index-x"
