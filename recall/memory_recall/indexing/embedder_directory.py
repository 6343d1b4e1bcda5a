"""Which embedder serves which model: the configured one, and those whose addresses the database names.

During a swap a worker needs two, and after the flip it goes on with the other, without a restart.
"""

from collections.abc import Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from memory_recall.embedding.address_policy import trusted
from memory_recall.embedding.client import EmbedderClient
from memory_recall.errors import ModelMismatch
from memory_recall.indexing.document_embedder import DescribedEmbedder
from memory_recall.schema.models_sql import ActiveModel

Connect = Callable[[str, str], EmbedderClient]


class EmbedderDirectory:
    """Embedders by model; those that it opens itself it closes at the end of its block."""

    def __init__(
        self,
        configured: DescribedEmbedder,
        connect: Connect,
        *,
        model: str,
        url: str | None,
        trusted_hosts: tuple[str, ...] = (),
    ) -> None:
        """`model` and `url` are those of the configured embedder; a hosted one has no address of ours."""
        self.configured = configured
        self.url = url.rstrip("/") if url else None
        self._model = model
        self._connect = connect
        self._trusted_hosts = trusted_hosts
        self._opened: dict[tuple[str, str], EmbedderClient] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def serving(self, model: ActiveModel) -> DescribedEmbedder:
        """An embedder of the model.

        Raises:
            ModelMismatch: none is known, or the address that the database names is not to be trusted.
        """
        url, fits = model.embedder_url, self._model == model.name
        near = url is not None and trusted(self.url or "", url, self._trusted_hosts)
        if fits and (url == self.url or not near):
            return self.configured
        if url is None:
            raise ModelMismatch(
                f"The vectors are of {model.name}; this process is set up for {self._model}.",
                "Set MEMORY_MODEL and MEMORY_EMBEDDER_URL to that model and its embedder.",
            )
        if not near:
            raise ModelMismatch(
                f"The database names an embedder of {model.name} that is no neighbour of the configured one.",
                "Set MEMORY_EMBEDDER_URL to it, or its host in MEMORY_EMBEDDER_TRUSTED_HOSTS.",
            )
        key = (url, model.name)
        if key not in self._opened:
            self._opened[key] = await self._stack.enter_async_context(self._connect(url, model.name))
        return self._opened[key]
