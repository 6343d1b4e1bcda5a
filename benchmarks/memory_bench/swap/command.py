"""The command `swap`: swaps models while memories are recalled and written."""

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import IO, Annotated, Any

import asyncpg
import typer

from memory_bench.postgres import MeasuredServer
from memory_bench.report import REPOSITORY, OutputOption, console, machine, results_directory
from memory_bench.swap import results
from memory_bench.swap.light import LightSetting
from memory_bench.swap.load import Load, Recalled
from memory_bench.swap.real import RealSetting
from memory_bench.swap.setting import Detector, Setting
from memory_recall import EVERYONE, EmbeddedQuery, FollowingEmbedder, HybridRecall, RecallOptions, RecallQuery
from tests.support.model_files.cache import SECOND_MODEL_FILE

_DATABASE = "swap"
_WARM_SECONDS = 5.0
_EMBEDDING_BUDGET = 0.5  # the load, the workers and the database share the machine's few processors here
_LOG_LINES = 12  # of a sync worker that ended by itself; a crash tells its class and frames
_DELIBERATE = 20  # searches across models, by which the benchmark shows that it would see one
_SEEN = 0.9  # of their results, in which a comparison must be recognised


class Models(StrEnum):
    """The kind of models that the benchmark swaps."""

    LIGHT = "light"
    REAL = "real"


class SwapBench:
    """The database, processes, event log and errors of one run of the swap benchmark."""

    def __init__(self, server: MeasuredServer, directory: Path, setting: Setting) -> None:
        self.dsn = server.dsn(_DATABASE)
        self.setting = setting
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
            "MEMORY_EMBEDDER_URL": self.urls[self.setting.former.name],
            "MEMORY_MODEL": self.setting.former.name,
            "MEMORY_DIMENSIONS": str(self.setting.former.dimensions),
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

    async def prepare(self) -> None:
        """Fill the table, embed it with the former model and index it; write labelled questions for the swap's gate."""
        memories = self.setting.memories
        await self.server.template(_DATABASE, self.setting.former, memories.texts)
        connection = await asyncpg.connect(self.dsn)
        await connection.execute(
            "UPDATE memories SET is_sensitive = true WHERE id = ANY($1::bigint[])", list(memories.sensitive)
        )
        await connection.close()
        for command in (("backfill", "--json"), ("index", "build", "--json")):
            code, _, error = await self.memory(*command)
            if code:
                raise typer.BadParameter(f"memory {command[0]} ended with status {code}: {error[-300:]}")
        self._queries.write_text("\n".join(json.dumps(line) for line in memories.questions), encoding="utf-8")

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


async def _measure(models: Models, rows: int | None, recalls: float | None, writes: float | None) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="memory-bench-swap-")))
        light = models is Models.LIGHT
        rows = rows or (20_000 if light else 500)
        setting: Setting = (
            LightSetting(rows) if light else RealSetting(REPOSITORY / "examples/homelab", directory, invented=rows)
        )
        server = await stack.enter_async_context(MeasuredServer())
        bench = SwapBench(server, directory, setting)
        for name in (setting.former.name, setting.good, setting.bad):
            bench.urls[name] = stack.enter_context(setting.serve(name, directory / f"{name}.log"))
        await bench.prepare()
        await server.execute("ALTER SYSTEM RESET autovacuum")
        await server.execute("SELECT pg_reload_conf()")
        await stack.enter_async_context(bench.sync())
        pool = await asyncpg.create_pool(bench.dsn, min_size=1, max_size=12)
        stack.push_async_callback(pool.close)
        embedder = FollowingEmbedder(bench.urls[setting.former.name], setting.former.name)
        stack.push_async_callback(embedder.close)
        recall = HybridRecall(pool, embedder, RecallOptions(embedding_budget=_EMBEDDING_BUDGET))
        stack.push_async_callback(recall.close)
        texts = setting.memories.texts
        written = {number: texts[number - 1] for number in setting.memories.written}
        load = Load(recall, pool, setting.ask, written, began=bench.began)
        measured = await _under_load(bench, load, recalls or (50 if light else 10), writes or (20 if light else 5))
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
    swaps = {"bad": await bench.swap(bench.setting.bad)}
    await bench.memory("swap", "abort", "--yes", "--json")
    bench.event(f"swap to {bench.setting.bad} aborted")
    swaps["good"] = await bench.swap(bench.setting.good)
    await asyncio.sleep(_WARM_SECONDS)
    stop.set()
    await running
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching  # a watch that failed before must not go unnoticed
    bench.event("load ends")
    flipped = swaps["good"]["status"] == 0
    detector = bench.setting.detector(bench.urls)
    await detector.prepare(load.record.recalls)
    return {
        "models": {"former": bench.setting.former.name, "good": bench.setting.good, "bad": bench.setting.bad},
        "rows": len(bench.setting.memories.texts),
        "recalls_per_second": recalls,
        "writes_per_second": writes,
        "events": bench.events,
        "swaps": swaps,
        "flipped": flipped,
        "instrument_sees_crossing": await _detects_wrong_model(bench, detector) if flipped else None,
        "wrong_rows": await detector.wrong_rows(bench.dsn) if flipped else None,
        **results.aggregate(load.record, sum(detector.crossings(one) for one in load.record.recalls)),
    }


async def _detects_wrong_model(bench: SwapBench, detector: Detector) -> bool:
    """Return whether the benchmark recognises searches across models.

    The searches compare the good model's vectors in the table with vectors of the former model. Recall does not refuse
    such a query here, because the query's vector names no model.
    """
    pool = await asyncpg.create_pool(bench.dsn, min_size=1, max_size=1)
    recall = HybridRecall(pool)
    made: list[Recalled] = []
    for line in bench.setting.memories.questions[:_DELIBERATE]:
        text = str(line["text"])
        vector = EmbeddedQuery(await detector.query_of_former_model(text), None)
        result = await recall.recall(RecallQuery(text, user_id=EVERYONE, mode="dense", vector=vector))
        scores = ((memory.content, memory.evidence.dense_score) for memory in result.memories)
        made.append(
            Recalled(text, 0, 0, None, tuple((content, score) for content, score in scores if score is not None))
        )
    await recall.close()
    await pool.close()
    await detector.prepare(made)
    found = sum(len(one.scores) for one in made)
    return found > 0 and sum(detector.crossings(one) for one in made) >= _SEEN * found


def swap(
    output: OutputOption = None,
    models: Annotated[Models, typer.Option(help="Light models, or two real ones of one dimension.")] = Models.LIGHT,
    rows: Annotated[int | None, typer.Option(help="Invented memories in the table; default 20000, real: 500.")] = None,
    recalls: Annotated[float | None, typer.Option(help="Recalls a second; default 50, real: 10.")] = None,
    writes: Annotated[float | None, typer.Option(help="Writes a second; default 20, real: 5.")] = None,
) -> None:
    """Swap models under load, first to a model that the gate must refuse, then to a good model.

    The last line of output is JSON with the main figures.

    Examples:
        python -m memory_bench swap --rows 20000
        python -m memory_bench swap --models real
    """
    if models is Models.REAL and not SECOND_MODEL_FILE.exists():
        raise typer.BadParameter(f"{SECOND_MODEL_FILE} is missing; make it with: make second-model")
    measured = asyncio.run(_measure(models, rows, recalls, writes))
    measured["machine"] = machine()
    output = results_directory("swap" if models is Models.LIGHT else "swap-real", output)
    results.write(output, measured)
    console.print(f"Results are in {output}.")
    print(json.dumps(results.headline(measured)))
