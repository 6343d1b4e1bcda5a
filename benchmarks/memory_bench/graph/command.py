"""The command `graph`: measures the concept graph as a third leg and says what the rules of ADR 26 make of it."""

import asyncio
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from memory_bench.graph.ablation import ablate
from memory_bench.graph.choice import MULTIHOP, has_multihop, nested
from memory_bench.graph.nearness import THRESHOLDS, same_concepts, shared_concepts
from memory_bench.graph.sets import GraphMeasurements, GraphScores, measure_graph, score_graph
from memory_bench.graph.settings import Setting
from memory_bench.graph.tables import write
from memory_bench.graph.verdict import chosen_by_public_sets, judge
from memory_bench.harness.dataset import Dataset, DatasetError, Memory
from memory_bench.harness.vectors import embed_dataset
from memory_bench.report import KeepOption, OutputOption, console, results_directory
from memory_bench.servers import CACHE, DEFAULT_MODEL, ServerDidNotStartError, memory_embedder
from memory_bench.studies.measured_sets import load_sets, measure_set
from memory_bench.studies.questions import LabelledSet
from memory_recall import MemoryIndexError


@dataclass(frozen=True, slots=True)
class _Measured:
    """One set and its scores in all settings."""

    plain: LabelledSet
    scores: GraphMeasurements


def graph(  # noqa: PLR0917  (typer makes options of them; nobody calls this by position)
    datasets: Annotated[Path, typer.Argument(help="A directory of labelled sets (docs/recall.md).")],
    output: OutputOption = None,
    keep: KeepOption = False,
    model: Annotated[str, typer.Option(help="A profile's name.")] = DEFAULT_MODEL,
    model_file: Annotated[
        Path | None, typer.Option(help="The model's GGUF file; default: <cache>/models/<model>.gguf.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The seed of the resampling.")] = 0,
) -> None:
    """Measure a concept graph as a third leg of recall, on every labelled set below a directory and examples/homelab.

    It takes about ten minutes on two processors if the cache has the vectors. The last line of output is JSON: the
    gains on multi-hop questions out of fold, the set that fares worst, and the verdict.

    Example: python -m memory_bench graph ../shared/datasets
    """
    directory = results_directory("graph", output, keep=keep)
    try:
        loaded = load_sets(datasets)
        with (
            tempfile.TemporaryDirectory(prefix="memory-bench-graph-") as scratch,
            memory_embedder(
                model_file or CACHE / "models" / f"{model}.gguf", Path(scratch, "embedder.log"), ["--model", model]
            ) as server,
        ):
            measured = [_measure(one, server.url, seed) for one in loaded]
            scores = [one.scores for one in measured]
            sets, prompts = [one.second for one in scores], [one.prompts for one in scores]
            place = chosen_by_public_sets(sets, prompts) if has_multihop(sets) else None
            shipped = None if place is None else sets[0].settings[place]
            near = [] if shipped is None else _with_near_concepts(measured, shipped, server.url)
    except (DatasetError, MemoryIndexError, ServerDidNotStartError) as error:
        console.print(str(error), markup=False)
        raise typer.Exit(1) from None
    if not has_multihop(sets):
        console.print(f"No set in {datasets} has questions of the stratum {MULTIHOP}.", markup=False)
        raise typer.Exit(1)
    outcome = judge(scores, seed=seed, near=near)
    ablation = {
        each.judged: ablate(one.plain, None if each.setting is None else sets[0].settings[each.setting])
        for one, each in zip(measured, nested(sets, prompts), strict=True)
    }
    write(scores, outcome, directory, near=near, ablation=ablation, model=model, seed=seed)
    print(json.dumps({"graph": outcome.figures()}))


def _measure(dataset: Dataset, url: str, seed: int) -> _Measured:
    found = measure_set(dataset, url, seed=seed)
    return _Measured(found.plain, measure_graph(found.plain, found.prompts))


def _with_near_concepts(measured: Sequence[_Measured], setting: Setting, url: str) -> list[list[GraphScores]]:
    """Score the sets in one setting for each threshold of nearness, from which on concepts are made one."""
    found: list[list[GraphScores]] = [[] for _ in THRESHOLDS]
    for one in measured:
        dataset = one.plain.dataset
        concepts = shared_concepts(dataset.memories, setting[0].source)
        named = replace(dataset, memories=tuple(Memory(place, name) for place, name in enumerate(concepts)))
        vectors = asyncio.run(embed_dataset(named, url)).memories
        for scored, threshold in zip(found, THRESHOLDS, strict=True):
            same = same_concepts(concepts, vectors, threshold)
            scored.append(score_graph(one.plain, [setting], same))
    return found
