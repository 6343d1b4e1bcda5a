"""The command `latency`: compares the latency of recall with that of a plain design at several table sizes."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Annotated

import typer

from memory_bench.latency.measure import index_recall, lexical_overlap, measure
from memory_bench.latency.results import LARGE, SizeResult, figures, table, write
from memory_bench.latency.store import BYTES_PER_ROW, GRAPH_BYTES_PER_ROW, SETTINGS, Built, build
from memory_bench.postgres import MeasuredServer
from memory_bench.report import KeepOption, OutputOption, console, results_directory
from memory_bench.servers import CACHE

_SIZES = [5_000, 100_000, LARGE]


def latency(  # noqa: PLR0917  (typer makes options of them; nobody calls this by position)
    rows: Annotated[list[int] | None, typer.Option(help="Repeatable: a number of rows, a multiple of 5,000.")] = None,
    questions: Annotated[int, typer.Option(min=20, help="Timed questions for each size.")] = 200,
    checked: Annotated[
        int, typer.Option(min=1, help="Questions whose results are compared with those of exact search.")
    ] = 40,
    output: OutputOption = None,
    keep: KeepOption = False,
    cache: Annotated[Path, typer.Option(help="Where the databases are kept between runs.")] = CACHE / "latency",
    build_only: Annotated[bool, typer.Option("--build-only", help="Only fill the databases.")] = False,
    graph: Annotated[
        bool, typer.Option("--graph", help="Also fill a concept graph, and measure recalls with the graph leg.")
    ] = False,
) -> None:
    """Compare the latency of recall with that of a plain design (two queries, fusion in Python) at several table sizes.

    With --graph, recalls with the graph leg take turns with the others, and `graph_added_p95_ms` says what it adds.

    By default three sizes are measured, which takes 12 GB of disk, and half an hour at the first run. The last line of
    output is JSON with the main figures.

    Example: python -m memory_bench latency --rows 5000 --rows 100000
    """
    sizes = sorted(set(rows or _SIZES))
    _require_space(cache, sizes, BYTES_PER_ROW + (GRAPH_BYTES_PER_ROW if graph else 0))
    server = MeasuredServer(SETTINGS, cache)
    try:
        results = [
            asyncio.run(_measure_size(server, size, questions, checked, build_only=build_only, graph=graph))
            for size in sizes
        ]
    finally:
        server.close()
    done = [one for one in results if one is not None]
    if done:
        write(done, results_directory("latency", output, keep=keep))
        console.print(table(done), markup=False, highlight=False)
        print(json.dumps(figures(done)))


def _require_space(cache: Path, sizes: list[int], bytes_per_row: int) -> None:
    needed = sum(sizes) * bytes_per_row
    cache.mkdir(parents=True, exist_ok=True)
    kept = sum(file.stat().st_size for file in cache.rglob("*") if file.is_file())
    if shutil.disk_usage(cache).free < needed - kept:
        console.print(f"{cache} needs {(needed - kept) / 2**30:.0f} GiB more. Free it, or choose smaller --rows.")
        raise typer.Exit(1)


async def _measure_size(
    server: MeasuredServer, size: int, questions: int, checked: int, *, build_only: bool, graph: bool
) -> SizeResult | None:
    def say(what: str) -> None:
        console.print(f"{size:,} rows: {what}", highlight=False)

    built: Built = await build(server, size, say, graph=graph)
    if build_only:
        return None
    say("measuring")
    arms = await measure(built, questions, graph=graph)
    say("comparing with exact search")
    recall, overlap = await index_recall(built, checked), await lexical_overlap(built, checked)
    return SizeResult(size, tuple(arms), recall, overlap, built.seconds)
