"""The command `recall`: measures every labelled set and writes the recall report."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from memory_bench.harness.dataset import Dataset, DatasetError, load_dataset
from memory_bench.harness.manifest import manifest
from memory_bench.harness.retrievers import make_retriever
from memory_bench.harness.runner import run
from memory_bench.harness.set_report import write_results
from memory_bench.harness.vectors import embed_dataset
from memory_bench.postgres import BenchmarkDatabase
from memory_bench.recall.costs import measure_costs
from memory_bench.recall.graph_leg import GRAPH
from memory_bench.recall.languages import MODEL, MODEL_TARGET, Figures, is_of_languages, measure_languages
from memory_bench.recall.long_texts import SET, measure_long_texts, rows
from memory_bench.recall.model_table import model_by_model
from memory_bench.recall.production import BY_IMPORTANCE, HYBRID
from memory_bench.recall.prompts import in_prompts
from memory_bench.recall.relevance.measure import (
    Floor,
    measure_all_languages,
    measure_fitted,
    measure_other,
    without_details,
    write_relevance,
)
from memory_bench.recall.relevance.stores import can_be_judged
from memory_bench.recall.tables import SetMeasurements, figures, write
from memory_bench.report import REPOSITORY, OutputOption, console, results_directory
from memory_bench.servers import Server, ServerDidNotStartError, memory_embedder
from memory_recall import MemoryIndexError
from tests.support.model_files.cache import CACHE, DEFAULT_MODEL

RETRIEVERS = (
    "sqlite-fts5",
    "pg-ts-rank",
    "pg-bm25",
    "dense-exact",
    "dense-hnsw",
    HYBRID,
    GRAPH,
    "plain-rrf-60",
    *BY_IMPORTANCE.values(),
)
_OWN_DIRECTORY = REPOSITORY / "examples" / "homelab"


def recall(  # noqa: PLR0917  (typer makes options of them; nobody calls this by position)
    datasets: Annotated[Path, typer.Argument(help="A directory of labelled sets (benchmarks/README.md).")],
    output: OutputOption = None,
    only: Annotated[list[str] | None, typer.Option(help="Repeatable: only the sets of these names.")] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Repeatable: a profile's name; default: {DEFAULT_MODEL}. All others are compared with the first."
        ),
    ] = None,
    model_file: Annotated[
        list[Path] | None,
        typer.Option(
            help="Repeatable, in the order of the models: the model's GGUF file; default: <cache>/models/<model>.gguf."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="The seed of the resampling.")] = 0,
) -> None:
    """Measure recall on every labelled set below a directory and on examples/homelab; the last line of output is JSON.

    The first run, which computes the vectors of all sets, takes about 13 minutes on two processors. The vectors are
    kept in the cache for further runs, by model and digest of its file. The report of the first model compares all
    models; the report of each further model goes to a folder of its own in `models`.

    Example: python -m memory_bench recall ../shared/datasets --model all-MiniLM-L6-v2 --model bge-small-en-v1.5
    """
    output_of_relevance = output / "relevance" if output else results_directory("relevance", None)
    output = results_directory("recall", output)
    files = _files(model or [DEFAULT_MODEL], model_file or [])
    every = [one for one in _load(datasets) if not only or one.name in only]
    sets = [one for one in every if not is_of_languages(one)]
    if not every:
        console.print(f"There is no set in {datasets}.", markup=False)
        raise typer.Exit(1)
    first, *others = files
    directories = {first: output} | {name: output / "models" / name for name in others}
    try:
        measured = {name: _measure_model(sets, name, file, directories[name], seed) for name, file in files.items()}
        languages = _measure_languages([one for one in every if is_of_languages(one)])
        long_texts = _measure_long_texts([one for one in sets if one.name == SET], first, files[first], seed)
        floor = _measure_relevance(every, files, seed)
    except (MemoryIndexError, ServerDidNotStartError) as error:
        console.print(str(error), markup=False)
        raise typer.Exit(1) from None
    for name, found in measured.items() if sets else ():
        compared = model_by_model(measured, seed=seed) if others and name == first else None
        write(found, directories[name], model=name, seed=seed, compared=compared)
    if floor:
        write_relevance(floor, output_of_relevance)
    more = {"languages": languages, "long_texts": long_texts, "floor": without_details(floor)}
    print(json.dumps(figures(measured[first], seed=seed) | {name: found for name, found in more.items() if found}))


def _files(models: list[str], files: list[Path]) -> dict[str, Path]:
    """Return the file of each model; models without a file of their own in `files` have theirs in the cache."""
    if len(files) > len(models) or len(set(models)) < len(models):
        console.print("Give every --model once, and at most one --model-file for each, in the same order.")
        raise typer.Exit(1)
    found = {name: CACHE / "models" / f"{name}.gguf" for name in models} | dict(zip(models, files, strict=False))
    for name, file in found.items():
        if not file.is_file():
            console.print(
                f"There is no model file {file}. Give the GGUF file of {name} with --model-file (MODEL_FILE=), or run "
                "`make setup` for the default model, `make second-model` for bge-small-en-v1.5, "
                "`make multilingual-model` for multilingual-e5-small.",
                markup=False,
            )
            raise typer.Exit(1)
    return found


def _measure_model(sets: list[Dataset], model: str, file: Path, output: Path, seed: int) -> list[SetMeasurements]:
    if not sets:
        return []
    console.print(f"[bold]{model}[/]")
    with _served(model, file) as server:
        return [_measure(one, server.url, output, seed) for one in sets]


@contextmanager
def _served(model: str, file: Path) -> Iterator[Server]:
    with (
        tempfile.TemporaryDirectory(prefix="memory-bench-recall-") as scratch,
        memory_embedder(file, Path(scratch, "embedder.log"), ["--model", model]) as server,
    ):
        yield server


def _measure_long_texts(sets: list[Dataset], model: str, file: Path, seed: int) -> Figures:
    """Measure what is lost in long texts, and print the table; there are no figures without the set."""
    found: Figures = {}
    for one in sets:
        console.print("[bold]long texts[/]")
        with _served(model, file) as server:
            found = measure_long_texts(one, server.url, seed=seed)
        for row in rows(found):
            console.print(" | ".join(row), markup=False)
    return found


def _measure_languages(sets: list[Dataset]) -> Figures:
    """Measure the sets of other languages; there are no figures where the multilingual model has not been made."""
    file = CACHE / "models" / f"{MODEL}.gguf"
    if not sets:
        return {}
    if not file.is_file():
        console.print(f"There is no {file}, so no language is measured; `make {MODEL_TARGET}` makes it.", markup=False)
        return {}
    console.print(f"[bold]{MODEL}[/]")
    with _served(MODEL, file) as server:
        return {name: found for one in sets for name, found in measure_languages(one, server.url).items()}


def _measure_relevance(sets: list[Dataset], files: dict[str, Path], seed: int) -> Floor:
    """Measure relevance with the first two models and the multilingual one; no figures unless each family has a set."""
    if not can_be_judged(sets):
        console.print("Relevance is not judged: a family of ADR 41 has no set here.", markup=False)
        return {}
    names = list(files)
    console.print("[bold]relevance[/]")
    with _served(names[0], files[names[0]]) as server:
        found = measure_fitted(sets, server.url, seed=seed)
    for name in names[1:2]:
        with _served(name, files[name]) as server:
            found["second_model"] = measure_other(sets, server.url, seed=seed)
    multilingual = CACHE / "models" / f"{MODEL}.gguf"
    if multilingual.is_file():
        with _served(MODEL, multilingual) as server:
            found["multilingual"] = measure_all_languages(sets, server.url, seed=seed)
    return found


def _load(directory: Path) -> list[Dataset]:
    found = sorted(one.parent for one in directory.glob("*/corpus.jsonl"))
    try:
        return [load_dataset(one) for one in (*found, _OWN_DIRECTORY)]
    except DatasetError as error:
        console.print(str(error), markup=False)
        raise typer.Exit(1) from None


def _measure(dataset: Dataset, url: str, output: Path, seed: int) -> SetMeasurements:
    console.print(f"[bold]{dataset.name}[/]")
    database = BenchmarkDatabase()
    try:
        embedded = database.wait(embed_dataset(dataset, url))
        results = [run(make_retriever(name, dataset, database, embedded), dataset) for name in RETRIEVERS]
        made = manifest(
            dataset,
            seed=seed,
            options={"retrievers": list(RETRIEVERS), "model": embedded.model, "model_digest": embedded.digest},
        )
        write_results(output / dataset.name, results, made, baseline="pg-ts-rank", seed=seed)
        costs = measure_costs(dataset, database, url, seed=seed)
        prompts = in_prompts(dataset, seed=seed)
        embedded_prompts = database.wait(embed_dataset(prompts, url))
        prompt_runs = {
            name: run(make_retriever(name, prompts, database, embedded_prompts), prompts) for name in (HYBRID, GRAPH)
        }
        return SetMeasurements(
            name=dataset.name,
            results={result.retriever: result for result in results},
            overlaps={one.query_id: one.overlap for one in dataset.queries if one.overlap},
            costs=costs,
            prompt_runs=prompt_runs,
        )
    finally:
        database.close()
