"""Work on a model file without a server: vectors of a list of texts, the check against reference vectors, raw speed.

A quantised or converted file is only worth serving when it still says what its original said; `verify_vectors` measures
that as the least cosine.
"""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from memory_embedder.engine.protocol import Computer, EncodedText, Engine, TokenIds, Vectors
from memory_embedder.errors import EmbedderError, ErrorKind
from memory_embedder.scheduling.batching import BatchBudget, take_batch


@dataclass(frozen=True, slots=True)
class Verification:
    """How far a model is from its reference."""

    texts: int
    least_cosine: float
    mean_cosine: float


@dataclass(frozen=True, slots=True)
class Speed:
    """Raw speed of contexts side by side, without HTTP."""

    tokens_per_text: int
    texts_per_batch: int
    contexts: int
    threads: int
    texts_per_second: float
    tokens_per_second: float
    batch_milliseconds_p50: float


def read_texts(path: Path) -> list[str]:
    """Texts of a JSONL file: strings, or objects with `text`."""
    return [text for text, _ in _read(path, vectors=False)]


def write_vectors(engine: Engine, texts: list[str], path: Path, batch_tokens: int) -> None:
    """Writes `{"text", "embedding"}` lines."""
    computer = engine.computer(1)
    try:
        vectors = embed_all(computer, [engine.encode(text) for text in texts], batch_tokens, engine.facts.max_sequences)
    finally:
        computer.close()
    with path.open("w", encoding="utf-8") as file:
        for text, vector in zip(texts, vectors, strict=True):
            file.write(json.dumps({"text": text, "embedding": [float(value) for value in vector]}) + "\n")


def verify_vectors(engine: Engine, path: Path, batch_tokens: int) -> Verification:
    """Cosines between this model's vectors and those of a file."""
    pairs = list(_read(path, vectors=True))
    if not pairs:
        raise EmbedderError(
            ErrorKind.CONFIGURATION, f"{path} holds no vectors; write some with `memory-embedder vectors`."
        )
    expected = np.array([vector for _, vector in pairs], dtype=np.float32)
    if expected.shape[1] != engine.facts.dimensions:
        raise EmbedderError(
            ErrorKind.CONFIGURATION,
            f"{path} holds {expected.shape[1]}-dimensional vectors but the model yields {engine.facts.dimensions}; "
            "they belong to another model.",
        )
    computer = engine.computer(1)
    try:
        encoded = [engine.encode(text) for text, _ in pairs]
        actual = embed_all(computer, encoded, batch_tokens, engine.facts.max_sequences)
    finally:
        computer.close()
    cosines = (actual * expected).sum(axis=1) / np.linalg.norm(expected, axis=1)
    return Verification(len(pairs), float(cosines.min()), float(cosines.mean()))


def embed_all(computer: Computer, texts: list[EncodedText], batch_tokens: int, sequences: int) -> Vectors:
    """Vectors of many texts, batch by batch."""
    waiting = deque(_Counted(text.tokens) for text in texts)
    rows: list[Vectors] = []
    while waiting:
        batch = take_batch(waiting, BatchBudget(batch_tokens, sequences))
        rows.append(computer.embed([item.ids for item in batch]))
    return np.vstack(rows)


def measure_speed(engine: Engine, *, tokens: int, texts: int, contexts: int, threads: int, seconds: float) -> Speed:
    """Runs every context on a thread of its own for a while."""
    batch = synthetic_batch(engine, tokens, texts)
    computers = [engine.computer(threads) for _ in range(contexts)]
    try:
        for computer in computers:
            computer.embed(batch)
        rounds = _run_side_by_side(computers, lambda computer: computer.embed(batch), seconds)
    finally:
        for computer in computers:
            computer.close()
    durations = [duration for each in rounds for duration in each]
    rate = sum(len(each) / sum(each) for each in rounds)
    return Speed(
        tokens_per_text=tokens,
        texts_per_batch=texts,
        contexts=contexts,
        threads=threads,
        texts_per_second=round(rate * texts, 2),
        tokens_per_second=round(rate * texts * tokens, 1),
        batch_milliseconds_p50=round(statistics.median(durations) * 1000, 2),
    )


def as_json(value: Verification | Speed) -> str:
    """One line of JSON."""
    return json.dumps(asdict(value))


def synthetic_batch(engine: Engine, tokens: int, texts: int) -> list[TokenIds]:
    """Texts of exactly that many tokens, each different, within the model's vocabulary."""
    base = engine.encode("the quick brown fox jumps over a lazy dog while memories of networks fade " * tokens).tokens
    if tokens > len(base):
        raise EmbedderError(ErrorKind.CONFIGURATION, f"The model takes {engine.facts.max_tokens} tokens at most.")
    return [np.append(np.roll(base[1:-1], -shift)[: tokens - 1], base[-1:]) for shift in range(texts)]


def _run_side_by_side(
    computers: list[Computer], step: Callable[[Computer], object], seconds: float
) -> list[list[float]]:
    barrier = threading.Barrier(len(computers))

    def run(computer: Computer) -> list[float]:
        barrier.wait()
        until, durations = time.monotonic() + seconds, list[float]()
        while not durations or time.monotonic() < until:
            started = time.monotonic()
            step(computer)
            durations.append(time.monotonic() - started)
        return durations

    with ThreadPoolExecutor(len(computers)) as pool:
        return list(pool.map(run, computers))


@dataclass(frozen=True, slots=True)
class _Counted:
    ids: TokenIds

    @property
    def tokens(self) -> int:
        return len(self.ids)


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
