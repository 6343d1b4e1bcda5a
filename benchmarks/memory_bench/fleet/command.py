"""The command `fleet`: many MemoryIndex objects that change at once, and many recalls of a large table."""

import asyncio
import json
import shutil
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from memory_bench.fleet.objects import measure_objects
from memory_bench.fleet.recalls import measure_recalls
from memory_bench.fleet.results import ChangeResult, RateResult, draw, figures, table
from memory_bench.fleet.store import BYTES_PER_ROW
from memory_bench.report import OutputOption, console, results_directory, write_json
from tests.support.model_files.cache import CACHE

_RATES = [10.0, 25.0, 50.0, 100.0, 200.0]


class Part(StrEnum):
    """What can be measured by itself."""

    OBJECTS = "objects"
    RECALLS = "recalls"


def fleet(  # noqa: PLR0917  (typer makes options of them; nobody calls this by position)
    only: Annotated[Part | None, typer.Option(help="Measure this part alone.")] = None,
    indexes: Annotated[int, typer.Option(min=2, help="MemoryIndex objects.")] = 500,
    changed: Annotated[int, typer.Option(min=1, help="Objects that change at once.")] = 50,
    rows: Annotated[int, typer.Option(min=5000, help="Rows of the table, a multiple of 5,000.")] = 3_000_000,
    users: Annotated[int, typer.Option(min=1, help="Users, each with a partition of the table.")] = 20,
    rate: Annotated[list[float] | None, typer.Option(min=1, help="Repeatable: recalls a second.")] = None,
    seconds: Annotated[float, typer.Option(min=1, help="How long recalls are begun at each rate.")] = 20.0,
    model_file: Annotated[Path, typer.Option(exists=True, help="all-MiniLM-L6-v2 as GGUF.")] = (
        CACHE / "models" / "all-MiniLM-L6-v2.gguf"
    ),
    output: OutputOption = None,
    cache: Annotated[Path, typer.Option(help="Where the filled table is kept between runs.")] = CACHE / "fleet",
) -> None:
    """Measure many MemoryIndex objects that change at once, and recalls of a large table at growing rates.

    The objects need root or Docker, as the development cluster does. The recalls search two instances of Postgres on
    this machine through PgBouncer, each user's in a partition. By default they take some 33 GB of disk, and
    at the first run about an hour to fill the table. The last line of output is JSON with the main figures.

    Example: python -m memory_bench fleet --only recalls --rows 300000

    Short example: python -m memory_bench fleet --only recalls --rows 5000 --users 2 --rate 5 --seconds 2
    """
    directory = results_directory("fleet", output)
    directory.mkdir(parents=True, exist_ok=True)
    found: ChangeResult | None = None
    rates: list[RateResult] = []
    if only is not Part.RECALLS:
        found = asyncio.run(measure_objects(indexes, changed, console.print))
    if only is not Part.OBJECTS:
        _require_space(cache, rows)
        log = directory / "embedder.log"
        rates = asyncio.run(
            measure_recalls(
                model_file, cache, log, rows=rows, users=users, rates=rate or _RATES, seconds=seconds, say=console.print
            )
        )
        console.print(table(rates), markup=False, soft_wrap=True)
        draw(rates, directory / "fleet.png")
    main = {**figures(found, rates), **({"rows": rows, "users": users} if rates else {})}
    written: dict[str, Any] = {"figures": main, "rates": [_said(one) for one in rates]}
    write_json(directory / "fleet.json", {**written, "changed": None if found is None else asdict(found)})
    print(json.dumps(main))


def _said(one: RateResult) -> dict[str, Any]:
    return {**asdict(one), "binds": one.binds, "processor_ms_per_recall": one.milliseconds_per_recall}


def _require_space(cache: Path, rows: int) -> None:
    cache.mkdir(parents=True, exist_ok=True)
    kept = sum(file.stat().st_size for file in cache.rglob("*") if file.is_file())
    needed = 2 * rows * BYTES_PER_ROW - kept
    if shutil.disk_usage(cache).free < needed:
        console.print(f"{cache} needs {needed / 2**30:.0f} GiB more. Free it, or choose fewer --rows.")
        raise typer.Exit(1)
