"""Threads come from the control group's limit, not from the host."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory_embedder.engine.hardware import available_threads


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
