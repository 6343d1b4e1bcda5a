"""Measures recalls of a large partitioned table at one rate after the other."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from memory_bench.fleet.load import LoadParameters
from memory_bench.fleet.results import RateResult
from memory_bench.fleet.store import Say, running_store
from memory_bench.fleet.usage import Usage
from memory_bench.servers import memory_embedder

_PROGRAM = "memory_bench.fleet.load"
_MORE_SECONDS = 120.0  # for the start of the program, its warm-up, and recalls under way at the end


async def measure_recalls(
    model: Path, cache: Path, log: Path, *, rows: int, users: int, rates: Sequence[float], seconds: float, say: Say
) -> list[RateResult]:
    """Return what came of the recalls at each rate, the lowest first.

    Raises:
        RuntimeError: the program that recalls failed; the message has the end of what it printed.
        ServerDidNotStartError: the embedder did not start.
    """
    measured = []
    async with running_store(cache, rows, users, say) as fleet:
        with memory_embedder(model, log) as embedder:
            for rate in sorted(rates):
                say(f"{rate:g} recalls a second")
                parts = {**fleet.parts, "embedder": embedder.pid}
                given = LoadParameters(fleet.primary, fleet.replica, embedder.url, rows, users, rate, seconds, parts)
                measured.append(await _at_rate(given))
    return measured


async def _at_rate(given: LoadParameters) -> RateResult:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", _PROGRAM, json.dumps(asdict(given)), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        async with asyncio.timeout(given.seconds + _MORE_SECONDS):
            output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise RuntimeError(f"{_PROGRAM} failed at {given.rate:g} recalls a second:\n{errors.decode()[-2000:]}")
    said = json.loads(output)
    return RateResult(**{**said, "usage": Usage(**said["usage"])})
