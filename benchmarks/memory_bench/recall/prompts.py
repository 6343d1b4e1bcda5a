"""The questions as a hook sends them that recalls before every prompt: after text about something else.

A question by itself is what every set asks, and what a prompt seldom is. Here the first words of a memory that does not
answer it stand before each: of another scope where the set has scopes, else of the same store, where that memory then
takes a place of the ten itself. What counts is how the ways of fusing compare, not the figures as such.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from memory_bench.harness.dataset import Dataset, Memory, Query
from memory_bench.recall.crossvalidation import SetScores, score_set
from memory_bench.recall.evidence import Evidence
from memory_bench.recall.settings import Setting
from memory_recall.search.fusion import Fusion

WORDS_BEFORE = 25


@dataclass(frozen=True, slots=True)
class Prompted:
    """A few ways of fusing on the questions by themselves and inside prompts."""

    alone: SetScores
    inside: SetScores


def in_prompts(dataset: Dataset, *, seed: int) -> Dataset:
    """The set with each question at the end of a prompt."""
    drawn = np.random.default_rng(seed)
    written = [replace(one, text=f"{_opening(dataset.memories, one, drawn)}. {one.text}") for one in dataset.queries]
    return replace(dataset, queries=tuple(written))


def _opening(memories: Sequence[Memory], query: Query, drawn: np.random.Generator) -> str:
    def unrelated(memory: Memory) -> bool:
        return memory.id not in query.relevant and (query.scope is None or memory.scope != query.scope)

    places = (int(one) for one in drawn.permutation(len(memories)))
    found = next((memories[place] for place in places if unrelated(memories[place])), None)
    return " ".join(found.content.split()[:WORDS_BEFORE]) if found else ""


def compared(name: str, alone: Sequence[Evidence], inside: Sequence[Evidence]) -> Prompted:
    """Both kinds of questions, fused in the ways of `tried`."""
    return Prompted(score_set(name, alone, tried()), score_set(name, inside, tried()))


def tried() -> Mapping[str, Setting]:
    """The default, its neighbours, and what becomes of it without one or the other of its two rules about words."""
    default = Fusion(importance=False)
    linear = replace(default, lexical_scale="linear")
    return {
        "query scale 0.6": Setting(replace(default, alpha=0.6)),
        "query scale 0.7": Setting(default),
        "query scale 0.8": Setting(replace(default, alpha=0.8)),
        "linear 0.7": Setting(linear),
        "whole query 0.7": Setting(default, whole_query=True),
        "linear, whole query 0.7": Setting(linear, whole_query=True),
        "TM2C2 0.7": Setting(replace(default, lexical_scale="list")),
        "RRF k=60": Setting(replace(default, method="rrf", k=60)),
    }
