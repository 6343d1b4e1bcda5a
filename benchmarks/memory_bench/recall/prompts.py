"""Measures questions inside prompts, because an agent's hook recalls with whole prompts as queries.

The labelled sets contain bare questions. Here each question is put behind the first words of a memory that does not
answer it. If the set has scopes, that memory is from another scope than the question's. Otherwise recall can also find
that memory, which then takes one of the ten places in the result. Therefore these scores show how fusion settings
differ, but not how good recall is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from memory_bench.harness.dataset import Dataset, Memory, Query
from memory_bench.recall.crossvalidation import SetScores, score_set
from memory_bench.recall.evidence import Evidence
from memory_bench.recall.settings import Setting
from memory_recall import Fusion

WORDS_BEFORE = 25


@dataclass(frozen=True, slots=True)
class PromptScores:
    """The scores of several fusion settings on bare questions, and on the same questions inside prompts."""

    alone: SetScores
    in_prompts: SetScores


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


def compare_settings(name: str, alone: Sequence[Evidence], in_prompts: Sequence[Evidence]) -> PromptScores:
    """Score the fusion settings of `compared_settings` on bare questions and on the same questions inside prompts."""
    return PromptScores(score_set(name, alone, compared_settings()), score_set(name, in_prompts, compared_settings()))


def compared_settings() -> Mapping[str, Setting]:
    """Return the default fusion setting and the settings that it is compared with, by name."""
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
