"""Compares the vectors of a model file with reference vectors.

A quantised or converted file is worth serving only if its vectors are nearly the same as those of the original model.
For each text of a set the cosine between its two vectors is computed; the least cosine decides.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from memory_embedder.engine.protocol import Engine, Vectors
from memory_embedder.errors import EmbedderError, ErrorKind


@dataclass(frozen=True, slots=True)
class Verification:
    """The number of texts compared, and the least and mean cosine between a model's vectors and the reference's."""

    texts: int
    least_cosine: float
    mean_cosine: float


def write_vectors(engine: Engine, texts: Path, out: Path) -> None:
    """Embed the texts of a JSONL file and write one JSON line per text to `out`.

    Each line of `texts` is a JSON string, or an object with the field `text`. Each line of `out` is an object with the
    fields `text` and `embedding`.

    Raises:
        EmbedderError: a line is malformed; the message gives its number and quotes nothing of it.
    """
    plain = [text for text, _ in _read(texts, vectors=False)]
    with out.open("w", encoding="utf-8") as file:
        for text, vector in zip(plain, _embed(engine, plain), strict=True):
            file.write(json.dumps({"text": text, "embedding": [float(value) for value in vector]}) + "\n")


def verify_vectors(engine: Engine, reference: Path) -> Verification:
    """Compare the engine's vectors with those of a file that `write_vectors` wrote.

    Raises:
        EmbedderError: the file is malformed or empty, or its vectors have another number of dimensions than the model.
    """
    pairs = list(_read(reference, vectors=True))
    if not pairs:
        raise EmbedderError(
            ErrorKind.CONFIGURATION, f"{reference} holds no vectors; write some with `memory-embedder vectors`."
        )
    expected = np.array([vector for _, vector in pairs], dtype=np.float32)
    if expected.shape[1] != engine.facts.dimensions:
        raise EmbedderError(
            ErrorKind.CONFIGURATION,
            f"{reference} holds {expected.shape[1]}-dimensional vectors but the model yields "
            f"{engine.facts.dimensions}; they belong to another model.",
        )
    actual = _embed(engine, [text for text, _ in pairs])
    cosines = (actual * expected).sum(axis=1) / np.linalg.norm(expected, axis=1)
    return Verification(len(pairs), float(cosines.min()), float(cosines.mean()))


def _embed(engine: Engine, texts: list[str]) -> Vectors:
    computer = engine.computer(1)
    try:
        return np.vstack([computer.embed([engine.encode(text).tokens]) for text in texts])
    finally:
        computer.close()


def _read(path: Path, *, vectors: bool) -> Iterator[tuple[str, list[float]]]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                text = row if isinstance(row, str) else row["text"]
                yield str(text), [float(value) for value in row["embedding"]] if vectors else []
            except (ValueError, KeyError, TypeError):
                fields = "'text' and 'embedding'" if vectors else "'text'"
                raise EmbedderError(
                    ErrorKind.CONFIGURATION, f"{path}, line {number}: expected a JSON object with {fields}."
                ) from None
