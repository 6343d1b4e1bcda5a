"""A Hugging Face directory of a network so small that converting it takes no time, with a Unigram tokenizer."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
from safetensors.numpy import load_file, save_file
from sentencepiece import sentencepiece_model_pb2

from tests.unit.memory_embedder.tiny_bert import POSITIONS, WIDTH, change_configuration, write_tiny_bert

UNUSED_POSITIONS = 2
RULES = [("\u0001", ""), ("e\u0301", "\u00e9"), ("\uff4d", "m"), ("\u3000", " ")]
PIECES = {"\u2581": -3.0, "\u2581mem": -4.5, "ory": -5.25, "\u2581caf\u00e9": -6.0, "m": -7.0, "e": -7.5}
VOCABULARY = [*dict.fromkeys(("<s>", "<pad>", "</s>", "<unk>"), 0.0).items(), *PIECES.items(), ("<mask>", 0.0)]


def character_map() -> bytes:
    return bytes(empty_model().normalizer_spec.precompiled_charsmap)


def empty_model() -> Any:
    """A SentencePiece model that has rules for characters, and no pieces."""
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(sentencepiece.SentencePieceNormalizer(norm_map=RULES).serialized_model_proto())
    return model


def write_tiny_unigram(folder: Path, *, family: str = "bert") -> Path:
    """Writes a network of one layer with random weights and the tokenizer of `VOCABULARY`; returns its directory."""
    directory = write_tiny_bert(folder)
    (directory / "vocab.txt").unlink()
    words, positions = ("bert.embeddings.word_embeddings.weight", "bert.embeddings.position_embeddings.weight")
    path = directory / "model.safetensors"
    weights = load_file(path)
    weights[words] = np.vstack([weights[words], weights[words][: len(VOCABULARY) - 9]])
    if family == "xlm-roberta":
        weights[positions] = np.vstack([np.full((UNUSED_POSITIONS, WIDTH), 9, np.float32), weights[positions]])
        weights = {name.replace("bert.", "roberta.", 1): data for name, data in weights.items()}
        weights["lm_head.bias"] = np.zeros(len(VOCABULARY), np.float32)
        change_configuration(
            directory, model_type=family, max_position_embeddings=POSITIONS + UNUSED_POSITIONS, pad_token_id=1
        )
    save_file(weights, path)
    write_tokenizer(directory)
    return directory


def write_tokenizer(directory: Path, **changes: object) -> None:
    """Writes `tokenizer.json`; `changes` replace parts of it, or of its model where they are the model's."""
    compiled = base64.b64encode(character_map()).decode()
    special = [(0, "<s>"), (1, "<pad>"), (2, "</s>"), (3, "<unk>"), (len(VOCABULARY) - 1, "<mask>")]
    whole: dict[str, Any] = {
        "added_tokens": [{"id": index, "content": text, "special": True} for index, text in special],
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": compiled},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, {"type": "Metaspace"}]},
        "model": {"type": "Unigram", "unk_id": 3, "vocab": VOCABULARY},
    }
    model = {key: value for key, value in changes.items() if key not in whole}
    whole |= {key: value for key, value in changes.items() if key in whole}
    if model:
        whole["model"] |= model
    (directory / "tokenizer.json").write_text(json.dumps(whole))


def write_model_file(
    directory: Path, pieces: Iterable[tuple[str, float, int]] | None = None, **changes: dict[str, object]
) -> None:
    """Writes the same tokenizer as XLM-RoBERTa's own model file, which has no mask, in place of `tokenizer.json`."""
    (directory / "tokenizer.json").unlink(missing_ok=True)
    model = empty_model()
    first = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3)]
    for text, score, kind in pieces or [*first, *((text, score, 1) for text, score in PIECES.items())]:
        model.pieces.add(piece=text, score=score, type=kind)
    for part, values in changes.items():
        for name, value in values.items():
            setattr(getattr(model, part), name, value)
    (directory / "sentencepiece.bpe.model").write_bytes(model.SerializeToString())
