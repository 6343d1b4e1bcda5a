"""`python -m memory_bench study`: every set, every table of the report, from one command."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from memory_bench.dataset import Dataset, DatasetError, load_dataset
from memory_bench.manifest import manifest
from memory_bench.postgres import BenchmarkDatabase
from memory_bench.runner import RunResult
from memory_bench.session import console, embed, run_one, write_results
from memory_bench.study.ablation import measured, rankings
from memory_bench.study.crossvalidation import SetScores, cross_validate, score_set
from memory_bench.study.entities import EntityLeg, extractor
from memory_bench.study.evidence import Evidence, gather, read_lexemes
from memory_bench.study.lexical_check import check
from memory_bench.study.prompts import compared, in_prompts
from memory_bench.study.published import by_stratum, read_published, worded
from memory_bench.study.report import Studied, figures, write
from memory_bench.study.service import DEFAULT_MODEL_FILE, EmbedderDidNotStartError, local_embedder
from memory_bench.study.settings import settings
from memory_bench.study.times import timed
from memory_bench.vectors import EmbeddedSet
from memory_recall.errors import MemoryIndexError

RETRIEVERS = (
    "sqlite-fts5",
    "sqlite-fts5-or",
    "pg-ts-rank",
    "pg-bm25",
    "pg-bm25-no-prior",
    "dense-exact",
    "dense-hnsw",
    "hybrid",
    "plain-rrf-60",
)
_REPOSITORY = Path(__file__).resolve().parents[3]
_PUBLISHED = "published/mteb_LoCoMo.tsv"


def study(
    datasets: Annotated[Path, typer.Argument(help="A directory of sets, each in the harness' form.")],
    output: Annotated[Path, typer.Option(help="Where tables, plots and per-question results go.")] = Path(
        "benchmarks/results/recall"
    ),
    only: Annotated[list[str] | None, typer.Option(help="Repeatable: only the sets of these names.")] = None,
    model_file: Annotated[Path, typer.Option(help="GGUF file of all-MiniLM-L6-v2.")] = DEFAULT_MODEL_FILE,
    seed: Annotated[int, typer.Option(help="Of the resampling.")] = 0,
) -> None:
    """Measure every set below a directory and our own example; prints one line of JSON.

    Vectors are made once and kept in the cache. Example: `study ../shared/datasets`.
    """
    sets = [one for one in _load(datasets) if not only or one.name in only]
    if not sets:
        console.print(f"There is no set in {datasets}.", markup=False)
        raise typer.Exit(1)
    try:
        with local_embedder(model_file, output / "embedder.log") as url:
            studied = [_study(one, url, output, seed) for one in sets]
    except (MemoryIndexError, EmbedderDidNotStartError) as error:
        console.print(str(error), markup=False)
        raise typer.Exit(1) from None
    (output / "embedder.log").unlink(missing_ok=True)
    folds = cross_validate([one.without_prior for one in studied], seed=seed) if len(studied) > 1 else []
    file = datasets / _PUBLISHED
    write(studied, folds, read_published(file) if file.is_file() else {}, output, seed=seed)
    print(json.dumps(figures(studied, seed=seed)))


def _load(directory: Path) -> list[Dataset]:
    found = sorted(one.parent for one in directory.glob("*/corpus.jsonl"))
    try:
        return [load_dataset(one) for one in (*found, _REPOSITORY / "examples" / "homelab")]
    except DatasetError as error:
        console.print(str(error), markup=False)
        raise typer.Exit(1) from None


def _study(dataset: Dataset, url: str, output: Path, seed: int) -> Studied:
    console.print(f"[bold]{dataset.name}[/]")
    database = BenchmarkDatabase()
    try:
        embedded = embed(dataset, url, database)
        results = [run_one(name, dataset, database, embedded) for name in RETRIEVERS]
        made = manifest(dataset, seed=seed, options={"retrievers": list(RETRIEVERS), "model": embedded.model})
        write_results(output / dataset.name, results, made, baseline="pg-ts-rank", seed=seed)
        reworded = worded(dataset)
        like_for_like = by_stratum(reworded, embed(reworded, url, database)) if reworded else {}
        prompts = in_prompts(dataset, seed=seed)
        inside = gather(prompts, read_lexemes(prompts, database), embed(prompts, url, database))
        return replace(_evaluated(dataset, database, embedded, results, inside, seed), like_for_like=like_for_like)
    finally:
        database.close()


def _evaluated(  # noqa: PLR0917  (each is a different thing that was measured of the one set)
    dataset: Dataset,
    database: BenchmarkDatabase,
    embedded: EmbeddedSet,
    results: list[RunResult],
    inside: list[Evidence],
    seed: int,
) -> Studied:
    evidence = gather(dataset, read_lexemes(dataset, database), embedded)
    by_name = {result.retriever: result for result in results}
    kind, extract = extractor()
    entities = EntityLeg(dataset.memories, extract)
    ablation: dict[str, SetScores] = {}
    for importance in (False, True):
        found = rankings(evidence, entities, importance=importance)
        scores = {name: measured(one, evidence) for name, one in found.items()}
        legs = {name: scores[name] for name in ("C", "D")}
        ablation["with prior" if importance else "without"] = SetScores(
            dataset.name, tuple(one.query.stratum for one in evidence), scores, legs
        )
    return Studied(
        name=dataset.name,
        results=by_name,
        lexical=check(evidence, by_name["pg-bm25-no-prior"], by_name["pg-ts-rank"]),
        without_prior=score_set(dataset.name, evidence, settings()),
        with_prior=score_set(dataset.name, evidence, settings(importance=True)),
        ablation=ablation,
        entities=kind,
        times=timed(dataset.memories, evidence, seed=seed),
        prompts=compared(dataset.name, evidence, inside),
        overlaps={one.query_id: one.overlap for one in dataset.queries if one.overlap},
    )
