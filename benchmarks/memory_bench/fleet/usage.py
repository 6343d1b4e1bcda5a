"""How much processor time the parts of a fleet use, and how busy the machine and its disks are meanwhile."""

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

import psutil

Seconds: TypeAlias = float
BUSY = 0.9  # the share of its time from which a resource counts as the one that binds


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What had been used until one moment: processor seconds by part, idle ones, and busy seconds by disk."""

    at: Seconds
    parts: Mapping[str, Seconds]
    idle: Seconds
    disks: Mapping[str, Seconds]


@dataclass(frozen=True, slots=True)
class Usage:
    """What was used between two moments.

    `parts` are seconds of processor time by part. `processors` and `disk` are the shares of the time, from 0 to 1, for
    which all processors and the busiest disk were busy.
    """

    seconds: Seconds
    parts: Mapping[str, Seconds]
    processors: float
    disk: float


def snapshot(parts: Mapping[str, int]) -> Snapshot:
    """Return what has been used until now; `parts` are the process ids of each part's main process.

    The processes that such a process has started count with it, also those that have ended.
    """
    disks = psutil.disk_io_counters(perdisk=True, nowrap=True)
    busy = {name: getattr(disk, "busy_time", 0) / 1000 for name, disk in disks.items()}
    used = {name: _processor_seconds(pid) for name, pid in parts.items()}
    times = psutil.cpu_times()
    return Snapshot(time.monotonic(), used, times.idle + times.iowait, busy)


def between(first: Snapshot, last: Snapshot) -> Usage:
    """Return what was used between two moments of the same parts."""
    seconds = last.at - first.at
    idle = (last.idle - first.idle) / (seconds * (psutil.cpu_count() or 1))
    return Usage(
        seconds,
        {name: last.parts[name] - before for name, before in first.parts.items()},
        _share(1 - idle, 1.0),
        max((_share(used - first.disks.get(name, used), seconds) for name, used in last.disks.items()), default=0.0),
    )


def binding(usage: Usage, *, late: bool = False, waiting: int = 0) -> str | None:
    """Return the resource that binds, or None if none does.

    With `late`, the embedder answered too late for some recalls; `waiting` recalls had no connection at a time.
    """
    if usage.processors >= BUSY:
        most = max(usage.parts, key=usage.parts.__getitem__, default="others")
        return f"processors ({most} most)"
    if usage.disk >= BUSY:
        return "the disk"
    if late:
        return "the embedder, within a query's budget"
    return "connections to the databases" if waiting else None


def _share(used: float, of: float) -> float:
    return max(0.0, min(1.0, used / of))


def _processor_seconds(pid: int) -> Seconds:
    first = psutil.Process(pid)
    total = 0.0
    for process in (first, *first.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total
