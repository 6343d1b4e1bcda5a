"""Tells by stored vectors whether an embedder serves the model that made them, where its digest cannot tell.

The digest of a file and a canary cannot be compared with one another. So it is when rows were embedded by a
memory-embedder, and a third-party server serves a model of that name now, or the other way round. A few rows are
then embedded once more, and their vectors compared with those that are stored.
"""

from functools import partial

import numpy as np

from memory_recall.embedding.canary import LEAST_COSINE, are_of_different_kinds
from memory_recall.embedding.served_model import ServedModel
from memory_recall.embedding.wire import Vectors
from memory_recall.errors import ModelMismatch
from memory_recall.indexing.document_embedder import DocumentEmbedder, RowEmbedder
from memory_recall.indexing.queue_sql import PendingRow, still_shareable
from memory_recall.indexing.sendable_rows import RunStatements, SendableRows
from memory_recall.indexing.stored_vectors_sql import read_stored_vectors
from memory_recall.schema.models_sql import RecordedModel, replace_digest
from memory_recall.schema.table import ACTIVE, MemoryTable, VectorColumn

_ROWS = 4
_SHORT = 400  # characters; two servers may truncate longer texts in different places
_ATTEMPTS = 10  # each with rows that are read anew


async def compare_with_stored(  # noqa: PLR0917  (the column is said by name where it is another)
    run: RunStatements,
    table: MemoryTable,
    model: RecordedModel,
    served: ServedModel,
    embedder: DocumentEmbedder,
    column: VectorColumn = ACTIVE,
) -> None:
    """Compare a few stored vectors with those of the embedder, if digest and canary cannot be compared.

    If they are alike, or none is stored, what the embedder says is recorded in place of the former digest. `run` runs
    statements on a connection, and `column` has the vectors of the model. Where no text is short, the shortest one is
    compared. Each row is looked up once more before its text is sent; if none may be sent any more, others are read,
    ten times at most.

    Raises:
        ModelMismatch: a text has another vector than the one that is stored, or no text could be compared.
        MemoryIndexError: the embedder or the database failed.
    """
    if served.digest is None or not are_of_different_kinds(model.digest, served.digest):
        return
    sendable = SendableRows(run, partial(still_shareable, table=table))
    for _ in range(_ATTEMPTS):
        stored = await run(partial(read_stored_vectors, table=table, column=column, limit=_ROWS))
        if not stored:
            break
        compared = [one.row for one in stored if len(one.row.text) <= _SHORT] or [stored[0].row]
        sent, given = await _embedded(compared, embedder, sendable)
        if given is not None:
            vectors = {one.row: one.vector for one in stored}
            _require_alike(given, [vectors[row] for row in sent], model, longest=max(len(row.text) for row in sent))
            break
    else:
        raise ModelMismatch(
            f"Whether the embedder serves the {model.name} that made the stored vectors is not known: each time a few "
            f"rows were read to compare them, {_ATTEMPTS} times, all had changed before their texts were sent.",
            "Start it again once fewer rows are being edited.",
        )
    await run(partial(replace_digest, table=table, model_id=model.id, former=model.digest, digest=served.digest))


def _require_alike(given: Vectors, stored: list[list[float]], model: RecordedModel, *, longest: int) -> None:
    """Raise ModelMismatch unless each vector is nearly the stored one. `longest` is in characters, of their texts."""
    kept = np.array(stored, dtype=np.float32)
    cosines = (given * kept).sum(axis=1) / (np.linalg.norm(given, axis=1) * np.linalg.norm(kept, axis=1))
    if cosines.min() >= LEAST_COSINE:
        return
    truncated = ", or truncates the text, since no short one was found, in another place" if longest > _SHORT else ""
    raise ModelMismatch(
        f"The embedder's {model.name} gives other vectors than those that are stored (cosine {cosines.min():.3f}): it "
        f"is another model, or has another pooling, prefix or precision{truncated}.",
        "Serve the same weights in the same way, or swap to them under another name of the model.",
    )


async def _embedded(
    rows: list[PendingRow], embedder: DocumentEmbedder, sendable: SendableRows
) -> tuple[list[PendingRow], Vectors | None]:
    """Return the rows that were embedded, and their vectors; None if none may be sent to the embedder."""
    if isinstance(embedder, RowEmbedder):
        sent, batch = await embedder.embed_rows(rows)
    else:
        sent, batch = await sendable.send(rows, embedder.embed_documents)
    return sent, batch.vectors if batch else None
