"""A backfill with the real embedder, against what the embedder itself yields to a client that does nothing else.

The reference sends the same texts in the same order, 32 a request and four requests under way as a backfill does, and
drops the answers unread: no database, no decoding. Both use the embedder's own HTTP interface.
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

from memory_bench.backfill.null_embedder import child
from memory_bench.postgres import MeasuredServer
from memory_bench.servers import memory_embedder
from memory_recall.embedding.profiles import profile
from memory_recall.schema.ddl import TargetModel

_REQUEST_TEXTS, _UNDER_WAY = 32, 4


@dataclass(frozen=True)
class Run:
    """One run of one side; `embedder_cpu_seconds` tells how much of the machine the embedder got."""

    side: str
    seconds: float
    embedder_cpu_seconds: float
    worker_cpu_seconds: float
    database_cpu_seconds: float


@dataclass(frozen=True)
class Embedder:
    """A running embedder."""

    url: str
    process: psutil.Process

    def cpu_seconds(self) -> float:
        """Processor time that it has used so far."""
        times = self.process.cpu_times()
        return float(times.user + times.system)


@contextmanager
def running_embedder(model: str, file: Path) -> Iterator[Embedder]:
    """Run the real embedder, ready to embed, for as long as the block lasts."""
    options = ("--model", model, "--log-level", "error")
    with (
        tempfile.TemporaryDirectory(prefix="memory-bench-backfill-") as scratch,
        memory_embedder(file, Path(scratch, "embedder.log"), options) as server,
    ):
        yield Embedder(server.url, psutil.Process(server.pid))


def model_of(name: str) -> TargetModel:
    """The profile as migrations want it."""
    known = profile(name)
    return TargetModel(name, known.dimensions, known.pooling, known.max_tokens, "", known.document_prefix)


async def measure(
    server: MeasuredServer, texts: Sequence[str], *, model: str, file: Path, seconds: float, most: int
) -> dict[str, Any]:
    """Pairs of runs in alternating order, as many (one to `most`) as end within about `seconds`."""
    await server.template("real", model_of(model), texts)
    runs: list[Run] = []
    with running_embedder(model, file) as embedder:
        await _ask(embedder.url, model, list(texts[: _REQUEST_TEXTS * _UNDER_WAY]))  # both sides meet it warm
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
        await _ask(embedder.url, model, texts)
        took = time.perf_counter() - began
        return Run(side, took, embedder.cpu_seconds() - before, time.process_time() - own, 0.0)
    dsn = await server.copy("real", "real_run")
    before, database = embedder.cpu_seconds(), server.cpu_seconds()
    found = await child("backfill", dsn, embedder.url)
    if found["rows"] != len(texts):
        raise RuntimeError(f"the backfill embedded {found['rows']} of {len(texts)} rows")
    return Run(
        side=side,
        seconds=found["seconds"],
        embedder_cpu_seconds=embedder.cpu_seconds() - before,
        worker_cpu_seconds=found["cpu_seconds"],
        database_cpu_seconds=server.cpu_seconds() - database,
    )


async def _ask(url: str, model: str, texts: Sequence[str]) -> None:
    """Send all texts and drop the answers."""
    requests = (texts[first : first + _REQUEST_TEXTS] for first in range(0, len(texts), _REQUEST_TEXTS))
    async with httpx.AsyncClient(base_url=url, timeout=120) as client:

        async def send(todo: Iterator[Sequence[str]]) -> None:
            for part in todo:  # one iterator for all, so each takes the next request
                body = {"model": model, "input": list(part), "input_type": "document", "encoding_format": "base64"}
                (await client.post("/v1/embeddings", json=body)).raise_for_status()

        async with asyncio.TaskGroup() as tasks:
            for _ in range(_UNDER_WAY):
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
