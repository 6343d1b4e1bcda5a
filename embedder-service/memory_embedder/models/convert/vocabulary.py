"""What the vocabularies of both kinds of tokenizers have in common, and the files that they are read from.

Special tokens are marked as control tokens, so that the text "[SEP]" or "</s>" in a memory is tokenised as punctuation
and letters and cannot end a sequence early.

A directory may come from anybody. What its files hold is checked, and its numbers have bounds, before anything is made
of that size. llama.cpp ends the process where two tokens are the same, so such a vocabulary is refused, too.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import gguf

from memory_embedder.errors import EmbedderError, configuration_error
from memory_embedder.models.sound_vocabulary import MOST_PIECES, repeated

_LARGEST_FILE = 64 << 20  # bytes


@dataclass(frozen=True, slots=True)
class Vocabulary(ABC):
    """The pieces of a tokenizer by their ids, and the ids of its special tokens."""

    TOKENIZER: ClassVar[str]  # llama.cpp's name of the tokenizer

    pieces: tuple[str, ...]
    unk: int
    cls: int
    sep: int
    pad: int
    mask: int

    @property
    @abstractmethod
    def gguf_tokens(self) -> list[str]:
        """The pieces in the form that llama.cpp's tokenizer expects."""

    @property
    @abstractmethod
    def gguf_types(self) -> list[int]:
        """Type of each token, as a number of `gguf.TokenType`."""

    @property
    def control_ids(self) -> frozenset[int]:
        """The ids of the special tokens, which the tokenizer must never make from a text."""
        return frozenset((self.cls, self.sep, self.pad, self.mask, self.unk))

    def padded(self, size: int) -> Self:
        """Return the vocabulary with `size` pieces, since many models have more embeddings than pieces.

        Raises:
            EmbedderError: the vocabulary has more than `size` pieces.
        """
        if size < len(self.pieces):
            raise configuration_error(
                f"The vocabulary has {len(self.pieces)} pieces but the model {size} embeddings; "
                "they belong to different models.",
            )
        return replace(self, pieces=(*self.pieces, *map(gap, range(len(self.pieces), size))))

    def write_to(self, writer: gguf.GGUFWriter) -> None:
        """Write the vocabulary into the metadata of a GGUF file.

        Raises:
            EmbedderError: two tokens are the same, or one is no text.
        """
        tokens = self.gguf_tokens
        _check_tokens(tokens)
        writer.add_tokenizer_model(self.TOKENIZER)
        writer.add_tokenizer_pre("default")
        writer.add_token_list(tokens)
        writer.add_token_types(self.gguf_types)
        writer.add_bos_token_id(self.cls)  # llama.cpp prepends the first special token under this name
        writer.add_sep_token_id(self.sep)
        writer.add_unk_token_id(self.unk)
        writer.add_pad_token_id(self.pad)
        writer.add_mask_token_id(self.mask)


def _check_tokens(tokens: list[str]) -> None:
    try:
        twice = repeated(token.encode() for token in tokens)
    except UnicodeEncodeError as error:
        raise configuration_error(
            "The vocabulary has a piece with half a character; download the model again."
        ) from error
    if twice is not None:
        raise configuration_error(
            f"The vocabulary has the piece {twice.decode()!a} twice, which llama.cpp does not load; download the model "
            "again.",
        )


def gap(index: int) -> str:
    """Return the piece that stands where an id has none."""
    return f"[unused-gap-{index}]"


def too_many_pieces(directory: Path) -> EmbedderError:
    """Return the error of a vocabulary that is larger than any model's."""
    return configuration_error(
        f"The vocabulary in {directory} has more than {MOST_PIECES} pieces; download the model again.",
    )


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """The contents of `tokenizer.json` and `tokenizer_config.json`; a missing file counts as empty."""

    directory: Path
    tokenizer: dict[str, Any]
    config: dict[str, Any]

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Read both files.

        Raises:
            EmbedderError: one is no JSON or too large.
        """
        return cls(
            directory, _read_object(directory / "tokenizer.json"), _read_object(directory / "tokenizer_config.json")
        )

    def part(self, key: str) -> dict[str, Any]:
        """Return the object with this key of `tokenizer.json`, which is empty if there is none.

        Raises:
            EmbedderError: something else than an object has the key.
        """
        value = self.tokenizer.get(key) or {}
        if not isinstance(value, dict):
            raise configuration_error(
                f"{self.directory}/tokenizer.json has no object '{key}'; download the model again.",
            )
        return value

    def special_id(self, key: str, default: str, ids: Mapping[str, int]) -> int:
        """Return the id of a special token, which `tokenizer_config.json` may name otherwise than `default`.

        Raises:
            EmbedderError: the vocabulary has no such token.
        """
        value = self.config.get(key, default)
        text = value.get("content", default) if isinstance(value, dict) else value
        if not isinstance(text, str) or text not in ids:
            raise configuration_error(
                f"The vocabulary in {self.directory} has no {default} token; download the model again.",
            )
        return ids[text]


def read_bytes(path: Path) -> bytes:
    """Read a file of at most 64 MiB.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is larger.
    """
    with path.open("rb") as file:
        content = file.read(_LARGEST_FILE + 1)
    if len(content) > _LARGEST_FILE:
        raise ValueError
    return content


def read_json(path: Path) -> Any:  # noqa: ANN401 -- what the file holds
    """Read a JSON file.

    Raises:
        EmbedderError: the file cannot be read, is too large or is no JSON.
    """
    try:
        return json.loads(read_bytes(path).decode())
    except (OSError, ValueError, RecursionError) as error:
        raise configuration_error(
            f"{path} cannot be read as JSON of at most {_LARGEST_FILE >> 20} MiB; download the model again.",
        ) from error


def _read_object(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    loaded = read_json(path)
    return loaded if isinstance(loaded, dict) else {}
