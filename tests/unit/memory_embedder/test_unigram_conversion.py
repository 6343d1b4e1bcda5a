"""Conversion of networks with a Unigram tokenizer, and of XLM-RoBERTa: what is written, and what is refused."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from memory_embedder.errors import EmbedderError
from memory_embedder.models.convert.bert import convert_bert
from memory_embedder.models.gguf_header import read_facts
from memory_embedder.models.sound_vocabulary import is_sound
from tests.support.model_files.altered import write_altered
from tests.unit.memory_embedder.tiny_bert import POSITIONS, change_configuration
from tests.unit.memory_embedder.tiny_unigram import (
    PIECES,
    VOCABULARY,
    character_map,
    write_model_file,
    write_tiny_unigram,
    write_tokenizer,
)

NORMAL, UNKNOWN, CONTROL, ADDED, UNUSED = 1, 2, 3, 4, 5


def converted(directory: Path, out: Path) -> dict[str, Any]:
    """Converts a directory and returns the metadata of the file, without the names' common beginnings."""
    convert_bert(directory, out)
    fields = gguf.GGUFReader(out).fields
    return {name.removeprefix("tokenizer.ggml."): field.contents() for name, field in fields.items()}


def test_a_unigram_vocabulary_keeps_its_scores_and_its_rules_and_protects_special_tokens(tmp_path: Path) -> None:
    found = converted(write_tiny_unigram(tmp_path), tmp_path / "tiny.gguf")
    assert found["model"] == "t5"
    assert found["tokens"] == [piece for piece, _ in VOCABULARY]
    assert found["scores"] == [score for _, score in VOCABULARY]
    assert found["token_type"] == [CONTROL, CONTROL, CONTROL, UNKNOWN, *[NORMAL] * len(PIECES), CONTROL]
    special = ("bos", "padding", "eos", "unknown", "mask", "seperator")
    assert [found[f"{name}_token_id"] for name in special] == [0, 1, 2, 3, 10, 2]
    assert bytes(found["precompiled_charsmap"]) == character_map()
    switches = ("add_bos_token", "add_eos_token", "add_space_prefix", "remove_extra_whitespaces")
    assert all(found[name] for name in switches)


def test_a_model_file_of_xlm_roberta_gives_the_same_file_as_its_tokenizer_json(tmp_path: Path) -> None:
    directory = write_tiny_unigram(tmp_path)
    convert_bert(directory, tmp_path / "a.gguf")
    write_model_file(directory)
    convert_bert(directory, tmp_path / "b.gguf")
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()


def test_an_xlm_roberta_network_is_the_bert_that_its_positions_begin_behind_the_padding(tmp_path: Path) -> None:
    convert_bert(write_tiny_unigram(tmp_path / "bert"), tmp_path / "a.gguf")
    convert_bert(write_tiny_unigram(tmp_path / "other", family="xlm-roberta"), tmp_path / "b.gguf")
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()
    assert read_facts(tmp_path / "b.gguf").context_length == POSITIONS


def test_what_tokenizer_json_adds_or_leaves_out_is_a_token_that_a_text_has_as_a_whole_or_never(tmp_path: Path) -> None:
    directory = write_tiny_unigram(tmp_path)
    path, words = directory / "model.safetensors", "bert.embeddings.word_embeddings.weight"
    weights = load_file(path)
    save_file(weights | {words: np.vstack([weights[words], weights[words][:4]])}, path)
    added = [{"id": 12, "content": "<tag>", "special": False}, {"id": 13, "content": "<sent>", "special": True}]
    write_tokenizer(directory, added_tokens=added, pre_tokenizer={"type": "Metaspace", "prepend_scheme": "never"})
    found = converted(directory, tmp_path / "tiny.gguf")
    assert found["tokens"][11:] == ["[unused-gap-11]", "<tag>", "<sent>", "[unused-gap-14]"]
    assert found["token_type"][11:] == [UNUSED, ADDED, CONTROL, UNUSED]
    assert found["scores"][11] == found["scores"][14] == -10_000
    assert not found["add_space_prefix"]
    assert not found["remove_extra_whitespaces"]


