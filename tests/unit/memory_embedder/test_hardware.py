"""Threads and memory come from the control group's limits, and free cores from the host's count of threads."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from memory_embedder.engine.hardware import FreeCores, available_memory, available_threads


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
    ("files", "gibibytes"),
    [
        ({}, 16),
        ({"memory.max": "max"}, 16),
        ({"memory.max": str(2 << 30)}, 2),
        ({"pods/memory.max": str(3 << 30), "pods/one/memory.max": "max"}, 3),
        ({"memory.max": str(32 << 30)}, 16),
        ({"memory/pods/one/memory.limit_in_bytes": str(4 << 30)}, 4),
        ({"memory/pods/one/memory.limit_in_bytes": "9223372036854771712"}, 16),
    ],
    ids=lambda files: " ".join(f"{name}={value}" for name, value in files.items()) if isinstance(files, dict) else None,
)
def test_memory_is_the_least_of_the_machine_s_and_every_limit(
    tmp_path: Path, files: dict[str, str], gibibytes: int
) -> None:
    """In both versions of control groups; the first version writes a huge number where there is no limit."""
    write(tmp_path / "self", "4:memory:/pods/one\n0::/pods/one\n")
    for name, text in files.items():
        write(tmp_path / name, text)
    found = available_memory(machine=16 << 30, root=tmp_path, membership=tmp_path / "self")
    assert found == gibibytes << 30


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that stands for /proc/loadavg, in which three threads of the machine run."""
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    file = tmp_path / "loadavg"
    file.write_text("0.10 0.20 0.30 3/512 1234")
    return file


@pytest.mark.parametrize(
    ("count", "free"),
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
def test_every_thread_of_another_process_takes_a_core(load: Path, count: str, free: int) -> None:
    load.write_text(count)
    assert FreeCores(cores=4, load=str(load))(2) == free


def test_all_cores_are_free_where_the_kernels_count_is_missing_or_includes_our_waiting_threads(
    load: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert FreeCores(cores=4, load=f"{load}.missing")(1) == 4
    assert FreeCores(cores=4, load=str(load))(1) == 2
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    assert FreeCores(cores=4, load=str(load))(1) == 4


def test_a_thread_of_ours_that_may_run_or_sleep_is_our_own_only_while_it_runs(load: Path) -> None:
    free_cores = FreeCores(cores=4, load=str(load))
    done, begun = threading.Event(), threading.Event()
    sleeper = threading.Thread(target=lambda: (begun.set(), done.wait(60)))
    sleeper.start()
    try:
        assert begun.wait(60)
        assert sleeper.native_id is not None
        assert goes_to_sleep(sleeper.native_id)
        assert free_cores(1, sleeper.native_id) == 4 - 2
        assert free_cores(1, threading.get_native_id()) == 4 - 1
    finally:
        done.set()
        sleeper.join()


def goes_to_sleep(thread: int) -> bool:
    """Return whether a thread of this process sleeps within a minute."""
    state = Path(f"/proc/self/task/{thread}/stat")
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if ") S" in state.read_text():
            return True
        time.sleep(0.01)
    return False


def test_a_count_that_changes_is_read_anew_from_a_file_that_stays_open(load: Path) -> None:
    free_cores = FreeCores(cores=4, load=str(load))
    assert [free_cores(1), times_open(load)] == [2, 1]
    load.write_text("0.10 0.20 0.30 4/512 1234")
    assert [free_cores(1), times_open(load)] == [1, 1]
    del free_cores
    assert times_open(load) == 0


def times_open(file: Path) -> int:
    """Return how often this process has a file open."""
    return sum(one.is_symlink() and one.readlink() == file for one in Path("/proc/self/fd").iterdir())
