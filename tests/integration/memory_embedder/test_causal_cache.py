"""The cache of keys and values of a causal model, from one batch to the next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llama_cpp import llama_cpp as native

from memory_embedder.engine.llama import LlamaComputer, LlamaEngine
from memory_embedder.engine.protocol import EngineOptions
from memory_embedder.engine.vectors import unusable_rows
from memory_embedder.models.profiles import ModelProfile, Pooling
from tests.support.model_files.causal import WIDTH, write_causal

POISON = 13
TEXTS = [np.array(tokens, dtype=np.int32) for tokens in ([3, 4, 5], [6, POISON, 7], [8, 9, 10, 11], [5, 4])]


@pytest.fixture
def computer(tmp_path: Path) -> LlamaComputer:
    write_causal(tmp_path / "tiny.gguf", infinite_word=POISON)
    profile = ModelProfile("tiny", WIDTH, 64, Pooling.LAST)
    return LlamaEngine(EngineOptions(tmp_path / "tiny.gguf", profile, batch_tokens=64, contexts=1)).computer(1)


@pytest.fixture
def cleared(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the numbers, too, were cleared before each batch."""
    seen: list[bool] = []
    clear = native.llama_memory_clear

    def observed(memory: Any, data: bool) -> None:
        seen.append(data)
        clear(memory, data)

    monkeypatch.setattr(native, "llama_memory_clear", observed)
    return seen


def test_a_batch_of_a_causal_model_writes_no_zeros_into_the_whole_cache(
    computer: LlamaComputer, cleared: list[bool]
) -> None:
    """It has a gigabyte for 8,192 tokens of Qwen3-Embedding-0.6B, and vectors are the same without."""
    alone = [computer.embed([TEXTS[place]])[0] for place in (0, 2, 3)]
    computer.embed([np.arange(40, 59, dtype=np.int32)])
    for place, vector in zip((3, 2, 0), reversed(alone), strict=True):
        assert np.allclose(computer.embed([TEXTS[place]])[0], vector, atol=1e-5)
    assert cleared == [False] * 7


def test_the_batch_after_one_with_an_unusable_row_finds_an_empty_cache_and_is_computed_right(
    computer: LlamaComputer, cleared: list[bool]
) -> None:
    alone = [computer.embed([TEXTS[place]])[0] for place in (0, 2, 3)]
    cleared.clear()
    assert unusable_rows(computer.embed([TEXTS[1]])) == [0]
    after = computer.embed([TEXTS[place] for place in (0, 2, 3)])
    assert np.allclose(after, alone, atol=1e-4)
    computer.embed([TEXTS[0]])
    assert cleared == [False, True, False]
