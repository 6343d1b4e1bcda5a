"""Measures questions inside prompts, because an agent's hook recalls with whole prompts as queries.

The labelled sets contain bare questions. Here each question is put behind the first words of a memory that does not
answer it. If the set has scopes, that memory is from another scope than the question's. Otherwise recall can also find
that memory, which then takes one of the ten places in the result. Therefore these scores show what a leg adds or takes
away, but not how good recall is.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from memory_bench.harness.dataset import Dataset, Memory, Query

WORDS_BEFORE = 25


def in_prompts(dataset: Dataset, *, seed: int) -> Dataset:
    """Return the set with each question put behind the first words of a memory that does not answer it."""
    drawn = np.random.default_rng(seed)
    written = [replace(one, text=f"{_opening(dataset.memories, one, drawn)}. {one.text}") for one in dataset.queries]
    return replace(dataset, queries=tuple(written))


def _opening(memories: Sequence[Memory], query: Query, drawn: np.random.Generator) -> str:
    def unrelated(memory: Memory) -> bool:
        return memory.id not in query.relevant and (query.scope is None or memory.scope != query.scope)

    places = (int(one) for one in drawn.permutation(len(memories)))
    found = next((memories[place] for place in places if unrelated(memories[place])), None)
    return " ".join(found.content.split()[:WORDS_BEFORE]) if found else ""
