"""The interface that workers require of an embedder; our client and a hosted provider's both satisfy it."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from memory_recall.embedding.wire import EmbeddedBatch, ServedModel
from memory_recall.indexing.queue_sql import PendingRow


class DocumentEmbedder(Protocol):
    """Turns texts of memories into vectors, and reports which model it serves."""

    async def embed_documents(self, texts: Sequence[str]) -> EmbeddedBatch:
        """Embed texts; every failure is a `MemoryIndexError`."""
        ...

    async def model_info(self) -> ServedModel:
        """Return the model that is served now."""
        ...


@runtime_checkable
class RowEmbedder(Protocol):
    """An embedder outside the cluster: it is given rows, since a text may be sent only while its row allows that."""

    async def embed_rows(self, rows: list[PendingRow], /) -> tuple[list[PendingRow], EmbeddedBatch | None]:
        """Return the rows that were sent, and their vectors; None where none of them may be sent any more."""
        ...