def test_a_tokenizer_without_a_map_leaves_characters_as_they_are(tmp_path: Path) -> None:
    directory = write_tiny_unigram(tmp_path)
    write_tokenizer(directory, normalizer=None)
    assert "precompiled_charsmap" not in converted(directory, tmp_path / "tiny.gguf")


def test_a_vocabulary_of_an_early_release_says_by_its_form_that_it_is_unigram(tmp_path: Path) -> None:
    directory = write_tiny_unigram(tmp_path)
    write_tokenizer(directory, type=None)
    assert converted(directory, tmp_path / "tiny.gguf")["model"] == "t5"


def charsmap(content: bytes) -> dict[str, str]:
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(content).decode()}


def normalizers(*steps: object) -> dict[str, object]:
    return {"type": "Sequence", "normalizers": list(steps)}


def pieces(*entries: object) -> list[object]:
    return [*VOCABULARY, *entries]


FIRST = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3)]
WRONG_TOKENS = "so that its tokens would be wrong"
REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "a normaliser that lowers case": (
        lambda d: write_tokenizer(d, normalizer=normalizers({"type": "Lowercase"})),
        "has the normalizer 'Lowercase'.*" + WRONG_TOKENS,
    ),
    "a normaliser that replaces letters": (
        lambda d: write_tokenizer(d, normalizer={"type": "Replace", "pattern": {"String": "a"}, "content": "b"}),
        "has the normalizer 'Replace'",
    ),
    "a splitter of digits": (
        lambda d: write_tokenizer(d, pre_tokenizer={"type": "Digits"}),
        "has the pre_tokenizer 'Digits'",
    ),
    "a fallback to bytes": (lambda d: write_tokenizer(d, byte_fallback=True), "falls back to bytes"),
    "a model file of another kind": (
        lambda d: write_model_file(d, trainer_spec={"model_type": 2}),
        "no plain Unigram model",
    ),
    "a model file that falls back to bytes": (
        lambda d: write_model_file(d, trainer_spec={"byte_fallback": True}),
        "no plain Unigram model",
    ),
    "a model file with spaces behind words": (
        lambda d: write_model_file(d, trainer_spec={"treat_whitespace_as_suffix": True}),
        "no plain Unigram model",
    ),
    "a model file of other special tokens": (
        lambda d: write_model_file(d, [("<pad>", 0.0, 3), ("</s>", 0.0, 3), ("<unk>", 0.0, 2)]),
        "add the model's tokenizer.json",
    ),
    "a model file without pieces": (lambda d: write_model_bytes(d, b""), "add the model's tokenizer.json"),
    "no unknown token": (lambda d: write_tokenizer(d, unk_id=None), "no unknown token"),
    "no first token": (lambda d: write_tokenizer(d, vocab=VOCABULARY[1:], added_tokens=[], unk_id=2), "no <s> token"),
    "more pieces than embeddings": (lambda d: write_tokenizer(d, vocab=pieces(("x", -1.0))), "12 pieces but the model"),
}


