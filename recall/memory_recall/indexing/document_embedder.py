"""What the workers need of an embedder; the HTTP client fulfils it, and so does a hosted provider's."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from memory_recall.indexing.queue_sql import PendingRow


class EmbeddedDocuments(Protocol):
    """The vectors of one request and what the embedder says of its inputs."""

    @property
    def vectors(self) -> npt.NDArray[np.float32]:
        """One row for each input, in order."""
        ...

    @property
    def tokens(self) -> int:
        """How many tokens the inputs had."""
        ...

    @property
    def truncated(self) -> int:
        """How many inputs were too long for the model and were cut."""
        ...


class DocumentEmbedder(Protocol):
    """Something that turns texts of memories into vectors."""

    async def embed_documents(self, texts: Sequence[str]) -> EmbeddedDocuments:
        """Embed texts; every failure is a `MemoryIndexError`."""
        ...


@runtime_checkable
class RowEmbedder(Protocol):
    """An embedder to which a text may only be sent while its row may leave the cluster, so it is given rows."""

    async def embed_rows(self, rows: list[PendingRow], /) -> tuple[list[PendingRow], EmbeddedDocuments | None]:
        """The rows that were sent, and their vectors; None if none might leave any more."""
        ...


class ModelDescription(Protocol):
    """The part of an embedder's self-description that decides whether vectors are comparable."""

    @property
    def name(self) -> str:
        """The model's name."""
        ...

    @property
    def dimensions(self) -> int:
        """How long its vectors are."""
        ...

    @property
    def digest(self) -> str | None:
        """The digest of its weights; a hosted provider has none."""
        ...


class DescribedEmbedder(DocumentEmbedder, Protocol):
    """An embedder that also says which model it serves."""

    async def model_info(self) -> ModelDescription:
        """Which model is served now."""
        ...
