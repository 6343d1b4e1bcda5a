"""What a run over one set consists of: vectors, retrievers, results on disk."""

import importlib
import json
import os
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import Progress

from memory_bench.dataset import Dataset
from memory_bench.postgres import BenchmarkDatabase
from memory_bench.report import markdown, plots
from memory_bench.retriever import Adapted
from memory_bench.retrievers.postgres import VARIANTS, PostgresRetriever
from memory_bench.retrievers.sqlite_fts import SqliteProduction, SqliteReadme
from memory_bench.runner import RunResult, run
from memory_bench.vectors import EmbeddedSet, VectorCache
from memory_recall.embedding.client import EmbedderClient
from memory_recall.search.query_embedding import Embedded

console = Console(stderr=True)
_CACHE = Path(os.environ.get("MEMORY_INDEX_CACHE", Path.home() / ".cache" / "memory-index")) / "vectors"


def embed(dataset: Dataset, url: str, database: BenchmarkDatabase) -> EmbeddedSet:
    """The vectors of a set, from the cache where they are known."""
    texts, questions = [one.content for one in dataset.memories], [one.text for one in dataset.queries]
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task(f"embedding {dataset.name}", total=len(texts) + len(questions))

        async def work() -> EmbeddedSet:
            async with EmbedderClient(url) as client:
                return await VectorCache(client, _CACHE, lambda done: bar.advance(task, done)).embed(texts, questions)

        return database.wait(work())


def run_one(name: str, dataset: Dataset, database: BenchmarkDatabase, embedded: EmbeddedSet | None) -> RunResult:
    """One retriever over one set, with a bar."""
    retriever = Adapted(_make(name, dataset, database, embedded))
    try:
        with Progress(console=console, transient=True) as bar:
            task = bar.add_task(name, total=len(dataset.queries))
            return run(retriever, dataset, progress=lambda: bar.advance(task))
    finally:
        retriever.close()


def _make(name: str, dataset: Dataset, database: BenchmarkDatabase, embedded: EmbeddedSet | None) -> Any:  # noqa: ANN401  (a retriever is known by what it can do)
    built_in = {"sqlite-fts5": SqliteProduction, "sqlite-fts5-or": SqliteReadme}
    if name in built_in:
        return built_in[name]()
    if name in VARIANTS:
        if VARIANTS[name].mode != "lexical" and embedded is None:
            raise typer.BadParameter(f"{name} needs vectors: give --embedder-url.")
        vectors = {}
        if embedded is not None:
            pairs = zip(dataset.queries, embedded.queries.tolist(), strict=True)
            vectors = {query.text: Embedded(vector, embedded.model) for query, vector in pairs}
        return PostgresRetriever(name, database, embedded, vectors)
    module, _, attribute = name.partition(":")
    if not attribute:
        raise typer.BadParameter(f"{name} is neither built in nor of the form package.module:Class.")
    made = getattr(importlib.import_module(module), attribute)
    return made() if isinstance(made, type) else made


def write_results(
    directory: Path, results: list[RunResult], made: dict[str, object], *, baseline: str, seed: int
) -> None:
    """Per-question results, manifest, report and plots."""
    directory.mkdir(parents=True, exist_ok=True)
    for result in results:
        path = directory / f"{result.retriever.replace(':', '.')}.json"
        path.write_text(json.dumps(result.to_dict()), encoding="utf-8")
    (directory / "manifest.json").write_text(json.dumps(made, indent=2), encoding="utf-8")
    (directory / "report.md").write_text(markdown(results, baseline=baseline, seed=seed), encoding="utf-8")
    plots(results, directory)
    console.print(f"Results are in {directory}.", highlight=False)
