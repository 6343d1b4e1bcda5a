"""The command `python -m memory_bench operator`, which runs the operator's benchmark on a real cluster."""

import asyncio
import json
import time
import traceback
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from memory_bench.operator.parts import PARTS, PartResult, Surroundings
from memory_bench.operator.results import failures, headline, write
from memory_bench.report import OutputOption, console, results_directory
from tests.support.cluster.api import api_of
from tests.support.cluster.faults.points import SHARE
from tests.support.cluster.platform import Platform, running_platform


class _Display:
    """Shows which part of the benchmark runs, what it does, and how many minutes are left."""

    def __init__(self, progress: Progress, names: list[str]) -> None:
        self._progress = progress
        self._names = names
        self._task = progress.add_task("", total=len(names))

    def say(self, name: str, text: str) -> None:
        """Show what a part of the benchmark does now; if the output is no terminal, also print it."""
        left = sum(PARTS[other].minutes for other in self._names[self._names.index(name) :])
        self._progress.update(self._task, description=f"{name}: {text} (about {left} min left)")
        if not console.is_terminal:
            console.print(f"{time.strftime('%H:%M:%S')} {name}: {text}", markup=False)

    def finish(self, name: str, result: PartResult) -> None:
        """Count a part of the benchmark as finished, and print its figures or the error that ended it."""
        self._progress.advance(self._task)
        said = json.dumps(result.figures) if result.figures else f"failed\n{result.details['failed']}"
        console.print(f"{name}: {said}", markup=False)


async def _run(platform: Platform, names: list[str], sample: float, output: Path) -> dict[str, PartResult]:
    """Run the named parts of the benchmark one after the other, and write all results after each of them."""
    results: dict[str, PartResult] = {}
    seconds: dict[str, float] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    async with api_of(platform.cluster) as api:
        with Progress(*columns, console=console) as progress:
            display = _Display(progress, names)
            for name in names:
                began = time.monotonic()
                try:
                    given = Surroundings(platform, api, sample, partial(display.say, name))
                    results[name] = await PARTS[name].run(given)
                except Exception:  # noqa: BLE001  (the other parts are measured although this one failed)
                    results[name] = PartResult({}, {"failed": traceback.format_exc()})
                seconds[name] = round(time.monotonic() - began, 1)
                display.finish(name, results[name])
                write(output, results, seconds)
    return results


def operator(
    only: Annotated[str, typer.Option(help=f"Run these parts alone, separated by commas: {', '.join(PARTS)}.")] = "",
    sample: Annotated[
        float, typer.Option(min=0.01, max=1, help="The share of the fault points that is tried.")
    ] = SHARE,
    output: OutputOption = None,
) -> None:
    """Measure the operator on a real cluster with CloudNativePG; needs root or Docker, and some 70 minutes in all.

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
    directory = results_directory("operator", output)
    with running_platform() as platform:
        results = asyncio.run(_run(platform, names, sample, directory))
    figures = headline(results)
    wrong = failures(figures, share=sample) + [
        f"{name} failed" for name, result in results.items() if not result.figures
    ]
    for line in wrong:
        console.print(line, markup=False)
    print(json.dumps(figures))
    raise typer.Exit(1 if wrong else 0)
