"""Tokenising a text takes time that its author does not decide."""

from __future__ import annotations

from typing import Any

import pytest

from memory_embedder.engine import tokenizer
from memory_embedder.engine.llama import LlamaEngine
from memory_embedder.engine.tokenizer import decompose
from memory_embedder.models.profiles import PROFILES

MINILM = PROFILES["all-MiniLM-L6-v2"]


def test_marks_are_sorted_in_short_pieces_since_sorting_many_takes_their_square(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lengths: list[int] = []
    normalize = tokenizer.unicodedata.normalize

    def observed(form: Any, text: str) -> str:
        lengths.append(len(text))
        return normalize(form, text)

    monkeypatch.setattr(tokenizer.unicodedata, "normalize", observed)
    marks = "\u0301" * 10_000 + "\u0323" * 10_000
    assert sorted(decompose(marks)) == sorted(marks)
    assert max(lengths) <= 64
    assert decompose("한국어 é") == normalize("NFD", "한국어 é")


@pytest.mark.parametrize("filling", [" ", "\u0301", "\x00", "\u200b"], ids=["blanks", "marks", "NUL", "zero width"])
def test_of_a_text_that_does_not_fill_the_window_only_a_bounded_part_is_read(
    f32_engine: LlamaEngine, monkeypatch: pytest.MonkeyPatch, filling: str
) -> None:
    read: list[int] = []
    one = f32_engine._tokenizer
    tokenize = one._tokenize

    def observed(text: str) -> Any:
        read.append(len(text))
        return tokenize(text)

    monkeypatch.setattr(one, "_tokenize", observed)
    encoded = f32_engine.encode("first" + filling * 2_000_000 + " last")
    assert encoded.truncated
    assert sum(read) <= 500 * MINILM.max_tokens
    assert encoded.tokens[-1] == f32_engine.encode("x").tokens[-1]
    assert f32_engine.encode("first" + filling * 50_000 + " last").tokens.tolist() == (
        f32_engine.encode("first" + filling + " last").tokens.tolist()
    )
