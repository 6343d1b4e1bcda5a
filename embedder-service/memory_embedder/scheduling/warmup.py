"""Makes contexts that are ready: each computes a full batch before it serves, so that the first caller does not pay
for buffers and page faults.
"""

from __future__ import annotations

import time

import numpy as np

from memory_embedder.engine.protocol import Computer, Engine, TokenIds
from memory_embedder.errors import EmbedderError, ErrorKind

_WORDS = "memory index warm up text of ordinary words "


class WarmComputers:
    """A maker of warmed contexts that also knows their speed."""

    def __init__(self, engine: Engine, batch_tokens: int) -> None:
        self._engine = engine
        self._batch = full_batch(engine, batch_tokens)
        self._longest = full_batch(engine, engine.facts.batch_capacity)
        self._rates: list[float] = []

    def __call__(self, threads: int) -> Computer:
        """A new context that has computed its largest batch and a usual one."""
        computer = self._engine.computer(threads)
        computer.embed(self._longest)
        started = time.monotonic()
        vectors = computer.embed(self._batch)
        self._rates.append(sum(map(len, self._batch)) / max(1e-6, time.monotonic() - started))
        if vectors.shape != (len(self._batch), self._engine.facts.dimensions):
            raise EmbedderError(ErrorKind.CONFIGURATION, "The model yields vectors of another size than it declares.")
        return computer

    def tokens_per_second(self) -> float:
        """A first guess at the rate: the contexts were measured one at a time, so the least is taken for all of
        them.
        """
        return min(self._rates, default=1000.0)


def full_batch(engine: Engine, tokens: int) -> list[TokenIds]:
    """Texts as long as the window allows that fill a batch."""
    facts = engine.facts
    window = min(facts.max_tokens, tokens)
    text = engine.encode(_WORDS * window).tokens
    piece = np.append(text[: window - 1], text[-1:])
    return [piece for _ in range(max(1, min(facts.max_sequences, tokens // window)))]
