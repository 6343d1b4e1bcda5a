"""Opens what commands need to recall: a connection pool, the configured embedder if any, and a HybridRecall."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from memory_recall.embedding.client import EmbedderClient
from memory_recall.embedding.voyage import VoyageClient
from memory_recall.indexing.embedders import query_embedder
from memory_recall.postgres.connection import create_pool
from memory_recall.search.hybrid_recall import HybridRecall
from memory_recall.settings import Settings

_DATABASE_SECONDS = 30.0  # nobody's prompt waits for a command


@asynccontextmanager
async def opened_recall(
    settings: Settings, *, dense: bool, embedding_budget: float, connections: int = 1
) -> AsyncIterator[tuple[HybridRecall, EmbedderClient | VoyageClient | None]]:
    """Open a HybridRecall and, if `dense` is set, the configured embedder; close both when the block ends.

    The block receives the HybridRecall and the embedder. The embedder is None if `dense` is not set or none is
    configured.
    """
    async with AsyncExitStack() as opened:
        pool = await create_pool(settings.dsn(), min_size=1, max_size=connections, application_name="memory-cli")
        opened.push_async_callback(pool.close)
        embedder = query_embedder(settings) if dense else None
        if embedder is not None:
            opened.push_async_callback(embedder.close)
        hybrid = HybridRecall(
            pool,
            embedder,
            table=settings.table,
            embedding_budget=embedding_budget,
            time_budget=embedding_budget + _DATABASE_SECONDS,
        )
        opened.push_async_callback(hybrid.close)
        yield hybrid, embedder
