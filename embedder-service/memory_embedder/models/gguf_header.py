"""Reads the few facts of a GGUF file that decide how to load it, without mapping it or reading its weights.

The kernels, the pooling and the needed memory are determined before llama.cpp opens the file, because llama.cpp aborts
the process in cases in which this service reports an error. Of the arrays the vocabulary alone is read, which takes
tenths of a second; the reader of the `gguf` library takes seconds.

Each number must be within the range that a model can have. The estimate of memory is computed from these numbers, and
llama.cpp's buffers are read by them. What is kept while a file is read has a bound, whatever the file is.
"""

import math
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from memory_embedder.errors import configuration_error
from memory_embedder.models.model_file import ModelFile
from memory_embedder.models.profiles import Pooling
from memory_embedder.models.sound_vocabulary import LARGEST_MAP, LONGEST_PIECE, MOST_PIECES, is_sound, repeated

STRIPS_ACCENTS = "tokenizer.ggml.normalizer.strip_accents"

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_BYTES = {0, 1}  # whole numbers of 8 bits
_STRING = 8
_ARRAY = 9
_POOLINGS = {1: Pooling.MEAN, 2: Pooling.CLS, 3: Pooling.LAST, 4: Pooling.RANK}
_WORDS = "token_embd.weight"  # a row of the network's width for each word of the vocabulary
_CLASSIFIERS = ("cls.output.weight", "cls.weight")  # the first that a file has computes its output
_TOKENIZER = "tokenizer.ggml.model"
_UNIGRAM = "t5"  # llama.cpp's name of the tokenizer
_SENTENCE_PIECE = "llama"  # the same; it writes the bytes of a character that it has no piece for
_BYTE_PIECES = frozenset(b"<0x%02X>" % byte for byte in range(256))
_PIECES = "tokenizer.ggml.tokens"
_CHARACTER_MAP = "tokenizer.ggml.precompiled_charsmap"
_UNQUANTISED = frozenset({0, 1, *range(24, 29), 30})  # types of tensors: F32, F16, integers, F64, BF16
_TEXTS = frozenset({"general.architecture", "general.name", _TOKENIZER})  # kept; others are read as empty
_LONGEST_TEXT = 1 << 20  # bytes
_LONGEST_NAME = 1024  # bytes, of a key or a tensor: ten times what they have
_MOST_PAIRS = 4096
_MOST_TENSORS = 1 << 16
_MOST_STRINGS = 1 << 22  # of an array that is skipped
_MOST_BYTES = 1 << 40  # that are skipped at a time
_LONGEST_VOCABULARY = 64 << 20  # bytes of all pieces
_MOST_DIMENSIONS = 4  # of a tensor
_MOST = 1 << 20  # of a width, a number of heads or any other number that multiplies another
_MOST_LAYERS = 4096
_LONGEST_WINDOW = 1 << 24

Scalar = int | float | bool | str


@dataclass(slots=True)
class _Arrays:
    """The arrays that are read: the vocabulary's pieces, and the compiled map of characters, which may be empty."""

    pieces: list[bytes] = field(default_factory=list)
    character_map: bytes = b""


@dataclass(frozen=True, slots=True)
class GgufFacts:
    """Facts from the header of a model file.

    `name` is the model's own name, as the file states it. `dimensions` is the width of the network; `output_width` is
    the number of values in its output for a text, which differs from `dimensions` in a few files. `strips_accents` says
    whether the tokenizer is WordPiece and strips accents. `key_value_width` is the number of floats that an attention
    cache holds for the keys of one token in one layer; the values take as many. `token_types` is the number of kinds
    of text that the model tells apart by an embedding of their tokens. `classifier_outputs` is the number of outputs of
    the classifier, or 0 if the file has none. `vocabulary` is the number of tokens that the model knows.
    """

    architecture: str
    name: str | None
    dimensions: int
    output_width: int
    context_length: int
    layers: int
    heads: int
    key_value_width: int
    pooling: Pooling | None
    quantised: bool
    strips_accents: bool
    causal: bool
    token_types: int
    classifier_outputs: int
    vocabulary: int
    file_bytes: int


