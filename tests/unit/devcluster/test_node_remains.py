"""Locks, control groups and clean-up: nothing of a cluster stays but its logs."""

import os
from pathlib import Path

import pytest

from devcluster import locks, processes, retrying
from devcluster.errors import CommandError, DevclusterError
from devcluster.node import cgroups, launch
from devcluster.node.init import prefer_this_session
from devcluster.node.layout import Layout


def test_a_lock_is_held_until_every_copy_of_its_descriptor_is_closed(tmp_path: Path) -> None:
    descriptor = locks.try_lock(tmp_path / "lock")
    assert descriptor is not None
    copy = os.dup(descriptor)
    os.close(descriptor)
    assert locks.try_lock(tmp_path / "lock") is None
    os.close(copy)
    again = locks.try_lock(tmp_path / "lock")
    assert again is not None
    os.close(again)


@pytest.mark.parametrize(("file", "default"), [("cpu.shares", 1024), ("cpu.weight", 100)], ids=["v1", "v2"])
def test_the_pods_get_a_greater_share_of_the_processors_than_a_process_outside(
    tmp_path: Path, file: str, default: int
) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu\n")
    (tmp_path / "memory-index-x").mkdir()
    (tmp_path / "memory-index-x" / file).write_text(str(default))
    cgroups.create("memory-index-x", tmp_path)
    assert int((tmp_path / "memory-index-x" / file).read_text()) == 8 * default


def test_the_nodes_own_processes_get_a_greater_share_where_the_kernel_shares_among_sessions(tmp_path: Path) -> None:
    (tmp_path / "autogroup").write_text("/autogroup-1 nice 0\n")
    prefer_this_session(tmp_path / "autogroup")
    assert int((tmp_path / "autogroup").read_text()) < 0
    prefer_this_session(tmp_path / "no" / "autogroup")


def test_a_control_group_of_version_2_is_made_once_and_removed_with_all_below_it(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("", encoding="ascii")
    cgroups.create("memory-index-x", tmp_path)
    (tmp_path / "memory-index-x" / "kubepods" / "pod1").mkdir(parents=True)
    assert cgroups.existing("memory-index-x", tmp_path) == [tmp_path / "memory-index-x"]
    assert cgroups.remove("memory-index-x", root=tmp_path)
    assert not (tmp_path / "memory-index-x").exists()


def test_down_removes_the_remains_of_a_killed_cluster_but_not_its_logs(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "unit-remains")
    layout.data.mkdir(parents=True)
    (layout.data / "etcd").write_text("x", encoding="utf-8")
    layout.logs.mkdir()
    (layout.logs / "etcd.log").write_text("kept", encoding="utf-8")
    layout.kubeconfig.write_text("x", encoding="utf-8")
    assert launch.end("unit-remains", layout)
    assert not layout.data.exists()
    assert not layout.kubeconfig.exists()
    assert (layout.logs / "etcd.log").read_text(encoding="utf-8") == "kept"
    assert not launch.end("unit-remains", layout)


def test_a_second_cluster_of_the_same_name_is_refused(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "unit-taken")
    descriptor = locks.try_lock(layout.lock)
    assert descriptor is not None
    try:
        with pytest.raises(DevclusterError, match="already running"):
            launch.launch("unit-taken", layout.root, programs={}, images={}, ready_seconds=1)
        assert launch.is_running(layout)
    finally:
        os.close(descriptor)
    assert not launch.is_running(layout)


def test_the_error_of_a_failed_command_has_the_end_of_its_output() -> None:
    with pytest.raises(CommandError, match="sh -c") as caught:
        processes.run(["sh", "-c", "echo no space left >&2; exit 4"])
    assert caught.value.returncode == 4
    assert "no space left" in caught.value.output


def test_a_missing_program_is_named() -> None:
    with pytest.raises(DevclusterError, match="no-such-program is not installed"):
        processes.run(["no-such-program"])


def test_a_streamed_command_hands_over_its_lines_and_its_failure() -> None:
    lines: list[str] = []
    with pytest.raises(CommandError, match="status 2"):
        processes.stream(["sh", "-c", "echo one; echo two; exit 2"], lines.append)
    assert lines == ["one", "two"]


def test_a_wait_that_times_out_names_its_condition() -> None:
    with pytest.raises(DevclusterError, match="the moon is full"):
        retrying.until("the moon is full", lambda: False, seconds=0, every=0)


def test_logs_of_the_newest_ended_clusters_stay_and_those_of_a_running_one_always(tmp_path: Path) -> None:
    for age, name in enumerate(["newest", "older", "oldest", "running"]):
        Layout(tmp_path / name).logs.mkdir(parents=True)
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    descriptor = locks.try_lock(Layout(tmp_path / "running").lock)
    assert descriptor is not None
    os.utime(tmp_path / "running", (1, 1))
    launch.prune_logs(tmp_path, keep=1)
    os.close(descriptor)
    assert len(list(tmp_path.iterdir())) == 2
    assert (tmp_path / "running").is_dir()
