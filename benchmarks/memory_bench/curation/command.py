"""The command `curation`: finds the restatements of examples/homelab, applies what was found, and undoes it."""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from devcluster.errors import DevclusterError
from memory_bench.curation.fitting import Material, as_array, fitted_halves, proposals, tally
from memory_bench.curation.recalls import DEPTH, Answer, newer_first, recall_with_and_without
from memory_bench.curation.truth import Truth, read_truth
from memory_bench.harness.dataset import Memory, Query, load_dataset
from memory_bench.harness.scoring import Scorer
from memory_bench.harness.vectors import embed_dataset
from memory_bench.postgres import BenchmarkDatabase
from memory_bench.report import REPOSITORY, OutputOption, console, results_directory, write_json
from memory_bench.servers import ServerDidNotStartError, memory_embedder
from memory_recall import MemoryIndexError
from memory_recall.contrib.curation.candidates_sql import read_frequencies, read_pairs
from memory_recall.contrib.curation.decisions import Action, Judgement, judge
from memory_recall.contrib.curation.features import compute_features
from memory_recall.postgres.connection import Pool
from memory_recall.schema.revisions import require_schema
from memory_recall.schema.supersessions import has_links
from tests.support.model_files.cache import DEFAULT_MODEL_FILE

_SET = REPOSITORY / "examples" / "homelab"
_OTHER_HALVINGS = 8


def curation(output: OutputOption = None) -> None:
    """Judge `memory curate` on examples/homelab; the last line of output is JSON.

    Weights and threshold are fitted on one half of the chains of restatements and judged on the other half, both ways;
    `found` and `wrong` add up what was judged. `other_halvings` are the least and the most of eight others by chance.
    `shipped` is what the weights of the package find, which these restatements helped to fit. Recalls are compared with
    the proposals of both halves applied.

    Examples:
        python -m memory_bench curation
    """
    database = BenchmarkDatabase()
    try:
        figures = _measured(database)
    except (DevclusterError, MemoryIndexError, ServerDidNotStartError) as error:
        console.print(str(error), markup=False)
        raise typer.Exit(1) from None
    finally:
        database.close()
    write_json(results_directory("curation", output) / "summary.json", figures)
    print(json.dumps(figures))


def _measured(database: BenchmarkDatabase) -> dict[str, Any]:
    dataset = load_dataset(_SET)
    with (
        tempfile.TemporaryDirectory(prefix="memory-bench-curation-") as scratch,
        memory_embedder(DEFAULT_MODEL_FILE, Path(scratch, "embedder.log")) as server,
    ):
        embedded = database.wait(embed_dataset(dataset, server.url))
    database.fill(dataset.memories, embedded)
    truth = read_truth(_SET / "restatements.jsonl", _SET / "near-pairs.jsonl")
    material = database.wait(_read_material(database.pool("plain"), dataset.memories, truth))
    proposed = _judge_halves(material)
    rankings = recall_with_and_without(database, dataset.queries, embedded, proposed)
    right, counted = newer_first(dataset.queries, rankings.curated, truth)
    right_before, counted_before = newer_first(dataset.queries, rankings.before, truth)
    found, wrong = tally(material, proposed)
    others = [tally(material, _judge_halves(material, seed=seed)) for seed in range(_OTHER_HALVINGS)]
    shipped = [one for one in judge(material.pairs, material.frequencies) if one.action is not Action.ADD]
    return {
        "restatements": len(truth.kinds),
        "found": found,
        "wrong": wrong,
        "other_halvings": {
            "found": [min(found for found, _ in others), max(found for found, _ in others)],
            "wrong": [min(wrong for _, wrong in others), max(wrong for _, wrong in others)],
        },
        "shipped": dict(zip(("found", "wrong"), tally(material, shipped), strict=True)),
        "newer_first": round(right / counted, 3),
        "newer_first_questions": counted,
        "newer_first_without_curation": round(right_before / counted_before, 3),
        f"recall@{DEPTH}": {
            "without": _recall(dataset.queries, rankings.before),
            "with": _recall(dataset.queries, rankings.curated),
        },
        "undone": rankings.undone,
    }


async def _read_material(pool: Pool, memories: Sequence[Memory], truth: Truth) -> Material:
    """Give the memories their dates, and read the pairs as `memory curate find` does."""
    async with pool.acquire() as connection:
        dates = [(one.id, one.created_at) for one in memories]
        await connection.executemany("UPDATE memories SET created_at = $2 WHERE id = $1", dates)
        table = await require_schema(connection, "memories")
        links = await has_links(connection, table)
        pairs = await read_pairs(connection, table, user=None, since=None, links=links)
        frequencies = await read_frequencies(connection, table, user=None, links=links)
    return Material(pairs, as_array(compute_features(pairs, frequencies)), frequencies, truth)


def _judge_halves(material: Material, *, seed: int | None = None) -> list[Judgement]:
    """Return the proposals for both halves, each judged by the fit to the other."""
    return [
        proposal
        for judged, fitted, scores in fitted_halves(material, seed=seed)
        for proposal in proposals(material, scores, judged, fitted.threshold)
    ]


def _recall(queries: Sequence[Query], answers: Sequence[Answer]) -> float:
    scores = Scorer(queries).score([[memory for memory, _, _ in answer] for answer in answers])
    return round(sum(one[f"recall@{DEPTH}"] for one in scores) / len(scores), 4)
