"""Reads the Unigram vocabulary of a Hugging Face directory, such as XLM-RoBERTa's, for llama.cpp's tokenizer "t5".

Such a tokenizer is SentencePiece's: it normalises a text by a compiled map of characters, writes U+2581 for spaces and
chooses the pieces with the greatest sum of scores. `tokenizer.json` has all of that, by the ids of the embeddings.
XLM-RoBERTa's own model file numbers the pieces otherwise: its first three are special tokens, which have other ids in
the network, where two more special tokens are at the beginning and at the end.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import gguf

from memory_embedder.errors import EmbedderError, configuration_error
from memory_embedder.models.convert.sentencepiece import parse_model
from memory_embedder.models.convert.vocabulary import (
    TokenizerFiles,
    Vocabulary,
    gap,
    read_bytes,
    too_many_pieces,
)
from memory_embedder.models.sound_vocabulary import LONGEST_PIECE, MOST_PIECES, is_sound

MODEL_FILE = "sentencepiece.bpe.model"
_NORMAL, _UNKNOWN, _CONTROL = int(gguf.TokenType.NORMAL), int(gguf.TokenType.UNKNOWN), int(gguf.TokenType.CONTROL)
_ADDED, _UNUSED = int(gguf.TokenType.USER_DEFINED), int(gguf.TokenType.UNUSED)
_FIRST = ("<s>", "<pad>", "</s>", "<unk>")  # XLM-RoBERTa's ids 0 to 3
_FIRST_OF_MODEL_FILE = ("<unk>", "<s>", "</s>")
_NORMALIZERS = frozenset({"Precompiled", "Replace", "Strip"})  # what llama.cpp's tokenizer does
_SPLITTERS = frozenset({"Metaspace", "WhitespaceSplit"})
_RUN_OF_SPACES = {"Regex": " {2,}"}
_NEVER = -10_000.0  # the score of a token that no text is to have
_MOST_SCORE = 1e6  # a score is the logarithm of a probability


@dataclass(frozen=True, slots=True)
class Unigram(Vocabulary):
    """A Unigram vocabulary, and how its normaliser treats characters and spaces.

    `scores` and `kinds`, numbers of `gguf.TokenType`, are those of the pieces that were read; a piece that was added to
    fill up the embeddings has none. `character_map` is empty if the tokenizer leaves characters as they are.
    """

    TOKENIZER: ClassVar[str] = "t5"

    scores: tuple[float, ...]
    kinds: tuple[int, ...]
    character_map: bytes
    add_space_prefix: bool
    merge_spaces: bool

    @property
    def gguf_tokens(self) -> list[str]:
        """The vocabulary's pieces as they are."""
        return list(self.pieces)

    @property
    def gguf_types(self) -> list[int]:
        """Type of each token, as a number of `gguf.TokenType`."""
        types = [*self.kinds, *[_UNUSED] * self._gaps]
        for index in self.control_ids:
            types[index] = _UNKNOWN if index == self.unk else _CONTROL
        return types

    @property
    def _gaps(self) -> int:
        return len(self.pieces) - len(self.scores)

    def write_to(self, writer: gguf.GGUFWriter) -> None:
        """Write the vocabulary and the rules of its normaliser, as `Vocabulary.write_to` says."""
        Vocabulary.write_to(self, writer)
        writer.add_eos_token_id(self.sep)  # llama.cpp appends the last special token under this name
        writer.add_add_bos_token(True)  # noqa: FBT003 -- the library's signature
        writer.add_add_eos_token(True)  # noqa: FBT003 -- the same
        writer.add_token_scores([*self.scores, *[_NEVER] * self._gaps])
        writer.add_add_space_prefix(self.add_space_prefix)
        writer.add_remove_extra_whitespaces(self.merge_spaces)
        writer.add_precompiled_charsmap(self.character_map)  # which writes nothing if it is empty


def unigram_of(files: TokenizerFiles) -> Unigram:
    """Return the vocabulary of `tokenizer.json`, or of XLM-RoBERTa's model file if there is no `tokenizer.json`.

    Raises:
        EmbedderError: the tokenizer does what llama.cpp does not compute, its vocabulary is malformed or too large, or
            a special token is missing.
    """
    vocabulary = _of_json(files) if files.tokenizer else _of_model_file(files)
    if max(map(len, vocabulary.pieces)) > LONGEST_PIECE:
        raise configuration_error(
            f"The vocabulary in {files.directory} has a piece of more than {LONGEST_PIECE} characters; download the "
            "model again.",
        )
    if vocabulary.character_map and not is_sound(vocabulary.character_map):
        raise configuration_error(
            f"The tokenizer in {files.directory} has a damaged map of characters; download the model again.",
        )
    return vocabulary


def _of_json(files: TokenizerFiles) -> Unigram:
    model = files.part("model")
    if model.get("byte_fallback"):
        raise _not_computed(files, "falls back to bytes")
    pieces, scores = _scored_pieces(files, model.get("vocab"))
    kinds = [_NORMAL] * len(pieces)
    for index, piece, special in _added_tokens(files):
        missing = index + 1 - len(pieces)
        pieces += map(gap, range(len(pieces), len(pieces) + missing))
        scores += [_NEVER] * missing
        kinds += [_UNUSED] * missing
        pieces[index], kinds[index] = piece, _CONTROL if special else _ADDED
    unk = model.get("unk_id")
    if type(unk) is not int or not 0 <= unk < len(pieces):
        raise configuration_error(
            f"{files.directory}/tokenizer.json names no unknown token by 'unk_id'; download the model again.",
        )
    splitters = _steps(files, "pre_tokenizer", "pretokenizers", _SPLITTERS)
    normalizers = _steps(files, "normalizer", "normalizers", _NORMALIZERS)
    return Unigram(
        pieces=tuple(pieces),
        **_special_ids(files, pieces),
        unk=unk,
        scores=tuple(scores),
        kinds=tuple(kinds),
        character_map=_character_map(files, normalizers),
        add_space_prefix=any(
            step.get("prepend_scheme", "always") != "never" and step.get("add_prefix_space", True) is not False
            for step in splitters
            if step["type"] == "Metaspace"
        ),
        merge_spaces=any(step["type"] in {"WhitespaceSplit", "Replace"} for step in (*splitters, *normalizers)),
    )


