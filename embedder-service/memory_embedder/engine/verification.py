"""Compares the vectors of a model file with reference vectors.

A quantised or converted file is worth serving only if its vectors are nearly the same as those of the original model.
For each text of a set the cosine between its two vectors is computed; the least cosine decides.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from memory_embedder.engine.protocol import Engine, Vectors
from memory_embedder.engine.vectors import require_usable
from memory_embedder.errors import configuration_error, writing


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
        EmbedderError: a line is malformed, and the message gives its number and quotes nothing of it; or the file
            cannot be read or has no line, or `out` cannot be written.
    """
    plain = [text for text, _ in _read(texts, vectors=False)]
    if not plain:
        raise configuration_error(f"{texts} holds no texts; write one JSON line for each.")
    with writing(out), out.open("w", encoding="utf-8") as file:
        for text, vector in zip(plain, _embed(engine, plain), strict=True):
            file.write(json.dumps({"text": text, "embedding": [float(value) for value in vector]}) + "\n")


def verify_vectors(engine: Engine, reference: Path) -> Verification:
    """Compare the engine's vectors with those of a file that `write_vectors` wrote.

    Raises:
        EmbedderError: the file is malformed or empty, or a vector has another number of dimensions than the model.
    """
    pairs = list(_read(reference, vectors=True))
    if not pairs:
        raise configuration_error(f"{reference} holds no vectors; write some with `memory-embedder vectors`.")
    for _, vector in pairs:
        if len(vector) != engine.facts.dimensions:
            raise configuration_error(
                f"{reference} holds {len(vector)}-dimensional vectors but the model yields "
                f"{engine.facts.dimensions}; they belong to another model.",
            )
    expected = np.array([vector for _, vector in pairs], dtype=np.float32)
    actual = _embed(engine, [text for text, _ in pairs])
    cosines = (actual * expected).sum(axis=1) / np.linalg.norm(expected, axis=1)
    return Verification(len(pairs), float(cosines.min()), float(cosines.mean()))


def _embed(engine: Engine, texts: list[str]) -> Vectors:
    computer = engine.computer(1)
    try:
        return np.vstack([require_usable(computer.embed([engine.encode(text).tokens])) for text in texts])
    finally:
        computer.close()


def _read(path: Path, *, vectors: bool) -> Iterator[tuple[str, list[float]]]:
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise configuration_error(f"{path} cannot be read ({error.strerror}); give a file of JSON lines.") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            text = row if isinstance(row, str) else row["text"]
            text.encode()  # an unpaired surrogate is no text
            yield text, [float(value) for value in row["embedding"]] if vectors else []
        except (ValueError, KeyError, TypeError, AttributeError):
            fields = "'text' and 'embedding'" if vectors else "'text'"
            raise configuration_error(f"{path}, line {number}: expected a JSON object with {fields}.") from None
