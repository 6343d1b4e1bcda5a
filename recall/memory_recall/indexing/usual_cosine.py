"""Finds the usual cosine of a table with a model: how near its nearest memory is to a prompt to which none fits.

It is the zero from which relevance is measured, since it differs from one model and table to another by more than what
tells a fitting memory from another. It takes no label and no text of the table: 75 everyday prompts are embedded as
queries, and the median of the cosines of their nearest memories is recorded beside the model.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, partial
from importlib.resources import files

import numpy as np
import structlog

from memory_recall.errors import MemoryIndexError, ModelMismatch
from memory_recall.indexing.document_embedder import DocumentEmbedder
from memory_recall.indexing.sendable_rows import RunStatements
from memory_recall.indexing.usual_cosine_sql import has_vectors, write_usual_cosine
from memory_recall.schema.models_sql import RecordedModel
from memory_recall.schema.table import ACTIVE, MemoryTable, VectorColumn

_TEXTS_PER_REQUEST = 5  # a recall's query waits for one such request at most
_EVERY_SECONDS = 600.0
_EMPTY_SECONDS = 30.0  # in a table without a vector, where looking costs nothing
_log = structlog.get_logger("memory_recall.usual-cosine")


class Outcome(StrEnum):
    """What came of looking for the usual cosine."""

    FOUND = "found"
    NO_VECTORS = "no vectors"
    FAILED = "failed"


@cache
def everyday_prompts() -> tuple[str, ...]:
    """Return the 75 prompts, a third each in English, German and Spanish, to which no memory fits."""
    text = files(__package__).joinpath("everyday_prompts.jsonl").read_text(encoding="utf-8")
    return tuple(json.loads(line) for line in text.splitlines())


async def find_usual_cosine(
    run: RunStatements,
    table: MemoryTable,
    model: RecordedModel,
    embedder: DocumentEmbedder,
    column: VectorColumn = ACTIVE,
) -> Outcome:
    """Find the usual cosine of a model, whose vectors are in `column`, and record it. `run` runs statements.

    A failure is logged, and harms nobody: recalls go on with what is recorded, or hold nothing back.
    """
    try:
        if not await run(partial(has_vectors, table=table, column=column)):
            return Outcome.NO_VECTORS
        prompts = await _embedded(everyday_prompts(), model, embedder)
        await run(partial(write_usual_cosine, table=table, model_id=model.id, column=column, prompts=prompts))
    except MemoryIndexError as error:
        _log.warning("usual cosine not found", reason=error.reason, message=str(error))
        return Outcome.FAILED
    return Outcome.FOUND


async def _embedded(texts: tuple[str, ...], model: RecordedModel, embedder: DocumentEmbedder) -> np.ndarray:
    """Embed texts as queries, a few at a time. The vectors are an array (texts, dimensions).

    Raises:
        ModelMismatch: an answer came from another file of the model, as while an embedder is rolled out.
        MemoryIndexError: the embedder failed.
    """
    parts = []
    for start in range(0, len(texts), _TEXTS_PER_REQUEST):
        batch = await embedder.embed_queries(texts[start : start + _TEXTS_PER_REQUEST])
        model.require_file(batch.digest)
        parts.append(batch.vectors)
    vectors = np.concatenate(parts)
    if vectors.shape[1] != model.dimensions:
        raise ModelMismatch(
            f"The embedder yields {vectors.shape[1]} dimensions; the column of {model.name} has {model.dimensions}.",
            "Serve the model with the column's dimensions.",
        )
    return vectors


@dataclass
class UsualCosineKeeper:
    """Keeps the usual cosine of the active model up to date while a worker embeds rows."""

    run: RunStatements
    table: MemoryTable
    model: RecordedModel
    embedder: DocumentEmbedder
    clock: Callable[[], float] = time.monotonic
    _embedded: int | None = None
    _due: float = float("-inf")

    async def keep(self, embedded: int) -> None:
        """Find it at the first call, and then at most every ten minutes if rows were embedded since.

        `embedded` is how many rows the worker has embedded by now. In a table without a vector it is looked for
        every half minute.
        """
        if embedded == self._embedded or self.clock() < self._due:
            return
        outcome = await find_usual_cosine(self.run, self.table, self.model, self.embedder)
        self._due = self.clock() + (_EMPTY_SECONDS if outcome is Outcome.NO_VECTORS else _EVERY_SECONDS)
        self._embedded = embedded if outcome is Outcome.FOUND else None
