"""Compares a backfill with the real embedder to a client that only sends the texts to the same embedder.

Like the backfill, the client sends the texts over HTTP in the same order, 32 in a request and four requests at once.
The client has no database and does not decode the vectors, so a backfill cannot be faster.
"""

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from memory_bench.backfill.null_embedder import run_process
from memory_bench.postgres import MeasuredServer
from memory_bench.servers import memory_embedder
from memory_recall.embedding.profiles import profile

_REQUEST_TEXTS, _CONCURRENT = 32, 4


@dataclass(frozen=True)
class Run:
    """One measured run: `side` is "backfill", or "embedder" for the client that only sends the texts.

    `embedder_cpu_seconds` shows which share of the machine's processors the embedder got.
    """

    side: str
    seconds: float
    embedder_cpu_seconds: float
    worker_cpu_seconds: float
    database_cpu_seconds: float


@dataclass(frozen=True)
class Embedder:
    """A running embedder: its base URL and its process."""

    url: str
    process: psutil.Process

    def cpu_seconds(self) -> float:
        """Return the processor time that the embedder has used so far, in seconds."""
        times = self.process.cpu_times()
        return float(times.user + times.system)


@contextmanager
def running_embedder(model: str, file: Path) -> Iterator[Embedder]:
    """Run the real embedder until the block ends, and yield it once it is ready."""
    options = ("--model", model)
    with (
        tempfile.TemporaryDirectory(prefix="memory-bench-backfill-") as scratch,
        memory_embedder(file, Path(scratch, "embedder.log"), options) as server,
    ):
        yield Embedder(server.url, psutil.Process(server.pid))


async def measure(
    server: MeasuredServer, texts: Sequence[str], *, model: str, file: Path, seconds: float, most: int
) -> dict[str, Any]:
    """Measure pairs of runs: a backfill, and a client that only sends the texts. Every second pair is in reverse order.

    At least one and at most `most` pairs are run; another pair starts only if it is expected to end within `seconds`.
    """
    await server.template("real", profile(model), texts)
    runs: list[Run] = []
    with running_embedder(model, file) as embedder:
        await _send_all(
            embedder.url, model, list(texts[: _REQUEST_TEXTS * _CONCURRENT])
        )  # the embedder is warm for both sides
        began = time.perf_counter()
        for pair in range(most):
            sides = ["embedder", "backfill"] if pair % 2 == 0 else ["backfill", "embedder"]
            runs += [await _run(side, server, embedder, texts, model) for side in sides]
            spent = time.perf_counter() - began
            if spent / (pair + 1) * (pair + 2) > seconds:
                break
    return _summary(runs, len(texts), model)


async def _run(side: str, server: MeasuredServer, embedder: Embedder, texts: Sequence[str], model: str) -> Run:
    if side == "embedder":
        before, own = embedder.cpu_seconds(), time.process_time()
        began = time.perf_counter()
        await _send_all(embedder.url, model, texts)
        took = time.perf_counter() - began
        return Run(side, took, embedder.cpu_seconds() - before, time.process_time() - own, 0.0)
    dsn = await server.copy("real", "real_run")
    before, database = embedder.cpu_seconds(), server.cpu_seconds()
    found = await run_process("backfill", dsn, embedder.url)
    if found["rows"] != len(texts):
        raise RuntimeError(f"the backfill embedded {found['rows']} of {len(texts)} rows")
    return Run(
        side=side,
        seconds=found["seconds"],
        embedder_cpu_seconds=embedder.cpu_seconds() - before,
        worker_cpu_seconds=found["cpu_seconds"],
        database_cpu_seconds=server.cpu_seconds() - database,
    )


async def _send_all(url: str, model: str, texts: Sequence[str]) -> None:
    """Send all texts to the embedder and ignore its responses."""
    requests = (texts[first : first + _REQUEST_TEXTS] for first in range(0, len(texts), _REQUEST_TEXTS))
    async with httpx.AsyncClient(base_url=url, timeout=120) as client:

        async def send(todo: Iterator[Sequence[str]]) -> None:
            for part in todo:  # the tasks share one iterator, so each takes the next request
                body = {"model": model, "input": list(part), "input_type": "document", "encoding_format": "base64"}
                (await client.post("/v1/embeddings", json=body)).raise_for_status()

        async with asyncio.TaskGroup() as tasks:
            for _ in range(_CONCURRENT):
                tasks.create_task(send(requests))


def _summary(runs: list[Run], rows: int, model: str) -> dict[str, Any]:
    def median(side: str, value: str = "seconds") -> float:
        return float(statistics.median(getattr(run, value) for run in runs if run.side == side))

    processors = os.cpu_count() or 1
    shares = {
        side: median(side, "embedder_cpu_seconds") / median(side) / processors for side in ("embedder", "backfill")
    }
    return {
        "model": model,
        "rows": rows,
        "rows_per_second": {"embedder alone": rows / median("embedder"), "backfill": rows / median("backfill")},
        "vs_embedder": median("embedder") / median("backfill"),
        "embedder_share_of_processors": shares,
        "runs": [asdict(run) for run in runs],
    }