def read_facts(path: Path, digest: str | None = None) -> GgufFacts:
    """Open a model file and read its facts, after comparing its digest with `digest` unless that is None.

    Raises:
        EmbedderError: the file cannot be opened, has another digest, is not a readable GGUF file, or is not an
            embedding model.
    """
    with ModelFile(path) as file:
        if digest is not None:
            file.verified_digest(digest)
        return read_header(file)


def read_header(file: ModelFile) -> GgufFacts:
    """Read the facts of an open model file.

    Raises:
        EmbedderError: the file is not a readable GGUF file, or not an embedding model.
    """
    try:
        start = file.from_start()
        tensors, values, arrays = _read_values(start)
        elements, quantised = _read_tensors(start, tensors)
    except (OSError, struct.error, UnicodeDecodeError, ValueError) as error:
        raise configuration_error(
            f"{file.path} is not a readable GGUF model file; fetch it again and check its digest.",
        ) from error
    _check_vocabulary(file, arrays, values.get(_TOKENIZER))
    return _facts(file, values, elements, quantised=quantised)


def _check_vocabulary(file: ModelFile, arrays: _Arrays, tokenizer: Scalar | None) -> None:
    twice = repeated(arrays.pieces)
    unigram = tokenizer == _UNIGRAM
    reason = None
    if twice is not None:
        reason = f"the piece {twice[:100].decode(errors='replace')!a} twice in its vocabulary"
    elif unigram and max(map(len, arrays.pieces), default=0) > 4 * LONGEST_PIECE:
        reason = f"a piece of more than {4 * LONGEST_PIECE} bytes in its vocabulary"
    elif unigram and arrays.character_map and not is_sound(arrays.character_map):
        reason = "a damaged map of characters"
    elif tokenizer == _SENTENCE_PIECE and not _BYTE_PIECES.issubset(arrays.pieces):
        reason = "no pieces for all bytes in its vocabulary"
    if reason is not None:
        raise configuration_error(
            f"{file.path} has {reason}, by which llama.cpp would end the process; fetch or convert the model again.",
        )


