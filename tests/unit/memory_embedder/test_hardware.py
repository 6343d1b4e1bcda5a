"""Threads come from the control group's limit, not from the host, and free cores from the host's count of threads."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from memory_embedder.engine.hardware import FreeCores, available_threads


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
    assert FreeCores(cores=4, load=str(tmp_path / "loadavg"))(2) == free


def test_all_cores_are_free_where_the_kernels_count_is_missing_or_includes_our_waiting_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    assert FreeCores(cores=4, load=str(tmp_path / "missing"))(1) == 4
    write(tmp_path / "loadavg", "0.10 0.20 0.30 4/512 1234")
    assert FreeCores(cores=4, load=str(tmp_path / "loadavg"))(1) == 1
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    assert FreeCores(cores=4, load=str(tmp_path / "loadavg"))(1) == 4


def test_a_thread_of_ours_that_may_run_or_sleep_is_our_own_only_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    write(tmp_path / "loadavg", "0.10 0.20 0.30 3/512 1234")
    free_cores = FreeCores(cores=4, load=str(tmp_path / "loadavg"))
    done, begun = threading.Event(), threading.Event()
    sleeper = threading.Thread(target=lambda: (begun.set(), done.wait(60)))
    sleeper.start()
    try:
        assert begun.wait(60)
        assert sleeper.native_id is not None
        assert asleep(sleeper.native_id)
        assert free_cores(1, sleeper.native_id) == 4 - 2
        assert free_cores(1, threading.get_native_id()) == 4 - 1
    finally:
        done.set()
        sleeper.join()


def asleep(thread: int) -> bool:
    """Return whether a thread of this process goes to sleep within a minute."""
    state = Path(f"/proc/self/task/{thread}/stat")
    until = time.monotonic() + 60
    while (slept := ") S" in state.read_text()) is False and time.monotonic() < until:
        time.sleep(0.01)
    return slept


def test_a_count_that_changes_is_read_anew_from_a_file_that_stays_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    write(tmp_path / "loadavg", "0.10 0.20 0.30 1/512 1234")
    free_cores = FreeCores(cores=4, load=str(tmp_path / "loadavg"))
    before = open_files()
    assert free_cores(1) == 4
    write(tmp_path / "loadavg", "0.10 0.20 0.30 4/512 1234")
    assert free_cores(1) == 1
    assert open_files() == before + 1
    del free_cores
    assert open_files() == before


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
