"""Commands on labelled sets: check a set, describe it, run retrievers over it, compare the results of two runs."""

import json
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from memory_bench.harness.dataset import Dataset, DatasetError, load_dataset
from memory_bench.harness.manifest import manifest
from memory_bench.harness.retrievers import BUILT_IN, LEXICAL, make_retriever
from memory_bench.harness.runner import Answered, RunResult, run
from memory_bench.harness.set_report import compare_runs, write_results
from memory_bench.harness.vectors import embed_dataset
from memory_bench.postgres import BenchmarkDatabase
from memory_bench.report import console
from memory_recall import MemoryIndexError

DATASET = Annotated[Path, typer.Argument(help="Directory with corpus.jsonl, queries.jsonl and qrels.jsonl.")]
QRELS = Annotated[str, typer.Option(help="The judgements' file name.")]


def load_or_exit(directory: Path, qrels: str) -> Dataset:
    """Load a labelled set; if it contains a mistake, print it and end the command."""
    try:
        return load_dataset(directory, judgements=qrels)
    except DatasetError as error:
        console.print(f"[red]{directory.name}[/]: ", end="")
        console.print(str(error), markup=False)
        raise typer.Exit(1) from None


def validate(dataset: DATASET, qrels: QRELS = "qrels.jsonl") -> None:
    """Check a labelled set; if it contains a mistake, print the file and line of the first one.

    Example: python -m memory_bench validate examples/homelab
    """
    loaded = load_or_exit(dataset, qrels)
    print(f"{loaded.name}: {len(loaded.memories)} memories and {len(loaded.queries)} questions fit together.")


def stats(dataset: DATASET, qrels: QRELS = "qrels.jsonl") -> None:
    """Describe a labelled set in aggregate numbers, without quoting its texts.

    Example: python -m memory_bench stats examples/homelab
    """
    loaded = load_or_exit(dataset, qrels)
    lengths = sorted(len(memory.content) for memory in loaded.memories)
    answers = [len(query.relevant) for query in loaded.queries]
    report = {
        "memories": len(loaded.memories),
        "sensitive_left_out": loaded.sensitive_left_out,
        "scopes": len({memory.scope for memory in loaded.memories}),
        "characters": {"median": lengths[len(lengths) // 2], "longest": lengths[-1]},
        "questions": dict(sorted(Counter(query.stratum for query in loaded.queries).items())),
        "relevant_per_question": {"mean": round(sum(answers) / len(answers), 2), "most": max(answers)},
        "sha256": loaded.digest,
    }
    print(json.dumps(report, indent=2))


def run_retrievers(  # noqa: PLR0917  (typer makes options of them; nobody calls this by position)
    dataset: DATASET,
    retriever: Annotated[
        list[str] | None, typer.Option(help="Repeatable: a built-in name or package.module:Class.")
    ] = None,
    embedder_url: Annotated[
        str, typer.Option(envvar="MEMORY_EMBEDDER_URL", help="For retrievers with a dense leg.")
    ] = "",
    database_url: Annotated[str, typer.Option(envvar="MEMORY_BENCH_DATABASE_URL", help="A server of your own.")] = "",
    output: Annotated[Path, typer.Option(help="Where results and report go.")] = Path("results"),
    baseline: Annotated[str, typer.Option(help="The retriever that the others are compared with.")] = "pg-ts-rank",
    seed: Annotated[int, typer.Option(help="The seed of the resampling.")] = 0,
    qrels: QRELS = "qrels.jsonl",
) -> None:
    """Run retrievers over a labelled set, and write summaries, a report and the results of each question.

    The last line of output is JSON with the recall@10 of each retriever.

    Example: python -m memory_bench run examples/homelab --retriever pg-bm25 --retriever sqlite-fts5
    """
    loaded = load_or_exit(dataset, qrels)
    names = retriever or list(BUILT_IN if embedder_url else LEXICAL)
    database = BenchmarkDatabase(database_url or None)
    try:
        embedded = database.wait(embed_dataset(loaded, embedder_url)) if embedder_url else None
        results = [run(make_retriever(name, loaded, database, embedded), loaded) for name in names]
    except MemoryIndexError as error:
        console.print(str(error), markup=False)
        raise typer.Exit(1) from None
    finally:
        database.close()
    made = manifest(
        loaded,
        seed=seed,
        options={
            "retrievers": names,
            "qrels": qrels,
            "model": embedded and embedded.model,
            "model_digest": embedded and embedded.digest,
        },
    )
    write_results(output / loaded.name, results, made, baseline=baseline, seed=seed)
    print(json.dumps({loaded.name: {result.retriever: round(result.means()["recall@10"], 4) for result in results}}))


def compare(
    first: Annotated[Path, typer.Argument(help="A file of results by question, written by `run`.")],
    second: Annotated[Path, typer.Argument(help="Another one, of the same set.")],
    measure: Annotated[str, typer.Option(help="The measure to compare.")] = "recall@10",
    seed: Annotated[int, typer.Option(help="The seed of the resampling.")] = 0,
) -> None:
    """Print how much better the second retriever is than the first, with a confidence interval and a p value.

    Example: python -m memory_bench compare results/homelab/raw/pg-bm25.json results/homelab/raw/hybrid.json
    """
    try:
        found = compare_runs(_read(first), _read(second), measure, seed=seed)
    except (ValueError, KeyError) as error:
        console.print(f"These results cannot be compared: {error}.", markup=False)
        raise typer.Exit(1) from None
    print(json.dumps({"difference": found.difference, "interval": [found.low, found.high], "p_value": found.p_value}))


def _read(path: Path) -> RunResult:
    stored = json.loads(path.read_text(encoding="utf-8"))
    answers = tuple(Answered(**{**one, "retrieved": tuple(one["retrieved"])}) for one in stored["answers"])
    return RunResult(stored["retriever"], stored["dataset"], answers, stored["build_seconds"], stored["index_bytes"])
