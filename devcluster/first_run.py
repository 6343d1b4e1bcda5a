"""Measures a first run: the minutes that `make demo` takes on a machine on which nothing has been built.

`devcluster build` begins the record if nothing has been built or compiled before, and the demo of the same `make`
completes it. The record stays in the cache directory, so that it can still be read long after the run.
"""

import json
import os
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from devcluster import processes
from devcluster.building.side_by_side import available_memory
from devcluster.settings import Settings

_BUILT = ("bin", "wheels", "images")


@dataclass(frozen=True)
class FirstRun:
    """A first run: its start in Unix seconds, the machine's processors and free memory, and its minutes, once known."""

    began: float
    processors: int
    available_gib: float
    minutes: float | None = None


def begin(settings: Settings) -> None:
    """Begin the record if `make` passed its start time, and neither this project nor Go has built anything before."""
    if settings.began is None or _anything_built(settings) or _go_has_built():
        return
    free = available_memory(Path("/proc/meminfo").read_text(encoding="ascii"))
    _write(settings, FirstRun(settings.began, os.cpu_count() or 1, round(free / 2**30, 1)))


def complete(settings: Settings) -> FirstRun | None:
    """Complete the record that the same `make` began, and return it; return None if this was no first run."""
    found = read(settings)
    if found is None or found.minutes is not None or found.began != settings.began:
        return None
    done = replace(found, minutes=round((time.time() - found.began) / 60, 1))
    _write(settings, done)
    return done


def read(settings: Settings) -> FirstRun | None:
    """Return the record, or None if there is none."""
    path = _path(settings)
    return FirstRun(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def _anything_built(settings: Settings) -> bool:
    return any(_entries(settings.cache_dir / name) for name in _BUILT)


def _entries(directory: Path) -> list[Path]:
    return [entry for entry in directory.glob("*") if entry.is_dir() or entry.suffix == ".tar"]


def _go_has_built() -> bool:
    """Return whether Go's cache of compiled packages has entries, which would shorten the first run."""
    return processes.exists("go") and any(_entries(Path(processes.run(["go", "env", "GOCACHE"]).strip())))


def _path(settings: Settings) -> Path:
    return settings.cache_dir / "first-run.json"


def _write(settings: Settings, record: FirstRun) -> None:
    path = _path(settings)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(record)) + "\n", encoding="utf-8")