def _of_model_file(files: TokenizerFiles) -> Unigram:
    path = files.directory / MODEL_FILE
    try:
        model = parse_model(read_bytes(path), most_pieces=MOST_PIECES)
    except (OSError, ValueError) as error:
        raise configuration_error(
            f"{path} cannot be read as a SentencePiece model; download the model again."
        ) from error
    if not model.plain:
        raise _not_computed(files, "is no plain Unigram model")
    if tuple(piece.text for piece in model.pieces[:3]) != _FIRST_OF_MODEL_FILE:
        raise configuration_error(
            f"{path} begins with other tokens than XLM-RoBERTa's, so the ids of its pieces are not known; add the "
            "model's tokenizer.json to the directory.",
        )
    rest = model.pieces[len(_FIRST_OF_MODEL_FILE) :]
    pieces = (*_FIRST, *(piece.text for piece in rest), "<mask>")
    return Unigram(
        pieces=pieces,
        **_special_ids(files, pieces),
        unk=_FIRST.index("<unk>"),
        scores=(*[0.0] * len(_FIRST), *(piece.score for piece in rest), 0.0),
        kinds=(*[_CONTROL] * len(_FIRST), *(piece.kind for piece in rest), _CONTROL),
        character_map=model.character_map,
        add_space_prefix=model.add_space_prefix,
        merge_spaces=model.merge_spaces,
    )


def _special_ids(files: TokenizerFiles, pieces: Sequence[str]) -> dict[str, int]:
    ids = {piece: i for i, piece in enumerate(pieces)}
    defaults = {"cls": "<s>", "sep": "</s>", "pad": "<pad>", "mask": "<mask>"}
    return {name: files.special_id(f"{name}_token", default, ids) for name, default in defaults.items()}


def _scored_pieces(files: TokenizerFiles, vocab: object) -> tuple[list[str], list[float]]:
    if not isinstance(vocab, list) or not vocab:
        raise configuration_error(f"{files.directory}/tokenizer.json has no vocabulary; download the model again.")
    if len(vocab) > MOST_PIECES:
        raise too_many_pieces(files.directory)
    if not all(isinstance(entry, list) and len(entry) == 2 and _is_scored(*entry) for entry in vocab):
        raise configuration_error(
            f"{files.directory}/tokenizer.json has a piece that is not a text with a score; download the model again.",
        )
    return [piece for piece, _ in vocab], [float(score) for _, score in vocab]


def _is_scored(piece: object, score: object) -> bool:
    return isinstance(piece, str) and type(score) in {int, float} and abs(score) < _MOST_SCORE  # type: ignore[arg-type]  # a number, as just seen


def _added_tokens(files: TokenizerFiles) -> list[tuple[int, str, bool]]:
    """Return id and text of each token that was added to the vocabulary, and whether no text may have it."""
    found = files.tokenizer.get("added_tokens") or []
    added = []
    for entry in found if isinstance(found, list) else [found]:
        token = entry if isinstance(entry, dict) else {}
        index, piece = token.get("id"), token.get("content")
        if type(index) is not int or not 0 <= index < MOST_PIECES or not isinstance(piece, str):
            raise configuration_error(
                f"{files.directory}/tokenizer.json has an added token without an id or a text; download the model "
                "again.",
            )
        added.append((index, piece, bool(token.get("special"))))
    return added


def _steps(files: TokenizerFiles, key: str, several: str, known: frozenset[str]) -> list[dict[str, Any]]:
    """Return the steps of a part of `tokenizer.json`, which are one or a sequence."""
    part = files.part(key)
    steps = part.get(several) if part.get("type") == "Sequence" else [part] if part else []
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise configuration_error(
            f"{files.directory}/tokenizer.json has no steps '{several}'; download the model again."
        )
    for step in steps:
        kind = str(step.get("type"))
        if kind not in known or (kind == "Replace" and step.get("pattern") != _RUN_OF_SPACES):
            raise _not_computed(files, f"has the {key} '{kind}'")
    return steps


def _character_map(files: TokenizerFiles, normalizers: list[dict[str, Any]]) -> bytes:
    for step in normalizers:
        if step["type"] == "Precompiled":
            try:
                return base64.b64decode(step.get("precompiled_charsmap") or "", validate=True)
            except (TypeError, ValueError) as error:
                raise configuration_error(
                    f"{files.directory}/tokenizer.json has a damaged map of characters; download the model again.",
                ) from error
    return b""


def _not_computed(files: TokenizerFiles, what: str) -> EmbedderError:
    return configuration_error(
        f"The tokenizer in {files.directory} {what}, which llama.cpp's Unigram tokenizer does not compute, so that its "
        "tokens would be wrong; use a model whose tokenizer is like XLM-RoBERTa's.",
    )
