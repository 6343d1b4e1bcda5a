"""The interfaces that workers require of an embedder, be it our own service or a hosted provider."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from memory_recall.embedding.bounded_answer import BeforeSending
from memory_recall.embedding.served_model import ServedModel
from memory_recall.embedding.wire import EmbeddedBatch
from memory_recall.indexing.queue_sql import PendingRow


class DocumentEmbedder(Protocol):
    """Embeds texts of memories and queries, and reports which model it serves."""

    async def embed_documents(
        self, texts: Sequence[str], *, skip: bool = False, before_sending: BeforeSending | None = None
    ) -> EmbeddedBatch:
        """Embed texts; return their vectors in the same order. Every failure is a `MemoryIndexError`.

        With `skip`, the batch may name texts that have no vector instead of failing. `before_sending` is awaited before
        the texts are sent, each time, and what it raises is raised.
        """
        ...

    async def embed_queries(self, texts: Sequence[str]) -> EmbeddedBatch:
        """Embed texts as queries; return their vectors in the same order. Every failure is a `MemoryIndexError`."""
        ...

    async def model_info(self) -> ServedModel:
        """Return the model that is served now."""
        ...


@runtime_checkable
class RowEmbedder(Protocol):
    """An embedder outside the cluster, which checks that a row may still be sent before it sends the row's text."""

    async def embed_rows(self, rows: list[PendingRow], /) -> tuple[list[PendingRow], EmbeddedBatch | None]:
        """Embed those rows that may still be sent. Return these rows and their vectors.

        If none of the rows may be sent, the result is an empty list and None.
        """
        ...
