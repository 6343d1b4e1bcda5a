"""The command `shared-table`: measures how much migration and index slow down other users of a shared table."""

import asyncio
import json
import signal
from pathlib import Path
from typing import Annotated, Any

import typer

from memory_bench.postgres import MeasuredServer
from memory_bench.report import (
    KeepOption,
    OutputOption,
    chart,
    console,
    grouped_bars,
    machine,
    results_directory,
    write_json,
)
from memory_bench.shared_table import updates as update_costs
from memory_bench.shared_table import waits


def shared_table(  # noqa: PLR0917  (typer makes options of them; nobody calls this by position)
    output: OutputOption = None,
    keep: KeepOption = False,
    rows: Annotated[int, typer.Option(help="Rows of the table that other users read and write.")] = 50_000,
    indexed_rows: Annotated[int, typer.Option(help="Rows of the tables whose updates are measured.")] = 20_000,
    updates: Annotated[int, typer.Option(help="Updates of each kind.")] = 2_000,
    seconds: Annotated[float, typer.Option(help="Seconds of statements of other users without a migration.")] = 10,
) -> None:
    """Measure how much a migration, an index build and the HNSW index slow down other users of a shared table.

    The last line of output is JSON with the main figures.

    Example: python -m memory_bench shared-table --rows 20000
    """

    async def measure() -> dict[str, Any]:
        async with MeasuredServer() as server:
            console.print(f"{waits.USERS} users of a table of {rows:,} rows while it is migrated and indexed")
            waited = await waits.measure(server, rows=rows, seconds=seconds)
            console.print(f"{updates:,} updates of each kind on {indexed_rows:,} rows")
            costs = await update_costs.measure(server, rows=indexed_rows, updates=updates)
        return {"waits": waited, "updates": costs, "machine": machine()}

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the server ends with us
    results = asyncio.run(measure())
    output = results_directory("shared_table", output, keep=keep)
    write_json(output / "results.json", results)
    _chart(output / "shared_table.svg", results)
    console.print(f"Results are in {output}.")
    print(json.dumps(_headline(results)))


def _headline(results: dict[str, Any]) -> dict[str, float]:
    plain, full, spare, *_ = (case["median_us"] for case in results["updates"])
    return {
        "longest_wait_ms": round(results["waits"]["longest_wait_ms"], 1),
        "undisturbed_longest_ms": round(results["waits"]["undisturbed"]["longest_ms"], 1),
        "indexed_update_cost": round(full / plain, 2),
        "indexed_update_cost_with_room": round(spare / plain, 2),
    }


def _chart(path: Path, results: dict[str, Any]) -> None:
    phases = {name: phase for name, phase in results["waits"].items() if isinstance(phase, dict)}
    with chart(path, columns=2, size=(11, 3.8)) as (left, right):
        shown = {"99th percentile": "p99_ms", "longest": "longest_ms"}
        grouped_bars(left, list(phases), {name: [p[key] for p in phases.values()] for name, key in shown.items()})
        for bars in left.containers:
            left.bar_label(bars, fmt="{:.0f}")
        left.axhline(200, color="#b23b3b", linewidth=1, linestyle="--")
        left.set(title="Statements of other users", ylabel="milliseconds")
        left.legend()
        cases = results["updates"]
        bars = right.barh([case["name"] for case in cases], [case["median_us"] for case in cases], color="#3b6ea5")
        right.bar_label(bars, labels=[f"{case['median_us']:.0f} ({case['in_place']:.0%} in place)" for case in cases])
        right.invert_yaxis()
        right.margins(x=0.3)
        right.set(title="An update that changes no vector", xlabel="microseconds, median")
