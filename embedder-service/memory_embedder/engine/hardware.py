"""Finds how many threads and how much memory this process can really use, and how many cores others use now.

A container sees all cores of the host but is throttled to its CPU limit; threads beyond the limit only wait for one
another. It sees all memory of the host, but is killed when it takes more than its limit. Both limits are read from the
control group (version 2 or 1) and each of its visible ancestors. The affinity mask limits the threads, too.
"""

import os
import weakref
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")
_CORES = os.cpu_count() or 1  # of the whole machine
_LOAD = "/proc/loadavg"
_READ_BYTES = 256


def available_threads(*, affinity: int | None = None, root: Path = _ROOT, membership: Path = _MEMBERSHIP) -> int:
    """Return the number of whole cores within the affinity mask and the control group's limit, at least one."""
    cores = affinity if affinity is not None else len(os.sched_getaffinity(0))
    limits = [limit for limit in (_v2_limit(root, membership), _v1_limit(root, membership)) if limit is not None]
    return max(1, min([cores, *(int(limit) for limit in limits)]))


def available_memory(*, machine: int | None = None, root: Path = _ROOT, membership: Path = _MEMBERSHIP) -> int:
    """Return how many bytes this process may take: the least of the machine's memory and the control group's limits."""
    own = machine if machine is not None else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = [_read(directory / "memory.max") for directory in _ancestry(root, _path_of(membership, ""))]
    first = root / "memory"
    limits += [_read(one / "memory.limit_in_bytes") for one in _ancestry(first, _path_of(membership, "memory"))]
    return min([own, *(int(limit) for limit in limits if limit.isdigit())])


class FreeCores:
    """Counts the cores of the whole machine that no thread of another process takes at this moment.

    The kernel counts the threads that run or wait for a core. Its count is that of the whole machine in a container,
    too. Since Linux 6.12 it may include a thread that went to sleep, until the core of that thread chooses the next
    one. So a caller that waits for its answer is counted while the thread that it has woken on its own core runs, and
    no longer when that thread sleeps, too. The count is right in the thread that computes, and too high in the one
    that takes the request.

    Where the count is not given, all cores are free. So they are with `OMP_WAIT_POLICY=active`, since the count then
    includes our own threads that wait for each other.
    """

    def __init__(self, *, cores: int = _CORES, load: str = _LOAD) -> None:
        self._cores = cores
        self._load = load
        self._files: dict[str, int] = {}

    def __call__(self, own: int, thread: int | None = None) -> int:
        """Return the number of free cores.

        `own` is the number of this process's threads that run now, the calling thread included; the cores that they use
        are free in this sense. `thread` is the native id of a further one, which may run or sleep.
        """
        if os.environ.get("OMP_WAIT_POLICY", "").lower() == "active":
            return self._cores
        try:
            running = int(self._read(self._load).split()[3].partition(b"/")[0])
            if thread is not None:
                own += self._runs(thread)
        except (OSError, ValueError, IndexError):
            return self._cores
        return max(0, self._cores - max(0, running - own))

    def _runs(self, thread: int) -> bool:
        return self._read(f"/proc/self/task/{thread}/stat").rpartition(b") ")[2].startswith(b"R")

    def _read(self, path: str) -> bytes:
        """Return the present contents of a file, which stays open, because opening it anew takes twice as long."""
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            weakref.finalize(self, os.close, file)
        return os.pread(file, _READ_BYTES, 0)


def _v2_limit(root: Path, membership: Path) -> float | None:
    found = []
    for directory in _ancestry(root, _path_of(membership, "")):
        quota, _, period = _read(directory / "cpu.max").partition(" ")
        if quota.isdigit() and period.isdigit() and int(period):
            found.append(int(quota) / int(period))
    return min(found, default=None)


def _v1_limit(root: Path, membership: Path) -> float | None:
    found = []
    for directory in _ancestry(root / "cpu", _path_of(membership, "cpu")):
        quota, period = _read(directory / "cpu.cfs_quota_us"), _read(directory / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period):
            found.append(int(quota) / int(period))
    return min(found, default=None)


def _path_of(membership: Path, controller: str) -> str:
    for line in _read(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path.strip("/")
    return ""


def _ancestry(root: Path, relative: str) -> list[Path]:
    directories = [root]
    for part in [part for part in relative.split("/") if part and part != ".."]:
        directories.append(directories[-1] / part)
    return directories


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
