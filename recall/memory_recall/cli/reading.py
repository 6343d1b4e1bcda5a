"""Opens what commands need to recall: a connection pool, the configured embedder if any, and a HybridRecall."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from memory_recall.embedding.chat_client import ChatClient
from memory_recall.embedding.client import EmbedderClient
from memory_recall.embedding.voyage import VoyageClient
from memory_recall.errors import InvalidConfiguration
from memory_recall.indexing.embedders import query_embedder
from memory_recall.postgres.connection import create_pool
from memory_recall.search.hybrid_recall import HybridRecall
from memory_recall.search.query_expansion import QueryExpansion
from memory_recall.settings import Settings

_DATABASE_SECONDS = 30.0  # nobody's prompt waits for a command


@asynccontextmanager
async def opened_recall(
    settings: Settings,
    *,
    dense: bool,
    embedding_budget: float,
    connections: int = 1,
    expansion_budget: float | None = None,
) -> AsyncIterator[tuple[HybridRecall, EmbedderClient | VoyageClient | None]]:
    """Open a HybridRecall and, if `dense` is set, the configured embedder; close both when the block ends.

    The block receives the HybridRecall and the embedder. The embedder is None if `dense` is not set or none is
    configured. With an `expansion_budget` (seconds), queries can be expanded.

    Raises:
        InvalidConfiguration: queries are to be expanded, but no language model is configured, or queries may not be
            sent to it.
    """
    async with AsyncExitStack() as opened:
        pool = await create_pool(settings.dsn(), min_size=1, max_size=connections, application_name="memory-cli")
        opened.push_async_callback(pool.close)
        embedder = query_embedder(settings) if dense else None
        if embedder is not None:
            opened.push_async_callback(embedder.close)
        expansion = None
        if expansion_budget is not None:
            expansion = QueryExpansion(await opened.enter_async_context(_chat(settings)), budget=expansion_budget)
        hybrid = HybridRecall(
            pool,
            embedder,
            table=settings.table,
            embedding_budget=embedding_budget,
            time_budget=max(embedding_budget, expansion_budget or 0.0) + _DATABASE_SECONDS,
            expansion=expansion,
        )
        opened.push_async_callback(hybrid.close)
        yield hybrid, embedder


def _chat(settings: Settings) -> ChatClient:
    if settings.expansion.url is None:
        raise InvalidConfiguration("No language model is configured to expand queries.", "Set MEMORY_EXPANSION_URL.")
    return ChatClient(
        settings.expansion.url,
        settings.expansion.model,
        settings.expansion.api_key_file,
        query_egress=settings.query_egress,
    )
