"""Tells by stored vectors whether an embedder serves the model that made them, where its digest cannot tell.

The digest of a file and a canary cannot be compared with one another. So it is when rows were embedded by a
memory-embedder, and a server of another make serves a model of that name now, or the other way round. A few rows are
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
    compared. Each row is looked up once more before its text is sent; if none may be sent any more, others are read.

    Raises:
        ModelMismatch: a text has another vector than the one that is stored.
        MemoryIndexError: the embedder or the database failed.
    """
    if served.digest is None or not are_of_different_kinds(model.digest, served.digest):
        return
    sendable = SendableRows(run, partial(still_shareable, table=table))
    while stored := await run(partial(read_stored_vectors, table=table, column=column, limit=_ROWS)):
        compared = [one.row for one in stored if len(one.row.text) <= _SHORT] or [stored[0].row]
        sent, given = await _embedded(compared, embedder, sendable)
        if given is None:
            continue
        vectors = {one.row: one.vector for one in stored}
        kept = np.array([vectors[row] for row in sent], dtype=np.float32)
        cosines = (given * kept).sum(axis=1) / (np.linalg.norm(given, axis=1) * np.linalg.norm(kept, axis=1))
        if cosines.min() < LEAST_COSINE:
            raise ModelMismatch(
                f"The embedder's {model.name} gives other vectors than those that are stored (cosine "
                f"{cosines.min():.3f}): it is another model, or has another pooling, prefix or precision.",
                "Serve the same weights in the same way, or swap models.",
            )
        break
    await run(partial(replace_digest, table=table, model_id=model.id, former=model.digest, digest=served.digest))


async def _embedded(
    rows: list[PendingRow], embedder: DocumentEmbedder, sendable: SendableRows
) -> tuple[list[PendingRow], Vectors | None]:
    """Return the rows that were embedded, and their vectors; None if none may be sent to the embedder."""
    if isinstance(embedder, RowEmbedder):
        sent, batch = await embedder.embed_rows(rows)
    else:
        sent, batch = await sendable.send(rows, embedder.embed_documents)
    return sent, batch.vectors if batch else None
