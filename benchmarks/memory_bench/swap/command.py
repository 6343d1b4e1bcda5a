"""The command `swap`: swaps models while memories are recalled and written."""

import asyncio
import json
import os
import random
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import IO, Annotated, Any

import asyncpg
import typer

from memory_bench.postgres import MeasuredServer, bare_model
from memory_bench.report import KeepOption, OutputOption, console, machine, results_directory
from memory_bench.swap import results
from memory_bench.swap.load import Load, forbidden_vectors, question, texts
from memory_bench.swap.models import DIMENSIONS, MODELS
from memory_recall import (
    EVERYONE,
    EmbeddedQuery,
    EmbedderClient,
    EmbedderUnavailable,
    FollowingEmbedder,
    HybridRecall,
    RecallQuery,
)

_DATABASE = "swap"
_WARM_SECONDS = 5.0
_EMBEDDING_BUDGET = 0.5  # the load, the workers and the database share the machine's few processors here
_QUESTIONS = 400
_LOG_LINES = 12  # of a sync worker that ended by itself; a crash tells its class and frames


class SwapBench:
    """The database, processes and event log of one run of the swap benchmark."""

    def __init__(self, server: MeasuredServer, directory: Path, rows: int) -> None:
        self.dsn = server.dsn(_DATABASE)
        self.texts = texts(rows)
        self.server = server
        self.urls: dict[str, str] = {}
        self.began = time.monotonic()
        self.events: list[dict[str, Any]] = []
        self.errors: list[str] = []
        self._queries = directory / "queries.jsonl"
        self._sync_log = directory / "sync.log"

    def event(self, name: str) -> None:
        """Record an event with the number of seconds since the start of the run, and print it."""
        self.events.append({"at": round(time.monotonic() - self.began, 3), "event": name})
        console.print(f"{self.events[-1]['at']:8.1f} s  {name}")

    async def memory(self, *arguments: str) -> tuple[int, str, str]:
        """Run the `memory` command; return its exit status, standard output and standard error."""
        process = await self._spawn(*arguments, output=asyncio.subprocess.PIPE)
        out, error = await process.communicate()
        return process.returncode or 0, out.decode(), error.decode()

    async def _spawn(self, *arguments: str, output: int | IO[bytes]) -> asyncio.subprocess.Process:
        environment = {
            **os.environ,
            "MEMORY_DATABASE_URL": self.dsn,
            "MEMORY_EMBEDDER_URL": self.urls["first"],
            "MEMORY_MODEL": "first",
            "MEMORY_DIMENSIONS": str(DIMENSIONS),
            "MEMORY_LOG_FORMAT": "json",
            "MEMORY_BACKFILL_BATCH_SIZE": "64",
        }
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "memory_recall", *arguments, stdout=output, stderr=output, env=environment
        )

    @asynccontextmanager
    async def sync(self) -> AsyncIterator[None]:
        """Run `memory sync` until the block ends; if it ends by itself before, record an error."""
        with self._sync_log.open("wb") as log:
            process = await self._spawn("sync", output=log)
        watching = asyncio.create_task(self._record_end(process))
        try:
            yield
        finally:
            watching.cancel()
            if process.returncode is None:
                process.terminate()
                await process.wait()

    async def _record_end(self, process: asyncio.subprocess.Process) -> None:
        status = await process.wait()
        last = self._sync_log.read_text(encoding="utf-8").splitlines()[-_LOG_LINES:]
        self.event(f"sync ended by itself with status {status}: {' | '.join(last)}")
        self.errors.append(f"sync: ended by itself with status {status}")

    @asynccontextmanager
    async def embedder(self, name: str) -> AsyncIterator[None]:
        """Run an embedding server for the light model `name` until the block ends."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.urls[name] = f"http://127.0.0.1:{port}"
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "memory_bench.swap.embedder", name, str(port)
        )
        try:
            async with EmbedderClient(self.urls[name], name) as client, asyncio.timeout(180):
                await _until_it_answers(client)
            yield
        finally:
            process.terminate()
            await process.wait()

    async def prepare(self) -> None:
        """Fill the table, embed it with the first model and index it; write labelled questions for the swap's gate."""
        model = bare_model("first", DIMENSIONS)
        await self.server.template(_DATABASE, model, self.texts)
        for command in (("backfill", "--json"), ("index", "build", "--json")):
            code, _, error = await self.memory(*command)
            if code:
                raise typer.BadParameter(f"memory {command[0]} ended with status {code}: {error[-300:]}")
        generator = random.Random(5)  # noqa: S311  (a benchmark's data)
        chosen = generator.sample(range(len(self.texts)), _QUESTIONS)
        lines = [
            {"query_id": str(at), "text": question(self.texts[at], generator), "relevant_ids": [at + 1]}
            for at in chosen
        ]
        self._queries.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")

    async def watch(self) -> None:
        """Record every change of a swap's stage as an event, until the task is cancelled."""
        connection = await asyncpg.connect(self.dsn)
        seen = None
        try:
            while True:
                row = await connection.fetchrow("SELECT id, stage FROM memory_index_swaps ORDER BY id DESC LIMIT 1")
                if row is not None and tuple(row) != seen:
                    seen = tuple(row)
                    self.event(f"swap {row['id']} is {row['stage']}")
                await asyncio.sleep(0.1)
        finally:
            await connection.close()

    async def swap(self, name: str) -> dict[str, Any]:
        """Run `memory swap start` with the gate; return the exit status and the result.

        If the command fails, the last line of its error output is returned as well.
        """
        self.event(f"swap to {name} starts")
        code, out, error = await self.memory(
            "swap", "start", "--model", name, "--url", self.urls[name], "--queries", str(self._queries), "--json"
        )
        last = error.strip().splitlines()[-1] if error.strip() else ""
        self.event(f"swap to {name} ends with status {code}")
        return {"status": code, "result": json.loads(out) if out else None, "said": last[:600] if code else ""}


