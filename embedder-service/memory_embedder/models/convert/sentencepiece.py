"""Reads the few fields of a SentencePiece model file that a tokenizer is made of.

The file is a message in the wire format of Protocol Buffers: a sequence of fields, each a number, a type and a value. A
field that is absent has its default.
"""

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_FIXED_SIZES = {_FIXED_64: 8, _FIXED_32: 4}
_LONGEST_VARINT = 10  # bytes
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3  # fields of the model
_TEXT, _SCORE, _TYPE = 1, 2, 3  # of a piece
_MODEL_TYPE, _SPACE_AS_SUFFIX, _BYTE_FALLBACK = 3, 24, 35  # of the trainer's specification
_CHARACTER_MAP, _DUMMY_PREFIX, _REMOVES_SPACES, _ESCAPES_SPACES = 2, 3, 4, 5  # of the normaliser's specification
_UNIGRAM = 1
_NORMAL = 1
_KINDS = frozenset(range(1, 6))


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of the vocabulary; `kind` has the numbers of `gguf.TokenType`, which are SentencePiece's own."""

    text: str
    score: float
    kind: int


@dataclass(frozen=True, slots=True)
class SentencePieceModel:
    """A SentencePiece model.

    `plain` says that it is a unigram model whose spaces are escaped and stand before words, and that never falls back
    to bytes. `character_map` is the compiled map of its normaliser, which is empty if it has none.
    """

    pieces: list[Piece]
    character_map: bytes
    add_space_prefix: bool
    merge_spaces: bool
    plain: bool


def parse_model(content: bytes, *, most_pieces: int) -> SentencePieceModel:
    """Return the model that the content of a model file describes.

    Raises:
        ValueError: the content is no such message, or has more than `most_pieces` pieces.
    """
    pieces: list[Piece] = []
    parts = {_TRAINER: b"", _NORMALIZER: b""}
    for number, value in _fields(content):
        if number == _PIECES:
            pieces.append(_piece(_bytes(value)))
        elif number in parts:
            parts[number] = _bytes(value)  # of a message that is there twice, the last one counts
        if len(pieces) > most_pieces:
            raise ValueError("the model has too many pieces")
    trainer = _values(parts[_TRAINER], _MODEL_TYPE, _SPACE_AS_SUFFIX, _BYTE_FALLBACK)
    normalizer = _values(parts[_NORMALIZER], _CHARACTER_MAP, _DUMMY_PREFIX, _REMOVES_SPACES, _ESCAPES_SPACES)
    return SentencePieceModel(
        pieces=pieces,
        character_map=_bytes(normalizer.get(_CHARACTER_MAP, b"")),
        add_space_prefix=bool(normalizer.get(_DUMMY_PREFIX, True)),
        merge_spaces=bool(normalizer.get(_REMOVES_SPACES, True)),
        plain=trainer.get(_MODEL_TYPE, _UNIGRAM) == _UNIGRAM
        and bool(normalizer.get(_ESCAPES_SPACES, True))
        and not trainer.get(_SPACE_AS_SUFFIX)
        and not trainer.get(_BYTE_FALLBACK),
    )


def _values(message: bytes, *wanted: int) -> dict[int, int | bytes]:
    """Return the value of each wanted field that the message has."""
    return {number: value for number, value in _fields(message) if number in wanted}


def _piece(message: bytes) -> Piece:
    found = _values(message, _TEXT, _SCORE, _TYPE)
    score, kind = _bytes(found.get(_SCORE, bytes(4))), found.get(_TYPE, _NORMAL)
    if len(score) != 4 or kind not in _KINDS:
        raise ValueError("a piece has fields of other types")
    (number,) = struct.unpack("<f", score)
    if not math.isfinite(number):
        raise ValueError("a piece has no finite score")
    return Piece(_bytes(found.get(_TEXT, b"")).decode(), number, int(kind))


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, bytes):
        return value
    raise ValueError("a number stands where bytes are expected")


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field; a value of fixed size is yielded as its bytes."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, place = _varint(message, place)
            yield number, value
            continue
        if kind == _BYTES:
            size, place = _varint(message, place)
        elif kind in _FIXED_SIZES:
            size = _FIXED_SIZES[kind]
        else:
            raise ValueError("a field has an unknown type")
        if size > len(message) - place:
            raise ValueError("a field is cut off")
        yield number, message[place : place + size]
        place += size


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """Return the number of variable length that begins at `place`, and the place behind it."""
    value = 0
    for index in range(_LONGEST_VARINT):
        if place + index >= len(message):
            raise ValueError("a number is cut off")
        byte = message[place + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, place + index + 1
    raise ValueError("a number is too long")
