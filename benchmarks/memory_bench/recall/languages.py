"""Recall in other languages than English: each language of a set in a table of its own, with a multilingual model.

A set is of languages if each scope of its questions is the code of one in `CONFIGURATIONS`. The table of a language has
no search column, so it gets ours, with the text search configuration of the language. Everything is measured in a
database of the locale C, which is CloudNativePG's default, and the words once more in one of C.UTF-8.
"""

from dataclasses import replace

from memory_bench.harness.dataset import Dataset
from memory_bench.harness.retrievers import make_retriever
from memory_bench.harness.runner import run
from memory_bench.harness.vectors import embed_dataset
from memory_bench.postgres import BenchmarkDatabase, OwnWords
from memory_bench.recall.production import DENSE, HYBRID, LEXICAL

CONFIGURATIONS = {"en": "english", "de": "german", "es": "spanish", "ru": "russian", "zh": "simple"}
MODEL, MODEL_TARGET = "multilingual-e5-small", "multilingual-model"
_LOCALE, _OTHER_LOCALE = "C", "C.UTF-8"
_MEASURES = ("recall@10", "mrr")
_NAMES = {LEXICAL: "lexical", DENSE: "dense", HYBRID: "hybrid"}

Figures = dict[str, dict[str, dict[str, float]]]
"""Of each language and measure: the means of lexical, dense and hybrid recall, and of lexical in the other locale."""


def is_of_languages(dataset: Dataset) -> bool:
    """Return whether each question of a set belongs to a language."""
    return all(query.scope in CONFIGURATIONS for query in dataset.queries)


def measure_languages(dataset: Dataset, url: str) -> Figures:
    """Measure each language of a set with the model that an embedder serves."""
    return {language: _measure(part(dataset, language), url, language) for language in CONFIGURATIONS}


def part(dataset: Dataset, language: str) -> Dataset:
    """Return the memories and questions of one language."""
    return replace(
        dataset,
        name=f"{dataset.name}-{language}",
        memories=tuple(memory for memory in dataset.memories if memory.scope == language),
        queries=tuple(query for query in dataset.queries if query.scope == language),
    )


def _measure(dataset: Dataset, url: str, language: str) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {measure: {} for measure in _MEASURES}
    for locale, retrievers in ((_LOCALE, _NAMES), (_OTHER_LOCALE, {LEXICAL: f"lexical in {_OTHER_LOCALE}"})):
        database = BenchmarkDatabase(words=OwnWords(CONFIGURATIONS[language], locale))
        try:
            embedded = database.wait(embed_dataset(dataset, url))
            for retriever, name in retrievers.items():
                means = run(make_retriever(retriever, dataset, database, embedded), dataset).means()
                for measure in _MEASURES:
                    found[measure][name] = round(means[measure], 4)
        finally:
            database.close()
    return found
