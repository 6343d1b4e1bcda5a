"""The command `curation`: finds the restatements of examples/homelab, applies what was found, and undoes it."""

import json
import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import typer

from memory_bench.curation.fitting import Material, as_array, fit, proposals, tally
from memory_bench.curation.recalls import DEPTH, Answer, newer_first, recall_with_and_without
from memory_bench.curation.truth import read_truth
from memory_bench.harness.dataset import Dataset, Query, load_dataset
from memory_bench.harness.scoring import Scorer
from memory_bench.harness.vectors import EmbeddedSet, embed_dataset
from memory_bench.postgres import BenchmarkDatabase
from memory_bench.report import REPOSITORY, KeepOption, OutputOption, console, results_directory, write_json
from memory_bench.servers import DEFAULT_MODEL_FILE, ServerDidNotStartError, memory_embedder
from memory_recall import MemoryIndexError
from memory_recall.curation.candidates_sql import has_links, read_frequencies, read_pairs
from memory_recall.curation.decisions import Action, Judgement, judge
from memory_recall.curation.features import compute_features
from memory_recall.postgres.connection import Pool
from memory_recall.schema.revisions import require_schema

_SET = REPOSITORY / "examples" / "homelab"
_OTHER_HALVINGS = 8


def curation(output: OutputOption = None, keep: KeepOption = False) -> None:
    """Judge `memory curate` on the restatements of examples/homelab; the last line of output is JSON.

    Weights and threshold are fitted on one half of the chains of restatements and judged on the other half, both ways;
    `found` and `wrong` add up what was judged. Eight other halvings show how much of this is chance. Recalls are
    compared with the proposals of both halves applied.

    Example: python -m memory_bench curation
    """
    dataset = load_dataset(_SET)
    database = BenchmarkDatabase()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="memory-bench-curation-") as scratch,
            memory_embedder(DEFAULT_MODEL_FILE, Path(scratch, "embedder.log")) as server,
        ):
            embedded = database.wait(embed_dataset(dataset, server.url))
        database.fill(dataset.memories, embedded)
        material = database.wait(_read(database.pool("plain")))
        figures = _figures(dataset, embedded, database, material)
    except (MemoryIndexError, ServerDidNotStartError) as error:
        console.print(str(error), markup=False)
        raise typer.Exit(1) from None
    finally:
        database.close()
    write_json(results_directory("curation", output, keep=keep) / "summary.json", figures)
    print(json.dumps(figures))


async def _read(pool: Pool) -> Material:
    """Give the memories the dates of the set, and read the pairs as `memory curate find` does."""
    lines = (_SET / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    dates = {row["id"]: datetime.fromisoformat(row["created_at"]) for row in map(json.loads, lines)}
    async with pool.acquire() as connection:
        await connection.executemany("UPDATE memories SET created_at = $2 WHERE id = $1", list(dates.items()))
        table = await require_schema(connection, "memories")
        links = await has_links(connection, table)
        pairs = await read_pairs(connection, table, user=None, since=None, links=links)
        frequencies = await read_frequencies(connection, table, user=None, links=links)
    truth = read_truth(_SET / "restatements.jsonl", _SET / "near-pairs.jsonl")
    return Material(pairs, as_array(compute_features(pairs, frequencies)), frequencies, truth)


def _figures(
    dataset: Dataset, embedded: EmbeddedSet, database: BenchmarkDatabase, material: Material
) -> dict[str, Any]:
    halves, proposed = _judge_halves(material)
    shipped = [one for one in judge(material.pairs, material.frequencies) if one.action is not Action.ADD]
    rankings = recall_with_and_without(database, dataset.queries, embedded, proposed)
    right, counted = newer_first(dataset.queries, rankings.curated, material.truth)
    right_before, counted_before = newer_first(dataset.queries, rankings.before, material.truth)
    found, wrong = tally(material, proposed)
    others = [tally(material, _judge_halves(material, seed=seed)[1]) for seed in range(_OTHER_HALVINGS)]
    return {
        "found": found,
        "wrong": wrong,
        "newer_first": round(right / counted, 3),
        "newer_first_questions": counted,
        "undone": rankings.undone,
        "restatements": len(material.truth.kinds),
        "judged_restatements_beyond_them": len(proposed) - found - wrong,
        "halves": halves,
        "other_halvings": [dict(zip(("found", "wrong"), other, strict=True)) for other in others],
        "newer_first_without_curation": round(right_before / counted_before, 3),
        "kind_right": _kinds_right(material, proposed),
        f"recall@{DEPTH}": {
            "without": _recall(dataset.queries, rankings.before),
            "with": _recall(dataset.queries, rankings.curated),
        },
        "shipped_on_what_it_was_fitted_to": dict(zip(("found", "wrong"), tally(material, shipped), strict=True)),
    }


def _judge_halves(material: Material, *, seed: int | None = None) -> tuple[list[dict[str, Any]], list[Judgement]]:
    """Return the figures of both halves, each judged by the fit to the other, and the proposals that were judged."""
    half = np.array(material.truth.halves(material.ids, seed=seed))
    figures, proposed = [], []
    for judged in (0, 1):
        fitted = fit(material, half != judged)
        scores = fitted.scores(material.features)
        chosen_on = proposals(material, scores, half != judged, fitted.threshold)
        judged_on = proposals(material, scores, half == judged, fitted.threshold)
        proposed += judged_on
        figures.append(
            {
                "threshold": round(fitted.threshold, 3),
                "chosen_on": dict(zip(("found", "wrong"), tally(material, chosen_on), strict=True)),
                "judged_on": dict(zip(("found", "wrong"), tally(material, judged_on), strict=True)),
            }
        )
    return figures, proposed


def _kinds_right(material: Material, proposed: Sequence[Judgement]) -> str:
    """Return how many of the found restatements got the action of their kind: SUPERSEDE for those that replace."""
    kinds = material.truth.kinds
    known = [(one, kinds.get((one.pair.older.id, one.pair.newer.id))) for one in proposed]
    right = sum(kind is not None and (one.action is Action.SUPERSEDE) == (kind == "replaces") for one, kind in known)
    return f"{right} of {sum(kind is not None for _, kind in known)}"


def _recall(queries: Sequence[Query], answers: Sequence[Answer]) -> float:
    scores = Scorer(queries).score([[memory for memory, _, _ in answer] for answer in answers])
    return round(sum(one[f"recall@{DEPTH}"] for one in scores) / len(scores), 4)
