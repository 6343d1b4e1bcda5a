"""Embeds the texts whose vectors are the study's real ones: the memories of labelled sets, and sentences of these."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from memory_bench.harness.dataset import Dataset, Memory
from memory_bench.harness.vectors import EmbeddedSet, embed_dataset
from memory_bench.latency.synthetic import SEED, Floats

_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_LEAST_CHARACTERS = 30


@dataclass(frozen=True, slots=True)
class EmbeddedTexts:
    """The labelled sets with their vectors, and the vectors of sentences of their memories, shape (count, 384)."""

    sets: Sequence[tuple[Dataset, EmbeddedSet]]
    sentences: Floats

    @property
    def texts(self) -> Floats:
        """The vectors of all texts, memories first."""
        return np.concatenate([*(one.memories for _, one in self.sets), self.sentences])

    @property
    def questions(self) -> Floats:
        """The vectors of the questions of all sets."""
        return np.concatenate([one.queries for _, one in self.sets])

    def some_questions(self, count: int) -> Floats:
        """Return the vectors of `count` questions, or of all, drawn in the same way at every call."""
        return np.random.default_rng(SEED).permutation(self.questions)[:count]


async def embed_texts(datasets: Sequence[Dataset], url: str, most: int) -> EmbeddedTexts:
    """Embed the sets, and so many sentences of their memories that `most` texts have a vector; all of it is cached.

    Raises:
        MemoryIndexError: the embedder at `url` returned no vectors.
    """
    sets = [(one, await embed_dataset(one, url)) for one in datasets]
    wanted = max(most - sum(len(one.memories) for one in datasets), 0)
    chosen = sentences([memory.content for one in datasets for memory in one.memories])[:wanted]
    if not chosen:
        return EmbeddedTexts(sets, np.empty((0, sets[0][1].memories.shape[1]), dtype=np.float32))
    memories = tuple(Memory(place, one) for place, one in enumerate(chosen))
    named = replace(datasets[0], name="sentences", memories=memories)  # its questions have their vectors already
    return EmbeddedTexts(sets, (await embed_dataset(named, url)).memories)


def sentences(texts: Sequence[str]) -> list[str]:
    """Return the different sentences of texts that have more than one, at least thirty characters each.

    Sentences of one text do not follow one another, so that a part of the list has sentences of many texts.
    """
    parts = [found for one in texts if len(found := _SENTENCE.split(one.strip())) > 1]
    deepest = max(map(len, parts), default=0)
    taken = (one[place].strip() for place in range(deepest) for one in parts if place < len(one))
    return [one for one in dict.fromkeys(taken) if len(one) >= _LEAST_CHARACTERS]
