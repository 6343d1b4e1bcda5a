"""The command `times`: measures whether the periods that memories name help the boost, by the rule of ADR 33."""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from memory_bench.harness.dataset import DatasetError
from memory_bench.report import KeepOption, OutputOption, console, results_directory
from memory_bench.servers import DEFAULT_MODEL, DEFAULT_MODEL_FILE, ServerDidNotStartError, memory_embedder
from memory_bench.studies.measured_sets import MeasuredSet, load_sets, measure_set
from memory_bench.times.boosting import score_times
from memory_bench.times.coverage import cover
from memory_bench.times.expressions import FINDERS
from memory_bench.times.memory_times import IMPORTED, MemoryTimes, read_times, summarise
from memory_bench.times.settings import all_settings
from memory_bench.times.tables import TimesStudy, write
from memory_bench.times.verdict import CHOOSING_SET, judge
from memory_recall import MemoryIndexError


def times(
    datasets: Annotated[Path, typer.Argument(help="A directory of labelled sets (docs/recall.md).")],
    output: OutputOption = None,
    keep: KeepOption = False,
    seed: Annotated[int, typer.Option(help="The seed of the resampling.")] = 0,
) -> None:
    """Measure the boost of named times with the periods that memories' texts name, on every set and examples/homelab.

    The set `locomo` must be among them: its questions name times and choose the setting. It takes about five minutes
    on two processors if the cache has the vectors. The last line of output is JSON: the gains on questions that name a
    time, out of fold, what fares worst, and the verdict.

    Example: python -m memory_bench times ../shared/datasets
    """
    try:
        loaded = load_sets(datasets)
        if CHOOSING_SET not in {one.name for one in loaded}:
            console.print(f"There is no set {CHOOSING_SET} in {datasets}; only its questions can choose.", markup=False)
            raise typer.Exit(1)
        with (
            tempfile.TemporaryDirectory(prefix="memory-bench-times-") as scratch,
            memory_embedder(DEFAULT_MODEL_FILE, Path(scratch, "embedder.log")) as server,
        ):
            measured = [measure_set(one, server.url, seed=seed) for one in loaded]
    except (DatasetError, MemoryIndexError, ServerDidNotStartError) as error:
        console.print(str(error), markup=False)
        raise typer.Exit(1) from None
    study = study_sets(measured, seed=seed)
    write(study, results_directory("times", output, keep=keep), model=DEFAULT_MODEL, seed=seed)
    print(json.dumps({"times": study.outcome.figures()}))


def study_sets(measured: Sequence[MeasuredSet], *, seed: int) -> TimesStudy:
    """Find the periods of all memories, score all settings, and judge; LoCoMo must be among the sets."""
    settings, found = all_settings(), [read_times(one.plain.dataset.memories) for one in measured]
    pairs = list(zip(measured, found, strict=True))
    sets = [score_times(one.plain, each, settings) for one, each in pairs]
    prompts = [score_times(one.prompts, each, settings) for one, each in pairs]
    captures = {one.plain.dataset.name: {finder: summarise(each, finder) for finder in FINDERS} for one, each in pairs}
    dated = {one.plain.dataset.name for one, each in pairs if _has_times(each)}
    counted = {name: taken for name, taken in captures.items() if name in dated}
    coverage = {one.plain.dataset.name: cover(one.plain, each) for one, each in pairs}
    return TimesStudy(sets, prompts, captures, coverage, judge(sets, prompts, counted, seed=seed))


def _has_times(found: MemoryTimes) -> bool:
    """Return whether the set says when its memories were created."""
    return set(found.created.values()) != {IMPORTED}
