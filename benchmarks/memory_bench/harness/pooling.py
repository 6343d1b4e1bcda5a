"""Pools what retrievers find for each question of a labelled set, so that a judge can grade it blind.

A judge who sees what a retriever ranked first tends to agree with it. Therefore the pool of a question names neither
retriever nor rank, holds the memories that are judged relevant already without marking them, and is shuffled.
"""

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from memory_bench.harness.command import DATASET, QRELS, load_or_exit
from memory_bench.harness.dataset import Dataset
from memory_bench.harness.retrievers import BUILT_IN, make_retriever
from memory_bench.harness.runner import RunResult, run
from memory_bench.harness.vectors import embed_dataset
from memory_bench.postgres import BenchmarkDatabase

_DEPTH = 10


def pool_questions(
    dataset: Dataset, results: Iterable[RunResult], *, depth: int, seed: int
) -> Mapping[str, Sequence[int]]:
    """Return, by question id, the ids of the memories to judge, in an order that depends on the seed alone.

    A pool consists of the first `depth` memories of each result and of those that are judged relevant already. The
    questions are shuffled, too.
    """
    pooled = {query.query_id: set(query.relevant) for query in dataset.queries}
    for result in results:
        for answer in result.answers:
            pooled[answer.query_id].update(answer.retrieved[:depth])
    chance = random.Random(seed)  # noqa: S311  (an order, not a secret)
    questions = chance.sample(sorted(pooled), len(pooled))
    return {question: chance.sample(sorted(pooled[question]), len(pooled[question])) for question in questions}


def pool(  # noqa: PLR0917  (typer makes options of them; nobody calls this by position)
    dataset: DATASET,
    embedder_url: Annotated[list[str], typer.Option(help="Repeatable: an embedder of each model to pool.")],
    output: Annotated[Path, typer.Option(help="The file to write.")] = Path("pool.jsonl"),
    depth: Annotated[int, typer.Option(min=1, help="How many memories of each ranking to pool.")] = _DEPTH,
    seed: Annotated[int, typer.Option(help="The seed of the order.")] = 0,
    qrels: QRELS = "qrels.jsonl",
) -> None:
    """Write the memories that a judge should grade for each question: those that any built-in retriever ranks first.

    Example: python -m memory_bench pool examples/homelab --embedder-url http://127.0.0.1:8080
    """
    loaded = load_or_exit(dataset, qrels)
    results: list[RunResult] = []
    for url in embedder_url:
        database = BenchmarkDatabase()
        try:
            embedded = database.wait(embed_dataset(loaded, url))
            results += [run(make_retriever(name, loaded, database, embedded), loaded) for name in BUILT_IN]
        finally:
            database.close()
    texts = {query.query_id: query.text for query in loaded.queries}
    contents = {memory.id: memory.content for memory in loaded.memories}
    pooled = pool_questions(loaded, results, depth=depth, seed=seed)
    lines = [
        {
            "query_id": question,
            "text": texts[question],
            "memories": [{"id": one, "content": contents[one]} for one in ids],
        }
        for question, ids in pooled.items()
    ]
    output.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
    print(json.dumps({"questions": len(lines), "pairs": sum(len(ids) for ids in pooled.values())}))
