"""The command `latency`: compares the latency of recall with that of a plain design at several table sizes."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Annotated

import typer

from memory_bench.latency.conditions import COLD, WARM, Effort, Measured, measure, measure_in_turn, questions
from memory_bench.latency.designs import OURS, Ours, designs
from memory_bench.latency.exact_search import index_recall, lexical_overlap
from memory_bench.latency.results import LARGE, SMALL, InTurn, SizeResult, figures, table, write
from memory_bench.latency.store import (
    BYTES_PER_ROW,
    GRAPH_BYTES_PER_ROW,
    SETTINGS,
    Built,
    build,
    database_name,
    has_huge_pages,
)
from memory_bench.latency.warming import measure_warming
from memory_bench.postgres import MeasuredServer
from memory_bench.report import OutputOption, console, results_directory
from tests.support.model_files.cache import CACHE

_SIZES = [5_000, 100_000, LARGE]
_KEPT_BYTES = 2**20  # of the server's files in memory after their pages were given back; more is reported


def latency(  # noqa: PLR0917  (typer makes options of them; nobody calls this by position)
    rows: Annotated[list[int] | None, typer.Option(help="Repeatable: a number of rows, a multiple of 5,000.")] = None,
    timed: Annotated[int, typer.Option("--questions", min=20, help="Timed questions of a warm measurement.")] = 200,
    warm_up: Annotated[
        int,
        typer.Option(min=1, help="Questions that a design answers before a warm measurement, for a minute at most."),
    ] = 500,
    cold_rounds: Annotated[
        int,
        typer.Option(min=1, help="Rounds of a cold measurement: caches are dropped, then 30 questions are timed."),
    ] = 5,
    checked: Annotated[
        int, typer.Option(min=1, help="Questions whose results are compared with those of exact search.")
    ] = 40,
    output: OutputOption = None,
    cache: Annotated[Path, typer.Option(help="Where the databases are kept between runs.")] = CACHE / "latency",
    build_only: Annotated[bool, typer.Option("--build-only", help="Only fill the databases.")] = False,
    graph: Annotated[
        bool, typer.Option("--graph", help="Also fill a concept graph, and measure recalls with the graph leg.")
    ] = False,
) -> None:
    """Compare the latency of recall with that of a plain design (two queries, fusion in Python) at several table sizes.

    Each design is measured by itself, with warm and with cold caches: before each measurement Postgres is restarted and
    the pages of its files are given back to the kernel. Then the smallest and the largest size are measured in turn,
    which `p95_1m_vs_5k` is taken from. Huge pages are used where the machine has enough of them
    reserved (sysctl vm.nr_hugepages), and the table says so. With --graph, recalls with the graph leg are measured too,
    and `graph_added_p95_ms` says what it adds.

    By default three sizes are measured, which takes 12 GB of disk, and at the first run half an hour to fill the
    databases. The last line of output is JSON with the main figures.

    Example: python -m memory_bench latency --rows 5000 --rows 100000

    Short example: python -m memory_bench latency --rows 5000 --questions 50 --warm-up 100 --cold-rounds 1
    """
    sizes = sorted(set(rows or _SIZES))
    _require_space(cache, sizes, BYTES_PER_ROW + (GRAPH_BYTES_PER_ROW if graph else 0))
    effort = Effort(timed, warm_up, cold_rounds)
    server = MeasuredServer(SETTINGS, cache)
    try:
        results = [
            asyncio.run(_measure_size(server, size, effort, checked, build_only=build_only, graph=graph))
            for size in sizes
        ]
        in_turn = None if build_only or not {SMALL, LARGE} <= set(sizes) else asyncio.run(_in_turn(server, effort))
    finally:
        server.close()
    done = [one for one in results if one is not None]
    if done:
        write(done, in_turn, results_directory("latency", output))
        console.print(table(done), markup=False, highlight=False, soft_wrap=True)
        print(json.dumps(figures(done, in_turn)))


async def _in_turn(server: MeasuredServer, effort: Effort) -> InTurn:
    """Measure our recall at both sizes of `p95_1m_vs_5k` in turn."""
    console.print("measuring the smallest and the largest size in turn", highlight=False)
    asked = {database_name(size): questions(size, effort) for size in (SMALL, LARGE)}
    small, large = (await measure_in_turn(server, Ours(OURS), asked)).values()
    return InTurn(small, large)


def _require_space(cache: Path, sizes: list[int], bytes_per_row: int) -> None:
    needed = sum(sizes) * bytes_per_row
    cache.mkdir(parents=True, exist_ok=True)
    kept = sum(file.stat().st_size for file in cache.rglob("*") if file.is_file())
    if shutil.disk_usage(cache).free < needed - kept:
        console.print(f"{cache} needs {(needed - kept) / 2**30:.0f} GiB more. Free it, or choose smaller --rows.")
        raise typer.Exit(1)


async def _measure_size(
    server: MeasuredServer, size: int, effort: Effort, checked: int, *, build_only: bool, graph: bool
) -> SizeResult | None:
    def say(what: str) -> None:
        console.print(f"{size:,} rows: {what}", highlight=False)

    built: Built = await build(server, size, say, graph=graph)
    if build_only:
        return None
    asked = questions(size, effort)
    arms: list[Measured] = []
    for design in designs(graph=graph):
        say(f"measuring {design.name}, warm and cold")
        arms += await measure(server, built.database, design, asked)
    say("measuring what reading ahead gives")
    cold = next(one.milliseconds for one in arms if (one.arm, one.condition) == (OURS, COLD))
    warming = await measure_warming(server, built.database, Ours(OURS), asked, cold)
    kept = max(one.kept_bytes for one in arms)
    if kept > _KEPT_BYTES:
        say(
            f"{kept / 2**20:.0f} MiB of the server's files stayed in memory when their pages were given back, so cold "
            f"figures are too low. Put --cache on a file system with a disk, and let no other process map its files."
        )
    if not all(one.in_memory for one in arms if one.condition == WARM):
        say(
            "The databases do not fit into the free memory, so warm figures have reads from the disk in them. Measure "
            "fewer --rows, or free some memory."
        )
    say("comparing with exact search")
    dsn = server.dsn(built.database)
    recall, overlap = await index_recall(dsn, size, checked), await lexical_overlap(dsn, size, checked)
    huge_pages = await has_huge_pages(dsn)
    return SizeResult(size, tuple(arms), recall, overlap, built.seconds, built.sizes, huge_pages, warming)
