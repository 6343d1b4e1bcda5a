"""The command `operator`: measures the operator of this checkout on a real cluster, part by part."""

import asyncio
import json
import time
import traceback
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from memory_bench.operator.api import api_of
from memory_bench.operator.parts import MINUTES, PARTS, PartResult, Surroundings
from memory_bench.operator.platform import Platform, running_platform
from memory_bench.operator.results import failures, headline, write
from memory_bench.report import console

RESULTS = Path(__file__).parents[2] / "results" / "operator"


async def _run(platform: Platform, names: list[str], sample: float) -> tuple[dict[str, PartResult], dict[str, float]]:
    results: dict[str, PartResult] = {}
    seconds: dict[str, float] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    async with api_of(platform.cluster) as api:
        with Progress(*columns, console=console) as progress:
            task = progress.add_task("", total=len(names))
            for number, name in enumerate(names):
                left = sum(MINUTES[other] for other in names[number:])

                def say(text: str, name: str = name, left: int = left) -> None:
                    line = f"{name}: {text}"
                    progress.update(task, description=f"{line} (about {left} min left)")
                    if not console.is_terminal:
                        console.print(f"{time.strftime('%H:%M:%S')} {line}", markup=False)

                began = time.monotonic()
                try:
                    results[name] = await PARTS[name](Surroundings(platform, api, sample, say))
                except Exception:  # noqa: BLE001  (the other parts are measured although this one failed)
                    results[name] = PartResult({}, {"failed": traceback.format_exc()})
                    console.print(f"{name} failed:\n{traceback.format_exc()}", markup=False)
                seconds[name] = round(time.monotonic() - began, 1)
                progress.advance(task)
    return results, seconds


def operator(
    only: Annotated[str, typer.Option(help=f"Run these parts alone, separated by commas: {', '.join(PARTS)}.")] = "",
    sample: Annotated[float, typer.Option(min=0.01, max=1, help="The share of the fault points that is tried.")] = 1.0,
    output: Annotated[Path, typer.Option(help="Directory of summary.json and the chart.")] = RESULTS,
) -> None:
    """Measure the operator on a real cluster with CloudNativePG; needs root or Docker, and some 80 minutes in all.

    Examples:
        python -m memory_bench operator
        python -m memory_bench operator --only scale --output /tmp/operator
        python -m memory_bench operator --only hostile,deletions
        python -m memory_bench operator --only faults --sample 0.1
    """
    names = [name.strip() for name in only.split(",") if name.strip()] or list(PARTS)
    unknown = set(names) - set(PARTS)
    if unknown:
        raise typer.BadParameter(f"There is no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}.")
    with running_platform() as platform:
        results, seconds = asyncio.run(_run(platform, names, sample))
    write(output, results, seconds)
    figures = headline(results)
    wrong = failures(figures) + [f"{name} failed" for name, result in results.items() if not result.figures]
    for line in wrong:
        console.print(line, markup=False)
    print(json.dumps(figures))
    raise typer.Exit(1 if wrong else 0)
