"""What recall loses where the answer is beyond the model's window: paragraphs put at one place of longer texts.

Each paragraph that answers a question stands at the beginning, in the middle or at the end of a text of its own, among
paragraphs that answer no question of the set. All texts of one length and place are searched by every question. The
model reads a beginning of each text, of which MiniLM takes about 190 words.
"""

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice, product

import numpy as np

from memory_bench.harness.dataset import Dataset
from memory_bench.harness.retrievers import make_retriever
from memory_bench.harness.runner import run
from memory_bench.harness.vectors import embed_dataset
from memory_bench.postgres import BenchmarkDatabase
from memory_bench.recall.production import DENSE, HYBRID
from memory_recall.schema.columns.keys import MemoryId

SET = "hotpotqa-train100"
ALONE = "alone"
WORDS = (200, 500, 1000, 2000)
PLACES = {"beginning": 0.0, "middle": 0.5, "end": 1.0}
_MEASURE = "recall@10"
_NAMES = {DENSE: "dense", HYBRID: "hybrid"}

Figures = dict[str, dict[str, dict[str, float]]]
"""Of each number of words and place: recall@10 of the dense leg and of hybrid recall."""


def measure_long_texts(dataset: Dataset, url: str, *, seed: int) -> Figures:
    """Measure a set of paragraphs as they are, and in texts of each length with the answer at each place."""
    found: Figures = {ALONE: {ALONE: _measure(answers_of(dataset), url)}}
    for words in WORDS:
        texts = {place: in_long_texts(dataset, words, share, seed=seed) for place, share in PLACES.items()}
        found[str(words)] = {place: _measure(one, url) for place, one in texts.items()}
    return found


def answers_of(dataset: Dataset) -> Dataset:
    """Return the set without the paragraphs that answer no question."""
    answers = _answers(dataset)
    return replace(dataset, memories=tuple(one for one in dataset.memories if one.id in answers))


def in_long_texts(dataset: Dataset, words: int, share: float, *, seed: int) -> Dataset:
    """Return the set with each answer in a text of about `words` words.

    `share` is how much of what is around the answer stands before it, from 0 to 1. What is around an answer is the same
    at every place and in texts of every length.
    """
    answers = _answers(dataset)
    others = [one.content for one in dataset.memories if one.id not in answers]
    drawn = np.random.default_rng(seed)
    texts = []
    for memory in answers_of(dataset).memories:
        around = (word for place in drawn.permutation(len(others)) for word in others[place].split())
        added = list(islice(around, max(0, words - len(memory.content.split()))))
        before = round(len(added) * share)
        text = " ".join([*added[:before], memory.content, *added[before:]])
        texts.append(replace(memory, content=text))
    return replace(dataset, name=f"{dataset.name}-{words}-{share}", memories=tuple(texts))


def rows(figures: Figures) -> Iterable[tuple[str, ...]]:
    """Yield the table: a row for each number of words and leg, with recall@10 by the place of the answer."""
    yield ("words", "leg", *PLACES)
    for words, leg in product(figures, _NAMES.values()):
        of_places = figures[words]
        yield (words, leg, *(f"{of_places.get(place, of_places.get(ALONE, {}))[leg]:.3f}" for place in PLACES))


def _answers(dataset: Dataset) -> set[MemoryId]:
    return {one for query in dataset.queries for one in query.relevant}


def _measure(dataset: Dataset, url: str) -> dict[str, float]:
    database = BenchmarkDatabase()
    try:
        embedded = database.wait(embed_dataset(dataset, url))
        runs = {name: run(make_retriever(arm, dataset, database, embedded), dataset) for arm, name in _NAMES.items()}
        return {name: round(one.means()[_MEASURE], 4) for name, one in runs.items()}
    finally:
        database.close()
