"""Model files that do not say that a text begins or ends with a special token, as many in circulation do not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from memory_embedder.engine.llama import LlamaEngine
from memory_embedder.engine.protocol import EngineOptions
from memory_embedder.errors import EmbedderError
from memory_embedder.models.convert.bert import convert_bert
from memory_embedder.models.profiles import ModelProfile, Pooling
from tests.support.model_files.altered import write_altered
from tests.support.model_files.causal import END, write_causal
from tests.support.model_files.causal import WIDTH as CAUSAL_WIDTH
from tests.unit.memory_embedder.tiny_bert import POSITIONS, WIDTH, write_tiny_bert
from tests.unit.memory_embedder.tiny_unigram import write_tiny_unigram

FLAGS = {"bos": "tokenizer.ggml.add_bos_token", "eos": "tokenizer.ggml.add_eos_token"}
POOLINGS = {Pooling.MEAN: 1, Pooling.CLS: 2}


def load(path: Path, pooling: Pooling, *, width: int = WIDTH, window: int = POSITIONS) -> LlamaEngine:
    profile = ModelProfile("tiny", width, window, pooling)
    return LlamaEngine(EngineOptions(path=path, profile=profile, batch_tokens=64, contexts=1))


def write_unigram(folder: Path, pooling: Pooling, values: Mapping[str, object]) -> Path:
    """A network with XLM-RoBERTa's tokenizer, whose metadata has the other values."""
    convert_bert(write_tiny_unigram(folder), folder / "whole.gguf")
    changed = {"bert.pooling_type": POOLINGS[pooling], **values}
    write_altered(folder / "whole.gguf", folder / "tiny.gguf", values=changed)
    return folder / "tiny.gguf"


@pytest.mark.parametrize("flag", [False, None], ids=["says no", "says nothing"])
def test_a_model_that_pools_the_first_token_is_refused_if_its_texts_begin_with_a_word(
    tmp_path: Path, flag: bool | None
) -> None:
    path = write_unigram(tmp_path, Pooling.CLS, {FLAGS["bos"]: flag})
    with pytest.raises(EmbedderError, match=r"tiny\.gguf does not set tokenizer\.ggml\.add_bos_token"):
        load(path, Pooling.CLS)


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("WordPiece", "bos", None),
        ("WordPiece", "seperator", None),
        ("Unigram", "bos", None),
        ("Unigram", "bos", 4000),
    ],
)
def test_a_vocabulary_without_a_token_that_is_put_into_every_text_is_refused_before_it_tokenises_one(
    tmp_path: Path, kind: str, key: str, value: int | None
) -> None:
    """llama.cpp would end the process; a number beyond the vocabulary counts as none."""
    directory = write_tiny_bert(tmp_path) if kind == "WordPiece" else write_tiny_unigram(tmp_path)
    convert_bert(directory, tmp_path / "whole.gguf")
    name = f"tokenizer.ggml.{key}_token_id"
    write_altered(tmp_path / "whole.gguf", tmp_path / "tiny.gguf", values={name: value})
    with pytest.raises(EmbedderError, match=rf"tiny\.gguf does not name by {name}"):
        load(tmp_path / "tiny.gguf", Pooling.CLS)


def test_a_model_that_pools_the_last_token_is_refused_if_its_texts_end_with_a_word(tmp_path: Path) -> None:
    write_causal(tmp_path / "tiny.gguf", ends=False)
    with pytest.raises(EmbedderError, match=r"tiny\.gguf does not set tokenizer\.ggml\.add_eos_token"):
        load(tmp_path / "tiny.gguf", Pooling.LAST, width=CAUSAL_WIDTH)
    write_causal(tmp_path / "tiny.gguf")
    engine = load(tmp_path / "tiny.gguf", Pooling.LAST, width=CAUSAL_WIDTH)
    assert engine.encode("word " * 40).tokens[-1] == END
    engine.close()


def test_a_text_beyond_the_window_loses_its_end_alone_where_no_special_token_ends_it(tmp_path: Path) -> None:
    engine = load(write_unigram(tmp_path, Pooling.MEAN, {FLAGS["eos"]: False}), Pooling.MEAN)
    short, long = engine.encode("mem " * 4 + "ory"), engine.encode("mem " * 40 + "ory")
    assert (short.truncated, long.truncated) == (False, True)
    assert len(long.tokens) == POSITIONS
    assert long.tokens[-1] == short.tokens[1] != short.tokens[-1]
    engine.close()


def test_a_pair_of_xlm_robertas_has_two_separators_whatever_the_file_says_of_them(tmp_path: Path) -> None:
    engine = load(write_unigram(tmp_path, Pooling.CLS, {}), Pooling.CLS)
    first, end = (int(engine.encode("mem").tokens[place]) for place in (0, -1))
    (pair,) = engine.pair_tokenizer("mem")(["m"])
    assert (first, end) == (0, 2)
    assert pair.tokens.tolist() == [*engine.encode("mem").tokens, end, *engine.encode("m").tokens[1:]]
    engine.close()
