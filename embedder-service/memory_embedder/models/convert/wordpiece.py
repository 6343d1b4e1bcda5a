"""Reads the WordPiece vocabulary of a Hugging Face directory, in the form that llama.cpp's tokenizer expects.

Hugging Face marks a piece that continues a word ("##ing"). llama.cpp instead marks a piece that begins a word, with
U+2581. Special tokens are marked as control tokens, so that the text "[SEP]" in a memory is tokenised as punctuation
and letters and cannot end a sequence early.

A directory may come from anybody. What its files hold is checked, and its numbers have bounds, before anything is made
of that size.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from memory_embedder.errors import EmbedderError, configuration_error

WORD_START = "\u2581"
CONTINUATION = "##"
_NORMAL = 1  # gguf.TokenType
_UNKNOWN = 2
_CONTROL = 3
_UNUSED = 5
_MOST_PIECES = 1 << 20  # several times those of any WordPiece model
_LARGEST_JSON = 64 << 20  # bytes


@dataclass(frozen=True, slots=True)
class WordPiece:
    """A vocabulary, the ids of its special tokens, and how its normaliser treats case and accents."""

    pieces: tuple[str, ...]
    unk: int
    cls: int
    sep: int
    pad: int
    mask: int
    lowercase: bool
    strip_accents: bool

    @property
    def gguf_tokens(self) -> list[str]:
        """The vocabulary's pieces, with llama.cpp's mark before each piece that begins a word."""
        control = self.control_ids
        return [piece if i in control else _mark(piece) for i, piece in enumerate(self.pieces)]

    @property
    def gguf_types(self) -> list[int]:
        """Type of each token, as a number of `gguf.TokenType`."""
        control = self.control_ids
        return [_CONTROL if i in control else _kind(piece) for i, piece in enumerate(self.pieces)]

    @property
    def control_ids(self) -> frozenset[int]:
        """The ids of the special tokens, which the tokenizer must never make from a text."""
        return frozenset((self.cls, self.sep, self.pad, self.mask, self.unk))

    def padded(self, size: int) -> "WordPiece":
        """Return the vocabulary with `size` pieces, since many models have more embeddings than pieces.

        Raises:
            EmbedderError: the vocabulary has more than `size` pieces.
        """
        if size < len(self.pieces):
            raise configuration_error(
                f"The vocabulary has {len(self.pieces)} pieces but the model {size} embeddings; "
                "they belong to different models.",
            )
        return replace(self, pieces=(*self.pieces, *map(_gap, range(len(self.pieces), size))))


def _mark(piece: str) -> str:
    return piece[len(CONTINUATION) :] if piece.startswith(CONTINUATION) else WORD_START + piece


def _gap(index: int) -> str:
    return f"[unused-gap-{index}]"


def _kind(piece: str) -> int:
    return _UNUSED if piece.startswith("[unused") else _NORMAL


def read_wordpiece(directory: Path) -> WordPiece:
    """Read the vocabulary from `tokenizer.json`, or from `vocab.txt` if the directory has no `tokenizer.json`.

    Raises:
        EmbedderError: the directory has neither file, the tokenizer is not WordPiece, its vocabulary is malformed or
            too large, or a special token is missing.
    """
    config = _read_object(directory / "tokenizer_config.json")
    pieces, normalizer = _read_pieces(directory)
    by_piece = {piece: i for i, piece in enumerate(pieces)}

    def token_id(key: str, default: str) -> int:
        value = config.get(key, default)
        text = value.get("content", default) if isinstance(value, dict) else value
        if not isinstance(text, str) or text not in by_piece:
            raise configuration_error(f"The vocabulary in {directory} has no {default} token; it is not WordPiece.")
        return by_piece[text]

    lowercase = bool(normalizer.get("lowercase", config.get("do_lower_case", True)))
    strip = normalizer.get("strip_accents", config.get("strip_accents"))
    return WordPiece(
        pieces=tuple(pieces),
        unk=token_id("unk_token", "[UNK]"),
        cls=token_id("cls_token", "[CLS]"),
        sep=token_id("sep_token", "[SEP]"),
        pad=token_id("pad_token", "[PAD]"),
        mask=token_id("mask_token", "[MASK]"),
        lowercase=lowercase,
        strip_accents=lowercase if strip is None else bool(strip),
    )


def _read_pieces(directory: Path) -> tuple[list[str], dict[str, Any]]:
    tokenizer = _read_object(directory / "tokenizer.json")
    if tokenizer:
        model = _object(tokenizer, "model", directory)
        if model.get("type", "WordPiece") != "WordPiece":
            raise configuration_error(
                f"{directory} has a {model.get('type')} tokenizer; this converter takes WordPiece (the BERT family). "
                "Convert other families with llama.cpp's own script.",
            )
        return _numbered(model.get("vocab"), directory), _object(tokenizer, "normalizer", directory)
    vocab_file = directory / "vocab.txt"
    if not vocab_file.is_file():
        raise configuration_error(f"{directory} has neither tokenizer.json nor vocab.txt; download the model again.")
    try:
        pieces = _bounded_text(vocab_file).rstrip("\n").split("\n")
    except (OSError, ValueError) as error:
        raise configuration_error(
            f"{vocab_file} cannot be read as a list of pieces; download the model again."
        ) from error
    if len(pieces) > _MOST_PIECES:
        raise _too_many(directory)
    return pieces, {}


def _numbered(vocab: object, directory: Path) -> list[str]:
    """Return the pieces of a vocabulary in the order of their numbers, with gaps where a number has none."""
    if not isinstance(vocab, dict) or not vocab:
        raise configuration_error(f"{directory}/tokenizer.json has no vocabulary; download the model again.")
    if not all(type(index) is int and index >= 0 for index in vocab.values()):
        raise configuration_error(
            f"{directory}/tokenizer.json has a piece whose number is none; download the model again.",
        )
    if max(vocab.values()) >= _MOST_PIECES:
        raise _too_many(directory)
    pieces = [_gap(index) for index in range(max(vocab.values()) + 1)]
    for piece, index in vocab.items():
        pieces[index] = piece
    return pieces


def _too_many(directory: Path) -> EmbedderError:
    return configuration_error(
        f"The vocabulary in {directory} has more than {_MOST_PIECES} pieces; it is not WordPiece. Download the model "
        "again.",
    )


def _object(found: dict[str, Any], key: str, directory: Path) -> dict[str, Any]:
    """Return the object with this key, which is empty if there is none."""
    value = found.get(key) or {}
    if not isinstance(value, dict):
        raise configuration_error(f"{directory}/tokenizer.json has no object '{key}'; download the model again.")
    return value


def _bounded_text(path: Path) -> str:
    with path.open("rb") as file:
        content = file.read(_LARGEST_JSON + 1)
    if len(content) > _LARGEST_JSON:
        raise ValueError
    return content.decode("utf-8")


def read_json(path: Path) -> Any:  # noqa: ANN401 -- what the file holds
    """Read a JSON file.

    Raises:
        EmbedderError: the file cannot be read, is too large or is no JSON.
    """
    try:
        return json.loads(_bounded_text(path))
    except (OSError, ValueError, RecursionError) as error:
        raise configuration_error(
            f"{path} cannot be read as JSON of at most {_LARGEST_JSON >> 20} MiB; download the model again.",
        ) from error


def _read_object(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    loaded = read_json(path)
    return loaded if isinstance(loaded, dict) else {}
