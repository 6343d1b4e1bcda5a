"""Threads come from the control group's limit, not from the host, and free cores from the host's count of threads."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory_embedder.engine.hardware import available_threads, free_cores


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("quota", "threads"), [("max 100000", 16), ("200000 100000", 2), ("150000 100000", 1), ("50000 100000", 1)]
)
def test_version_2_limits_round_down_to_whole_cores(tmp_path: Path, quota: str, threads: int) -> None:
    write(tmp_path / "self", "0::/\n")
    write(tmp_path / "cpu.max", quota)
    assert available_threads(affinity=16, root=tmp_path, membership=tmp_path / "self") == threads


def test_the_tightest_ancestor_decides(tmp_path: Path) -> None:
    write(tmp_path / "self", "0::/pods/one\n")
    write(tmp_path / "pods" / "cpu.max", "300000 100000")
    write(tmp_path / "pods" / "one" / "cpu.max", "max 100000")
    assert available_threads(affinity=16, root=tmp_path, membership=tmp_path / "self") == 3


@pytest.mark.parametrize(("quota", "threads"), [("-1", 16), ("400000", 4)])
def test_version_1_limits_count_too(tmp_path: Path, quota: str, threads: int) -> None:
    write(tmp_path / "self", "4:memory:/x\n3:cpu,cpuacct:/pod\n")
    write(tmp_path / "cpu" / "pod" / "cpu.cfs_quota_us", quota)
    write(tmp_path / "cpu" / "pod" / "cpu.cfs_period_us", "100000")
    assert available_threads(affinity=16, root=tmp_path, membership=tmp_path / "self") == threads


def test_the_affinity_mask_counts_and_unreadable_files_do_not(tmp_path: Path) -> None:
    assert available_threads(affinity=3, root=tmp_path, membership=tmp_path / "absent") == 3


@pytest.mark.parametrize(
    ("load", "free"),
    [
        ("0.10 0.20 0.30 2/512 1234", 4),
        ("0.10 0.20 0.30 3/512 1234", 3),
        ("9.10 0.20 0.30 9/512 1234", 0),
        ("0.00 0.00 0.00 0/0 0", 4),
        ("0.10 0.20", 4),
        ("no numbers in this file", 4),
    ],
    ids=["only our own", "one other", "more than cores", "sandbox without a count", "cut", "malformed"],
)
def test_every_thread_of_another_process_takes_a_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, load: str, free: int
) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    write(tmp_path / "loadavg", load)
    assert free_cores(2, cores=4, load=str(tmp_path / "loadavg")) == free


def test_all_cores_are_free_where_the_kernels_count_is_missing_or_includes_our_waiting_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    assert free_cores(1, cores=4, load=str(tmp_path / "missing")) == 4
    write(tmp_path / "loadavg", "0.10 0.20 0.30 4/512 1234")
    assert free_cores(1, cores=4, load=str(tmp_path / "loadavg")) == 1
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    assert free_cores(1, cores=4, load=str(tmp_path / "loadavg")) == 4