@pytest.mark.parametrize(("damage", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_a_tokenizer_that_llama_cpp_does_not_compute_is_refused_with_the_reason(
    tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    directory = write_tiny_unigram(tmp_path)
    damage(directory)
    with pytest.raises(EmbedderError, match=message):
        convert_bert(directory, tmp_path / "out.gguf")
    assert not list(tmp_path.glob("out.gguf*"))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a vocabulary that is an object": lambda d: write_tokenizer(d, vocab={"a": 1}),
    "an empty vocabulary": lambda d: write_tokenizer(d, vocab=[]),
    "a piece without a score": lambda d: write_tokenizer(d, vocab=pieces(["x"])),
    "a piece that is a number": lambda d: write_tokenizer(d, vocab=pieces([1, -1.0])),
    "a score that is text": lambda d: write_tokenizer(d, vocab=pieces(["x", "-1"])),
    "a score that is no number": lambda d: write_tokenizer(d, vocab=pieces(["x", float("nan")])),
    "a score of 400 digits": lambda d: write_tokenizer(d, vocab=pieces(["x", 10**400])),
    "a score that is true": lambda d: write_tokenizer(d, vocab=pieces(["x", True])),
    "a piece twice": lambda d: write_tokenizer(d, vocab=[*VOCABULARY[:-2], VOCABULARY[4], VOCABULARY[-1]]),
    "a gap's name as a piece": lambda d: write_tokenizer(d, vocab=[*VOCABULARY[:-3], ["[unused-gap-9]", -1.0]]),
    "half a character": lambda d: write_tokenizer(d, vocab=[*VOCABULARY[:-2], ["\ud800", -1.0], VOCABULARY[-1]]),
    "a piece of a million characters": lambda d: write_tokenizer(d, vocab=pieces(["x" * 10**6, -1.0])),
    "an unknown token of 10^12": lambda d: write_tokenizer(d, unk_id=10**12),
    "an added token of 10^12": lambda d: write_tokenizer(d, added_tokens=[{"id": 10**12, "content": "x"}]),
    "an added token without text": lambda d: write_tokenizer(d, added_tokens=[{"id": 1}]),
    "added tokens that are text": lambda d: write_tokenizer(d, added_tokens="x"),
    "a normaliser that is text": lambda d: write_tokenizer(d, normalizer="x"),
    "a sequence of text": lambda d: write_tokenizer(d, normalizer={"type": "Sequence", "normalizers": ["x"]}),
    "a sequence of nothing": lambda d: write_tokenizer(d, normalizer={"type": "Sequence"}),
    "a step whose type is a list": lambda d: write_tokenizer(d, pre_tokenizer={"type": [1]}),
    "a map that is no base64": lambda d: write_tokenizer(
        d, normalizer={"type": "Precompiled", "precompiled_charsmap": "%"}
    ),
    "a map that is a list": lambda d: write_tokenizer(
        d, normalizer={"type": "Precompiled", "precompiled_charsmap": [1]}
    ),
    "a map that is cut off": lambda d: write_tokenizer(d, normalizer=charsmap(character_map()[:100])),
    "a model file of other bytes": lambda d: write_model_bytes(d, b"\xff" * 100),
    "a model file that is cut off": lambda d: write_model_bytes(d, whole_model_file(d)[:-1000]),
    "a model file of numbers": lambda d: write_model_bytes(d, b"\x08\x01"),
    "a model file of a million pieces": lambda d: write_model_bytes(d, b"\x0a\x00" * 1_100_000),
    "a model file with a score that is no number": lambda d: write_model_file(d, [*FIRST, ("x", float("inf"), 1)]),
    "a model file with half a piece": lambda d: write_model_bytes(d, b"\x0a\x03\x0a\x01\xff"),
    "no room behind the padding": lambda d: change_configuration(
        d, model_type="xlm-roberta", max_position_embeddings=2, pad_token_id=1
    ),
    "a negative padding": lambda d: change_configuration(d, model_type="xlm-roberta", pad_token_id=-3),
}


def write_model_bytes(directory: Path, content: bytes) -> None:
    (directory / "tokenizer.json").unlink(missing_ok=True)
    (directory / "sentencepiece.bpe.model").write_bytes(content)


def whole_model_file(directory: Path) -> bytes:
    write_model_file(directory)
    return (directory / "sentencepiece.bpe.model").read_bytes()


@pytest.mark.promise("conversion-bounded")
@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_malformed_tokenizer_is_refused_by_one_sentence(tmp_path: Path, damage: str) -> None:
    directory = write_tiny_unigram(tmp_path)
    DAMAGES[damage](directory)
    with pytest.raises(EmbedderError, match=r"again|" + WRONG_TOKENS):
        convert_bert(directory, tmp_path / "out.gguf")
    assert not list(tmp_path.glob("out.gguf*"))


UNSOUND: dict[str, tuple[str, Callable[[list[Any]], object], str]] = {
    "a piece twice": ("tokens", lambda tokens: [*tokens[:-1], tokens[5]], "the piece .* twice"),
    "pieces that are equal up to a NUL": (
        "tokens",
        lambda tokens: [*tokens[:-2], "a\0b", "a\0c"],
        "the piece .* twice",
    ),
    "an empty piece's name": ("tokens", lambda tokens: [*tokens[:-2], "", f"[EMPTY_{len(tokens) - 2}]"], "twice"),
    "a piece of a million bytes": ("tokens", lambda tokens: [*tokens[:-1], "x" * 10**6], "more than 4096 bytes"),
    "a damaged map": ("precompiled_charsmap", lambda numbers: bytes(numbers[:-1]) + b"x", "damaged map"),
    "a map of wider numbers": ("precompiled_charsmap", lambda _: [1 << 20] * 9, "not a readable GGUF"),
    "pieces that are numbers": ("tokens", lambda tokens: [1] * len(tokens), "not a readable GGUF"),
}


@pytest.mark.promise("model-widths-compared")
@pytest.mark.parametrize("name", UNSOUND)
def test_a_file_by_whose_vocabulary_llama_cpp_would_end_the_process_is_refused_before_it_is_loaded(
    tmp_path: Path, name: str
) -> None:
    """Whoever has converted it. Such a file is otherwise a pod that restarts for ever, and says nothing of it."""
    key, damage, message = UNSOUND[name]
    convert_bert(write_tiny_unigram(tmp_path), tmp_path / "whole.gguf")
    read_facts(tmp_path / "whole.gguf")
    key = f"tokenizer.ggml.{key}"
    before = gguf.GGUFReader(tmp_path / "whole.gguf").fields[key].contents()
    write_altered(tmp_path / "whole.gguf", tmp_path / "tiny.gguf", values={key: damage(before)})
    with pytest.raises(EmbedderError, match=message):
        read_facts(tmp_path / "tiny.gguf")


def test_empty_pieces_are_no_equal_ones_since_llama_cpp_names_them_by_their_numbers(tmp_path: Path) -> None:
    convert_bert(write_tiny_unigram(tmp_path), tmp_path / "whole.gguf")
    pieces = [*(piece for piece, _ in VOCABULARY[:-2]), "", ""]
    write_altered(tmp_path / "whole.gguf", tmp_path / "tiny.gguf", values={"tokenizer.ggml.tokens": pieces})
    assert read_facts(tmp_path / "tiny.gguf").vocabulary == len(VOCABULARY)


Entries = np.ndarray[Any, np.dtype[np.uint32]]


def taken_apart(content: bytes) -> tuple[Entries, bytes]:
    """The entries of a map, and its replacements."""
    size = int.from_bytes(content[:4], "little")
    return np.frombuffer(content, "<u4", size // 4, 4), content[4 + size :]


def put_together(entries: Entries, replacements: bytes) -> bytes:
    return (4 * len(entries)).to_bytes(4, "little") + entries.tobytes() + replacements


def test_a_map_whose_entries_lead_outside_is_not_sound_since_llama_cpp_would_end_the_process() -> None:
    """Texts follow the entries from byte to byte; each that can be reached must lead to another, or to an end."""
    sound = character_map()
    entries, replacements = taken_apart(sound)
    assert is_sound(sound)
    assert is_sound(put_together(entries, replacements))
    assert not is_sound(sound[:3])
    assert not is_sound(len(sound).to_bytes(4, "little") + sound[4:])
    assert not is_sound(put_together(entries[:-1], replacements))  # no byte may lead beyond the last entry
    assert not is_sound(put_together(entries, replacements[:-1] + b"x"))  # the last replacement has no end
    assert not is_sound(put_together(entries, b"\0"))  # they begin behind the only one
    reached = base(entries[0]) ^ ord("\u0001")
    for place in (0, reached):
        changed = entries.copy()
        changed[place] |= np.uint32(0x7FFFFC00)
        assert not is_sound(put_together(changed, replacements)), place


def base(entry: np.uint32) -> int:
    return int(entry >> 10 << ((entry & 0x200) >> 6))


def test_a_map_that_leads_back_to_where_a_text_was_is_sound_and_ends_the_check() -> None:
    looping = np.zeros(512, dtype="<u4")
    looping[0] = 256 << 10  # the first byte is looked for from entry 256 on
    looping[256 ^ 1] = 1 | (1 << 10)  # and "\x01" leads back there
    assert is_sound(put_together(looping, b"x\0"))
    looping[256 ^ 1] |= 1 << 20  # no more: it leads far outside
    assert not is_sound(put_together(looping, b"x\0"))