def _facts(file: ModelFile, values: dict[str, Scalar], elements: dict[str, int], *, quantised: bool) -> GgufFacts:
    architecture = str(values.get("general.architecture", ""))

    def whole(key: str, default: int | None = None, *, least: int = 1, most: int = _MOST) -> int:
        value = values.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise configuration_error(f"{file.path} lacks the metadata '{key}'; it is no embedding model.")
        if not least <= value <= most:
            raise configuration_error(
                f"{file.path} has the number {value} as '{key}', where {least} to {most} are possible; it is damaged "
                "or no embedding model.",
            )
        return value

    def number(key: str, default: int | None = None, *, least: int = 1, most: int = _MOST) -> int:
        return whole(f"{architecture}.{key}", default, least=least, most=most)

    heads = number("attention.head_count")
    width = number("embedding_length")
    head_width = number("attention.key_length", max(1, width // heads))
    return GgufFacts(
        architecture=architecture,
        name=_stated(values, "general.name"),
        dimensions=width,
        output_width=number("embedding_length_out", width),
        context_length=number("context_length", most=_LONGEST_WINDOW),
        layers=number("block_count", most=_MOST_LAYERS),
        heads=heads,
        key_value_width=number("attention.head_count_kv", heads) * head_width,
        pooling=_POOLINGS.get(number("pooling_type", 0, least=0)),
        strips_accents=_strips_accents(values),
        quantised=quantised,
        causal=values.get(f"{architecture}.attention.causal", True) is not False,
        token_types=whole("tokenizer.ggml.token_type_count", 1, least=0),
        classifier_outputs=next((elements[name] for name in _CLASSIFIERS if name in elements), 0) // width,
        vocabulary=elements.get(_WORDS, 0) // width,
        file_bytes=file.size,
    )


def _stated(values: dict[str, Scalar], key: str) -> str | None:
    """Return the printable ones of the first 200 characters of a text of the metadata; None if there are none."""
    value = values.get(key)
    stated = "".join(sign for sign in value[:200] if sign.isprintable()) if isinstance(value, str) else ""
    return stated or None


def _strips_accents(values: dict[str, Scalar]) -> bool:
    if values.get(_TOKENIZER) != "bert":
        return False
    lowercase = values.get("tokenizer.ggml.normalizer.lowercase", True)
    return bool(values.get(STRIPS_ACCENTS, lowercase))


def _read_values(file: BinaryIO) -> tuple[int, dict[str, Scalar], _Arrays]:
    """Return the number of tensors, the metadata and its arrays; the tensors' descriptions follow in the file."""
    magic, version, tensors, pairs = struct.unpack("<4sIQQ", file.read(24))
    if magic != b"GGUF" or version not in {2, 3} or pairs > _MOST_PAIRS or tensors > _MOST_TENSORS:
        raise ValueError
    values: dict[str, Scalar] = {}
    arrays = _Arrays()
    for _ in range(pairs):
        key = _read_string(file, _LONGEST_NAME)
        (kind,) = struct.unpack("<I", file.read(4))
        if kind == _ARRAY and key == _PIECES:
            arrays.pieces = _read_pieces(file)
        elif kind == _ARRAY and key == _CHARACTER_MAP:
            arrays.character_map = _read_character_map(file)
        elif kind == _ARRAY:
            _skip_array(file)
        elif kind == _STRING and key in _TEXTS:
            values[key] = _read_string(file, _LONGEST_TEXT)
        elif kind == _STRING:
            _skip_string(file)
            values[key] = ""
        else:
            values[key] = _read_scalar(file, kind)
    return tensors, values, arrays


def _read_tensors(file: BinaryIO, tensors: int) -> tuple[dict[str, int], bool]:
    """Return the numbers of elements of the classifiers and the words' embeddings, and whether a tensor is quantised.

    Whether tensors are quantised is taken from their types, since a file need not say it anywhere else.
    """
    found: dict[str, int] = {}
    quantised = False
    for _ in range(tensors):
        name = _read_string(file, _LONGEST_NAME)
        (dimensions,) = struct.unpack("<I", file.read(4))
        if dimensions > _MOST_DIMENSIONS:
            raise ValueError
        elements = math.prod(struct.unpack(f"<{dimensions}Q", file.read(8 * dimensions)))
        kind, _place = struct.unpack("<IQ", file.read(12))
        quantised |= kind not in _UNQUANTISED
        if name in {*_CLASSIFIERS, _WORDS}:
            found[name] = elements
    return found, quantised


def _read_scalar(file: BinaryIO, kind: int) -> Scalar:
    form = struct.Struct("<" + _SCALARS.get(kind, ""))
    if not form.size:
        raise ValueError
    (value,) = form.unpack(file.read(form.size))
    return value  # type: ignore[no-any-return]


def _read_string(file: BinaryIO, longest: int) -> str:
    (length,) = struct.unpack("<Q", file.read(8))
    if length > longest:
        raise ValueError
    return file.read(length).decode("utf-8")


def _read_pieces(file: BinaryIO) -> list[bytes]:
    kind, count = struct.unpack("<IQ", file.read(12))
    if kind != _STRING or count > MOST_PIECES:
        raise ValueError
    pieces: list[bytes] = []
    left = _LONGEST_VOCABULARY
    for _ in range(count):
        (length,) = struct.unpack("<Q", file.read(8))
        left -= length
        if left < 0:
            raise ValueError
        pieces.append(file.read(length))
    return pieces


def _read_character_map(file: BinaryIO) -> bytes:
    kind, count = struct.unpack("<IQ", file.read(12))
    if kind not in _BYTES or count > LARGEST_MAP:
        raise ValueError
    return file.read(count)


def _skip_array(file: BinaryIO) -> None:
    kind, count = struct.unpack("<IQ", file.read(12))
    if kind == _STRING and count <= _MOST_STRINGS:
        for _ in range(count):
            _skip_string(file)
    elif kind in _SCALARS:
        _skip(file, struct.calcsize("<" + _SCALARS[kind]) * count)
    else:
        raise ValueError


def _skip_string(file: BinaryIO) -> None:
    (length,) = struct.unpack("<Q", file.read(8))
    _skip(file, length)


def _skip(file: BinaryIO, size: int) -> None:
    if size > _MOST_BYTES:
        raise ValueError
    file.seek(size, 1)
