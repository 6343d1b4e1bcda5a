"""Tokenising a text takes time that its author does not decide."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import pytest
from llama_cpp import llama_cpp as native

from memory_embedder.engine import normalizing
from memory_embedder.engine.backends import load_backends
from memory_embedder.engine.llama import LlamaEngine
from memory_embedder.engine.normalizing import normalize
from memory_embedder.engine.protocol import EngineOptions
from memory_embedder.engine.tokenizer import Tokenizer
from memory_embedder.models.profiles import PROFILES, ModelProfile, Pooling
from tests.support.model_files.causal import WIDTH, write_causal

ENCODE_LONG_TEXTS = f"""
import sys
from pathlib import Path
from memory_embedder.engine.llama import LlamaEngine
from memory_embedder.engine.protocol import EngineOptions
from memory_embedder.models.profiles import ModelProfile, Pooling
profile = ModelProfile("tiny", {WIDTH}, 4096, Pooling.LAST)
engine = LlamaEngine(EngineOptions(Path(sys.argv[1]), profile, batch_tokens=64, contexts=1))
for filling in ("a", " ", "1", "!", "\\n", "\\u6f22", "\\u0301"):
    engine.encode(filling * 200_000)
"""
MINILM = PROFILES["all-MiniLM-L6-v2"]


def test_marks_are_sorted_in_short_pieces_since_sorting_many_takes_their_square(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lengths: list[int] = []
    decompose = normalizing.unicodedata.normalize

    def observed(form: Any, text: str) -> str:
        lengths.append(len(text))
        return decompose(form, text)

    monkeypatch.setattr(normalizing.unicodedata, "normalize", observed)
    assert normalize("a" + "\u0301" * 10_000 + "\u0323" * 10_000 + "b") == "ab"
    assert max(lengths) <= 64
    assert normalize("한국어 é") == decompose("NFD", "한국어") + " e"


def test_the_patterns_that_take_half_a_second_are_found_while_a_model_loads(f32_engine: LlamaEngine) -> None:
    """Otherwise the first text with an accent holds up everybody's queries and health probes."""
    normalizing.normalizing_rules.cache_clear()
    Tokenizer(f32_engine._tokenizer._vocabulary, MINILM.max_tokens, normalizes=True)
    assert normalizing.normalizing_rules.cache_info().currsize == 1


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


@pytest.mark.parametrize(
    ("window", "most"), [(256, 98_304), (2048, 262_144), (8192, 262_144), (32_768, 786_432)], ids=str
)
def test_of_white_space_no_more_is_read_however_long_the_window_is(
    f32_engine: LlamaEngine, monkeypatch: pytest.MonkeyPatch, window: int, most: int
) -> None:
    read: list[int] = []
    one = Tokenizer(f32_engine._tokenizer._vocabulary, window, normalizes=False)
    tokenize = one._tokenize

    def observed(text: str) -> Any:
        read.append(len(text))
        return tokenize(text)

    monkeypatch.setattr(one, "_tokenize", observed)
    assert one.encode(" " * 4_000_000).truncated
    assert max(read) == most
    assert len(set(read)) == len(read)


LIGATURE = "\ufdfa"


def write_vocabulary(path: Path) -> None:
    """Writes a vocabulary of eight letters that normalises one character to all eight, as XLM-RoBERTa's does."""
    trie, node = [0] * 1024, 0
    for byte, base in zip((None, *LIGATURE.encode()), (256, 512, 768, 128), strict=True):
        node ^= byte or 0
        trie[node] = base << 10 | (byte or 0)
        last, node = node, node ^ base
    trie[last] |= 1 << 8  # a key ends here; its value, the place of what replaces it, is 0
    normalisation = struct.pack("<I1024I", 4 * len(trie), *trie) + b"a b c d e f g h\0"
    tokens = ["<s>", "<pad>", "</s>", "<unk>", "\u2581", *"abcdefgh"]
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_tokenizer_model("t5")
    writer.add_token_list(tokens)
    writer.add_token_scores([-1.0] * len(tokens))
    writer.add_token_types([3, 3, 3, 2] + [1] * 9)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(3)
    writer.add_add_bos_token(True)  # noqa: FBT003 -- the library's signature
    writer.add_add_eos_token(True)  # noqa: FBT003 -- the same
    writer.add_precompiled_charsmap(normalisation)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def test_a_text_may_have_more_tokens_than_bytes(tmp_path: Path) -> None:
    write_vocabulary(tmp_path / "vocabulary.gguf")
    load_backends(avoid_amx=False, gpu=False)
    parameters = native.llama_model_default_params()
    parameters.vocab_only = True
    model = native.llama_model_load_from_file(str(tmp_path / "vocabulary.gguf").encode(), parameters)
    vocabulary = Tokenizer(native.llama_model_get_vocab(model), 512, normalizes=False)
    spelled = vocabulary.encode(" ".join(["a b c d e f g h"] * 3))
    assert vocabulary.encode(" ".join(LIGATURE * 3)).tokens.tolist() == spelled.tokens.tolist()
    assert len(spelled.tokens) > len((LIGATURE * 3).encode()) + 8
    native.llama_model_free(model)


@pytest.mark.promise("model-widths-compared")
@pytest.mark.parametrize("rules", ["gpt-4o", "default"])
def test_no_text_ends_the_process_by_the_rules_that_divide_it_into_words(tmp_path: Path, rules: str) -> None:
    """llama.cpp descends some calls for each character of a long word, line or run of spaces."""
    write_causal(tmp_path / "tiny.gguf", pre=rules)
    command = [sys.executable, "-c", ENCODE_LONG_TEXTS, str(tmp_path / "tiny.gguf")]
    assert subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0


def test_a_text_that_is_tokenised_in_pieces_has_the_tokens_of_the_whole(tmp_path: Path) -> None:
    write_causal(tmp_path / "tiny.gguf")
    profile = ModelProfile("tiny", WIDTH, 4096, Pooling.LAST)
    engine = LlamaEngine(EngineOptions(tmp_path / "tiny.gguf", profile, batch_tokens=64, contexts=1))
    one = engine._tokenizer
    for text in ("some wordy words, " * 3000, "line\n" * 3000, "w" * 30_000):
        assert one._tokenize(text).tolist() == one._tokens(text, special=True).tolist()
