"""Reads the WordPiece vocabulary of a Hugging Face directory, in the form that llama.cpp's tokenizer expects.

Hugging Face marks a piece that continues a word ("##ing"). llama.cpp instead marks a piece that begins a word, with
U+2581.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import gguf

from memory_embedder.errors import configuration_error
from memory_embedder.models.convert.vocabulary import (
    TokenizerFiles,
    Vocabulary,
    gap,
    read_bytes,
    too_many_pieces,
)
from memory_embedder.models.sound_vocabulary import MOST_PIECES, WORD_START

CONTINUATION = "##"


@dataclass(frozen=True, slots=True)
class WordPiece(Vocabulary):
    """A WordPiece vocabulary, and how its normaliser treats case and accents."""

    TOKENIZER: ClassVar[str] = "bert"

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
        return [int(gguf.TokenType.CONTROL) if i in control else _kind(piece) for i, piece in enumerate(self.pieces)]

    def write_to(self, writer: gguf.GGUFWriter) -> None:
        """Write the vocabulary and the rules of its normaliser, as `Vocabulary.write_to` says."""
        Vocabulary.write_to(self, writer)
        writer.add_bool("tokenizer.ggml.normalizer.lowercase", self.lowercase)
        writer.add_bool("tokenizer.ggml.normalizer.strip_accents", self.strip_accents)


def _mark(piece: str) -> str:
    return piece[len(CONTINUATION) :] if piece.startswith(CONTINUATION) else WORD_START + piece


def _kind(piece: str) -> int:
    return int(gguf.TokenType.UNUSED if piece.startswith("[unused") else gguf.TokenType.NORMAL)


def wordpiece_of(files: TokenizerFiles) -> WordPiece:
    """Return the vocabulary of `tokenizer.json`, or of `vocab.txt` if the directory has no `tokenizer.json`.

    Raises:
        EmbedderError: the directory has neither file, its vocabulary is malformed or too large, or a special token is
            missing.
    """
    pieces, normalizer = _read_pieces(files)
    ids = {piece: i for i, piece in enumerate(pieces)}
    lowercase = bool(normalizer.get("lowercase", files.config.get("do_lower_case", True)))
    strip = normalizer.get("strip_accents", files.config.get("strip_accents"))
    return WordPiece(
        pieces=tuple(pieces),
        unk=files.special_id("unk_token", "[UNK]", ids),
        cls=files.special_id("cls_token", "[CLS]", ids),
        sep=files.special_id("sep_token", "[SEP]", ids),
        pad=files.special_id("pad_token", "[PAD]", ids),
        mask=files.special_id("mask_token", "[MASK]", ids),
        lowercase=lowercase,
        strip_accents=lowercase if strip is None else bool(strip),
    )


def _read_pieces(files: TokenizerFiles) -> tuple[list[str], dict[str, Any]]:
    if files.tokenizer:
        return _numbered(files.part("model").get("vocab"), files.directory), files.part("normalizer")
    vocab_file = files.directory / "vocab.txt"
    if not vocab_file.is_file():
        raise configuration_error(
            f"{files.directory} has neither tokenizer.json nor vocab.txt nor sentencepiece.bpe.model; download the "
            "model again.",
        )
    try:
        pieces = read_bytes(vocab_file).decode().rstrip("\n").split("\n")
    except (OSError, ValueError) as error:
        raise configuration_error(
            f"{vocab_file} cannot be read as a list of pieces; download the model again."
        ) from error
    if len(pieces) > MOST_PIECES:
        raise too_many_pieces(files.directory)
    return pieces, {}


def _numbered(vocab: object, directory: Path) -> list[str]:
    """Return the pieces of a vocabulary in the order of their numbers, with gaps where a number has none."""
    if not isinstance(vocab, dict) or not vocab:
        raise configuration_error(f"{directory}/tokenizer.json has no vocabulary; download the model again.")
    if not all(type(index) is int and index >= 0 for index in vocab.values()):
        raise configuration_error(
            f"{directory}/tokenizer.json has a piece whose number is none; download the model again.",
        )
    if max(vocab.values()) >= MOST_PIECES:
        raise too_many_pieces(directory)
    pieces = [gap(index) for index in range(max(vocab.values()) + 1)]
    for piece, index in vocab.items():
        pieces[index] = piece
    return pieces
