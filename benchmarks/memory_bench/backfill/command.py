"""The command `backfill`: measures the throughput of backfills beside upper bounds."""

import asyncio
import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from memory_bench.backfill import killed_worker, null_embedder, real_embedder, user_updates
from memory_bench.harness.dataset import Dataset, DatasetError, load_dataset
from memory_bench.postgres import MeasuredServer
from memory_bench.report import OutputOption, console, machine, results_directory, write_json
from tests.support.model_files.cache import CACHE


def backfill(  # noqa: PLR0917  (typer makes options of them; nobody calls this by position)
    dataset: Annotated[Path, typer.Option(help="A labelled set, whose memories the real embedder embeds.")],
    output: OutputOption = None,
    model: Annotated[str, typer.Option(help="Profile of the real embedder's model.")] = "all-MiniLM-L6-v2",
    model_file: Annotated[
        Path | None, typer.Option(help="Its GGUF file; by default the one that `make setup` made.")
    ] = None,
    real_rows: Annotated[int, typer.Option(help="The most memories for the real embedder; 0 for all.")] = 0,
    real_seconds: Annotated[
        float, typer.Option(help="Seconds of repeated pairs of runs with the real embedder.")
    ] = 450,
    rows: Annotated[int, typer.Option(help="Rows for the null embedder, and those that users update.")] = 100_000,
    small: Annotated[
        int, typer.Option(help="Rows of the smaller run, whose peak memory the other is compared with.")
    ] = 10_000,
    null_seconds: Annotated[float, typer.Option(help="Seconds of repeated rounds with the null embedder.")] = 60,
) -> None:
    """Measure the throughput of backfills beside upper bounds; the last line of output is JSON with the main figures.

    Example: python -m memory_bench backfill --dataset examples/homelab
    """
    try:
        loaded = load_dataset(dataset)
    except DatasetError as error:
        raise typer.BadParameter(str(error)) from None
    file = model_file or CACHE / "models" / f"{model}.gguf"
    texts = [memory.content for memory in loaded.memories][: real_rows or None]

    async def measure() -> dict[str, Any]:
        async with MeasuredServer() as server:
            console.print(f"Null embedder: {rows:,} rows against a bare update loop, for {null_seconds:g} s")
            null = await null_embedder.measure(server, rows=rows, small=small, seconds=null_seconds, most=7)
            console.print(f"Four workers, one killed: {rows // 5:,} rows")
            double = await killed_worker.measure(server, rows=rows // 5)
            console.print(f"Users update {rows:,} rows, {user_updates.UPDATES_A_ROW} times each")
            updates = await user_updates.measure(server, rows=rows)
            console.print(
                f"Real embedder ({model}): {len(texts):,} memories of {loaded.name}, pairs for {real_seconds:g} s"
            )
            real = await real_embedder.measure(server, texts, model=model, file=file, seconds=real_seconds, most=5)
        parts = {"embedder": real, "null": null, "double": double, "updates": updates}
        return {**parts, "machine": machine(), "dataset": _described(loaded)}

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the server and the embedder end with us
    measured = asyncio.run(measure())
    output = results_directory("backfill", output)
    figures = headline(measured)
    write_json(output / "results.json", {"headline": figures, **measured})
    console.print(f"Results are in {output}.")
    print(json.dumps(figures))


def headline(results: Mapping[str, Any]) -> dict[str, float | int]:
    """Return the benchmark's five main figures.

    `rss_growth` is how much more memory the larger backfill needs than the smaller one, as a fraction: 0.02 means 2 %.
    `user_update_ratio` is how many times as long as before its adoption updates of a table take.
    """
    return {
        "vs_embedder": round(results["embedder"]["vs_embedder"], 3),
        "null_vs_bare_update": round(results["null"]["null_vs_bare_update"], 3),
        "rss_growth": round(results["null"]["rss_growth"], 3),
        "double_embedded": results["double"]["double_embedded"],
        "user_update_ratio": round(results["updates"]["user_update_ratio"], 2),
    }


def _described(dataset: Dataset) -> dict[str, object]:
    return {"name": dataset.name, "sha256": dataset.digest, "memories": len(dataset.memories)}