async def _until_it_answers(client: EmbedderClient) -> None:
    while True:
        try:
            await client.model_info()
        except EmbedderUnavailable:
            await asyncio.sleep(0.1)
        else:
            return


async def _measure(rows: int, recalls: float, writes: float) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="memory-bench-swap-")))
        server = await stack.enter_async_context(MeasuredServer())
        bench = SwapBench(server, directory, rows)
        for name in MODELS:
            await stack.enter_async_context(bench.embedder(name))
        await bench.prepare()
        await server.execute("ALTER SYSTEM RESET autovacuum")
        await server.execute("SELECT pg_reload_conf()")
        await stack.enter_async_context(bench.sync())
        pool = await asyncpg.create_pool(bench.dsn, min_size=1, max_size=12)
        stack.push_async_callback(pool.close)
        embedder = FollowingEmbedder(bench.urls["first"], "first")
        stack.push_async_callback(embedder.close)
        recall = HybridRecall(pool, embedder, embedding_budget=_EMBEDDING_BUDGET)
        stack.push_async_callback(recall.close)
        measured = await _under_load(bench, Load(recall, pool, bench.texts, began=bench.began), recalls, writes)
    return {**measured, "errors": [*measured["errors"], *bench.errors]}


async def _under_load(bench: SwapBench, load: Load, recalls: float, writes: float) -> dict[str, Any]:
    stop = asyncio.Event()
    for _ in range(20):
        await load.recall_once()
    load.record.recalls.clear()
    running = asyncio.create_task(load.run(recalls=recalls, writes=writes, stop=stop))
    watching = asyncio.create_task(bench.watch())
    bench.event("load starts")
    await asyncio.sleep(_WARM_SECONDS)
    swaps = {"bad": await bench.swap("bad")}
    await bench.memory("swap", "abort", "--yes", "--json")
    bench.event("swap to bad aborted")
    swaps["second"] = await bench.swap("second")
    await asyncio.sleep(_WARM_SECONDS)
    stop.set()
    await running
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching  # a watch that failed before must not go unnoticed
    bench.event("load ends")
    flipped = swaps["second"]["status"] == 0
    return {
        "rows": len(bench.texts),
        "recalls_per_second": recalls,
        "writes_per_second": writes,
        "events": bench.events,
        "swaps": swaps,
        "flipped": flipped,
        "instrument_sees_crossing": await _detects_wrong_model(bench) if flipped else None,
        "wrong_rows": await forbidden_vectors(bench.dsn, active_sign=MODELS["second"].sign) if flipped else None,
        **results.aggregate(load.record),
    }


async def _detects_wrong_model(bench: SwapBench) -> bool:
    """Return whether a search across models finds negative cosines only, by which the benchmark would notice it.

    The search compares the second model's vectors in the table with a vector of the first model. Recall does not refuse
    such a query here, because the query's vector names no model.
    """
    pool = await asyncpg.create_pool(bench.dsn, min_size=1, max_size=1)
    recall = HybridRecall(pool)
    text = bench.texts[0]
    vector = EmbeddedQuery(MODELS["first"].vector(text).tolist(), None)
    result = await recall.recall(RecallQuery(text, user_id=EVERYONE, mode="dense", vector=vector))
    await recall.close()
    await pool.close()
    scores = [memory.evidence.dense_score for memory in result.memories]
    return bool(scores) and all(score is not None and score < 0 for score in scores)


def swap(
    output: OutputOption = None,
    keep: KeepOption = False,
    rows: Annotated[int, typer.Option(help="Memories in the table.")] = 20_000,
    recalls: Annotated[float, typer.Option(help="Recalls a second.")] = 50,
    writes: Annotated[float, typer.Option(help="Writes a second.")] = 20,
) -> None:
    """Swap models under load, first to a model that the gate must refuse, then to a good model.

    The last line of output is JSON with the main figures.

    Example: python -m memory_bench swap --rows 20000
    """
    measured = asyncio.run(_measure(rows, recalls, writes))
    measured["machine"] = machine()
    output = results_directory("swap", output, keep=keep)
    results.write(output, measured)
    console.print(f"Results are in {output}.")
    print(json.dumps(results.headline(measured)))
