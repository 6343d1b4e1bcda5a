"""Measures the cost of a backfill without embedding, by comparing a backfill with a null embedder to bare UPDATEs.

The null embedder returns constant vectors at once. It is an object inside the worker's process, because an HTTP server
would use the processors that the measured worker needs.
"""

import asyncio
import json
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from memory_bench.backfill.measured_process import NULL_DIMENSIONS, NULL_MODEL
from memory_bench.postgres import MeasuredServer, bare_model
from memory_recall.embedding.profiles import ModelProfile

TEXT = "some words of a memory, as long as people write them, " * 5


@dataclass(frozen=True)
class Run:
    """One measured run of one kind: `side` is "null-backfill" or "bare-update".

    `peak_rss_kib` is the peak memory of the process in KiB.
    """

    side: str
    rows: int
    seconds: float
    cpu_seconds: float
    database_cpu_seconds: float
    peak_rss_kib: int


def null_model() -> ModelProfile:
    """Return the profile of the null embedder's model."""
    return bare_model(NULL_MODEL, NULL_DIMENSIONS)


async def run_process(kind: str, dsn: str, argument: str) -> dict[str, Any]:
    """Run one measurement in a process of its own and return the figures that the process prints.

    Raises:
        RuntimeError: the process ended with an error; the end of its output is in the message.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "memory_bench.backfill.measured_process", kind, dsn, argument,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, errors = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"{kind} ended with status {process.returncode}: {errors.decode()[-2000:]}")
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


async def measure(server: MeasuredServer, *, rows: int, small: int, seconds: float, most: int) -> dict[str, Any]:
    """Compare backfills with bare UPDATE loops over `rows` rows, and large with small backfills in peak memory.

    A round consists of a backfill and an UPDATE loop over `rows` rows, and a backfill over `small` rows. At least one
    and at most `most` rounds are run; another round starts only if it is expected to end within `seconds`.
    """
    for size in (small, rows):
        await server.template(f"null_{size}", null_model(), [f"{TEXT}{number}" for number in range(size)])
    runs: list[Run] = []
    began = time.perf_counter()
    for repeat in range(most):
        sides = [("null-backfill", rows), ("bare-update", rows)]
        for side, size in [*(sides if repeat % 2 == 0 else reversed(sides)), ("null-backfill", small)]:
            runs.append(await _run(server, side, size))
        if (time.perf_counter() - began) / (repeat + 1) * (repeat + 2) > seconds:
            break
    return _summary(runs, rows=rows, small=small)


async def _run(server: MeasuredServer, side: str, size: int) -> Run:
    dsn = await server.copy(f"null_{size}", "null_run")
    before = server.cpu_seconds()
    found = await run_process(side, dsn, str(size))
    if found["rows"] != size:
        raise RuntimeError(f"{side} stored {found['rows']} of {size} rows")
    return Run(
        side=side,
        rows=size,
        seconds=found["seconds"],
        cpu_seconds=found["cpu_seconds"],
        database_cpu_seconds=server.cpu_seconds() - before,
        peak_rss_kib=found["peak_rss_kib"],
    )


def _summary(runs: list[Run], *, rows: int, small: int) -> dict[str, Any]:
    def median(side: str, size: int, value: str) -> float:
        return float(statistics.median(getattr(run, value) for run in runs if run.side == side and run.rows == size))

    ours, bare = median("null-backfill", rows, "seconds"), median("bare-update", rows, "seconds")
    memory = [median("null-backfill", size, "peak_rss_kib") for size in (small, rows)]
    return {
        "embedder": "an object in the worker's process",
        "rows": rows,
        "rows_per_second": {"null backfill": rows / ours, "bare update": rows / bare},
        "null_vs_bare_update": bare / ours,
        "rss_growth": memory[1] / memory[0] - 1,
        "peak_rss_mib": {str(small): memory[0] / 1024, str(rows): memory[1] / 1024},
        "runs": [asdict(run) for run in runs],
    }
